"""The blocks world and its prior: kits, rules by hand, numbers of states, pictures, mistakes."""

from __future__ import annotations

from math import comb
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from boards import random_states

from empo_benchmarks.blocks.board import DIRECTIONS, MOVES
from empo_benchmarks.blocks.params import BlocksParams, GreedyDistanceParams
from empo_benchmarks.blocks.prior import GreedyDistance
from empo_benchmarks.blocks.ranks import Ranks
from empo_benchmarks.blocks.world import BlocksWorld, load_world
from empo_benchmarks.plugin import empo_components
from empo_core.config import WorldModelRef
from empo_core.config.files import parse_yaml, validate_document
from empo_core.errors import ConfigError, WorldError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.types import Overlay
from empo_testing.human_prior import HumanPriorTests
from empo_testing.world_model import WorldModelTests
from empo_testing.worlds import TinyWorld
from empo_theory.inspection import Sketchable
from empo_worlds.row_table import RowTable

TURNS = [(swap, flip_x, flip_y) for swap in (0, 1) for flip_x in (0, 1) for flip_y in (0, 1)]
"""The 8 symmetries of a square."""


def world_of(**params: Any) -> BlocksWorld:
    return load_world(BlocksParams.model_validate(params))


def cells_of(world: BlocksWorld, text: str) -> list[int]:
    """A row from a drawing: H the human, # a box, X both."""
    tokens = text.split()
    assert len(tokens) == world.board.cells
    boxes = [cell for cell, token in enumerate(tokens) if token in "#X"]
    return [next(cell for cell, token in enumerate(tokens) if token in "HX"), *boxes]


@pytest.mark.parametrize(
    "params",
    [
        {"size": 3, "boxes": 2},
        {"size": 3, "boxes": 1, "robot_actions": "cells"},
        {"start": "random", "boxes": 5},
    ],
    ids=str,
)
class TestBlocks(WorldModelTests):
    @pytest.fixture
    def world(self, params: dict[str, Any]) -> WorldModel:
        return world_of(**params)

    @pytest.fixture
    def states(self, world: BlocksWorld) -> torch.Tensor:
        some = random_states(world, 12, np.random.default_rng(1))
        assert 0 < int(world.is_crushed(some).sum()) < len(some)
        return torch.unique(torch.cat([world.initial_state()[None], some]), dim=0)


@pytest.mark.parametrize(
    "params", [{}, {"ties": "even"}, {"noise": 0.0, "stay_bonus": 0.0}], ids=str
)
class TestGreedyDistance(HumanPriorTests):
    @pytest.fixture
    def world(self) -> WorldModel:
        return world_of(size=3)

    @pytest.fixture
    def prior(self, world: WorldModel, params: dict[str, Any]) -> HumanPrior:
        return GreedyDistance(GreedyDistanceParams.model_validate(params), world)


@pytest.mark.parametrize(
    ("before", "human", "robot", "after"),
    [
        # A box follows the human into the cell that it leaves.
        (". H # . . . . . .", "left", "box 1 left", "H # . . . . . . ."),
        # The human comes to where a box then moves, too, and is crushed.
        (". H . # . . . . .", "left", "box 1 up", "X . . . . . . . ."),
        # A box does not make way in time.
        (". H # . . . . . .", "right", "box 1 down", ". H . . . # . . ."),
        # Boxes do not push boxes, and the border holds.
        ("H . . . . . . # #", "stay", "box 1 right", "H . . . . . . # #"),
        ("H . . . . . . # #", "up", "box 2 right", "H . . . . . . # #"),
        # Boxes are counted anew after each step.
        ("H # . # . . . . .", "stay", "box 1 down", "H . . # # . . . ."),
    ],
)
def test_a_step_by_hand(before: str, human: str, robot: str, after: str) -> None:
    boxes = before.count("#")
    world = world_of(size=3, boxes=boxes)
    actions = [
        world.spec.agents[0].actions.index(human),
        world.spec.agents[1].actions.index(robot),
    ]
    found = world.transitions(torch.tensor([cells_of(world, before)]), torch.tensor([actions]))
    assert found.states.tolist() == [cells_of(world, after)]


def test_nothing_moves_a_crushed_human_and_it_still_counts() -> None:
    world = world_of(size=3)
    crushed = torch.tensor([[4, 4, 7]])
    assert world.is_crushed(crushed).all()
    assert world.achieved(crushed)[0].nonzero().tolist() == [[4]]
    assert world.available(crushed).any(2).all()
    assert (world.transitions(crushed).states == crushed).all()
    assert world.describe(crushed[0]) == ". . .\n. 1 .\n. 2 .\nbox 1 has crushed the human"


@pytest.mark.parametrize(("size", "boxes"), [(3, 1), (3, 8), (4, 3), (5, 2)])
def test_every_number_is_that_of_one_state(size: int, boxes: int) -> None:
    ranks = Ranks(size**2, boxes)
    assert ranks.count == size**2 * comb(size**2, boxes)
    numbers = np.arange(ranks.count)
    rows = ranks.unrank(numbers)
    assert np.array_equal(ranks.rank(rows), numbers)
    world_of(size=size, boxes=boxes).achieved(torch.from_numpy(rows))
    assert RowTable.of(rows).count == ranks.count


def test_numbers_beyond_the_last_state_or_64_bits_are_refused() -> None:
    largest = Ranks(36, 18)
    last = np.array([largest.count - 1])
    assert largest.unrank(last).tolist() == [[35, *range(18, 36)]]
    for number in (-1, largest.count):
        with pytest.raises(WorldError, match=f"0 to {largest.count - 1}"):
            largest.unrank(np.array([number]))
    with pytest.raises(WorldError, match="more than 64 bits number"):
        Ranks(100, 50)


@pytest.mark.parametrize("robot_actions", ["effective", "cells"])
@pytest.mark.parametrize("turn", TURNS, ids=str)
def test_the_symmetries_of_the_board_are_the_worlds(
    turn: tuple[int, int, int], robot_actions: str
) -> None:
    world = world_of(boxes=3, robot_actions=robot_actions)
    rng = np.random.default_rng(3)
    states = random_states(world, 200, np.random.default_rng(2)).tolist()
    chosen = rng.integers(world.spec.num_actions, size=(len(states), 2)).tolist()
    images = [image(world, turn, *pair) for pair in zip(states, chosen, strict=True)]
    after = world.transitions(torch.tensor(states), torch.tensor(chosen)).states.tolist()
    found = world.transitions(*(torch.tensor(part) for part in zip(*images, strict=True)))
    assert found.states.tolist() == [image(world, turn, row, [0, 0])[0] for row in after]


def image(
    world: BlocksWorld, turn: tuple[int, int, int], row: list[int], actions: list[int]
) -> tuple[list[int], list[int]]:
    """A state and a joint action, with rows and columns swapped, then each turned round."""
    swap, flip_x, flip_y = turn
    last = world.board.size - 1

    def cell_image(cell: int) -> int:
        x, y = world.board.place(cell)[:: -1 if swap else 1]
        return (last - y if flip_y else y) * (last + 1) + (last - x if flip_x else x)

    def direction_image(name: str) -> str:
        x, y = MOVES[DIRECTIONS.index(name)][:: -1 if swap else 1]
        return DIRECTIONS[MOVES.index((-x if flip_x else x, -y if flip_y else y))]

    human, robot = (a.actions[i] for a, i in zip(world.spec.agents, actions, strict=True))
    mirrored = [cell_image(row[0]), *sorted(map(cell_image, row[1:]))]
    if robot != "still":
        *who, direction = robot.split()
        cell = row[int(who[1])] if who[0] == "box" else actions[1] // len(DIRECTIONS)
        there = cell_image(cell)
        name = world.board.cell_name(there)
        name = f"box {mirrored.index(there, 1)}" if who[0] == "box" else name
        robot = f"{name} {direction_image(direction)}"
    wanted = direction_image(human), robot
    return mirrored, [
        a.actions.index(name) for a, name in zip(world.spec.agents, wanted, strict=True)
    ]


def test_further_boxes_are_drawn_by_their_seed_beside_the_start() -> None:
    rows = [world_of(boxes=6, extra_seed=seed).initial_state() for seed in (0, 0, 1)]
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])
    for row in rows:
        assert row[:3].tolist() == [0, 1, row[2]]
        assert 5 in row[1:].tolist()
        assert len(set(row.tolist())) == 7
    humans = {int(world_of(start="random", extra_seed=s).initial_state()[0]) for s in range(40)}
    assert len(humans) > 10


def test_the_human_of_the_benchmark_prefers_staying_to_small_gains() -> None:
    world = world_of(size=9, boxes=1)
    prior = GreedyDistance(GreedyDistanceParams(noise=0.0), world)
    names = world.spec.agents[0].actions
    for human, goal, best in [
        (0, 80, "down"),  # As good as right, and named before it.
        (40, 36, "left"),
        (9, 8, "right"),
        (2, 72 + 1, "down"),
        (0, 72, "down"),
    ]:
        policy = prior.policy(torch.tensor([[human, 79]]), torch.tensor([1]))[0, goal]
        assert names[int(policy.argmax())] == best
    # A box below: the step aside to (1,0) brings less than 0.1 on the way to (1,8), more to (2,8).
    policy = prior.policy(torch.tensor([[0, 9]]), torch.tensor([1]))[0]
    assert names[int(policy[73].argmax())] == "stay"
    assert names[int(policy[74].argmax())] == "right"


def test_even_ties_are_shared_and_symmetric() -> None:
    world = world_of(size=3)
    prior = GreedyDistance(GreedyDistanceParams(ties="even"), world)
    policy = prior.policy(torch.tensor([[0, 4, 6]]), torch.tensor([1]))[0]
    assert policy[8].tolist() == pytest.approx([0.04, 0.04, 0.44, 0.44, 0.04])
    assert policy[0].tolist() == [1, 0, 0, 0, 0]


def test_the_prior_needs_a_blocks_world() -> None:
    with pytest.raises(ConfigError, match="needs world_model 'blocks'"):
        GreedyDistance(GreedyDistanceParams(), TinyWorld())


def test_networks_see_the_human_and_the_boxes_and_read_rows_without_the_world() -> None:
    world = world_of(size=3, boxes=2)
    states = torch.tensor([[5, 1, 5], [0, 3, 8]], dtype=torch.int16)
    found = world.spec.featurizer(states)
    assert found.grid[0].tolist() == [
        [[0, 0, 0], [0, 0, 1], [0, 0, 0]],
        [[0, 1, 0], [0, 0, 1], [0, 0, 0]],
    ]
    assert found.agents.tolist() == world.positions(states).tolist()
    assert found.agents.tolist() == [[[2, 1], [-1, -1]], [[0, 0], [-1, -1]]]
    compact = world.compact(states)
    assert compact.dtype == torch.int32
    assert torch.equal(world.compact_features(compact).flat(), found.flat())
    assert world.spec.featurizer.shape.flat == found.flat().shape[1]
    with pytest.raises(WorldError, match=r"shape \[state, 3\]"):
        world.spec.featurizer(states[:, :2])


def test_pictures_show_boxes_the_human_policies_and_goals() -> None:
    world = world_of(size=3)
    first, crushed = world.initial_state(), torch.tensor([1, 1, 3], dtype=torch.int16)
    plain = world.render(first)
    assert plain.shape == (288, 288, 3)
    assert not np.array_equal(world.render(crushed), plain)
    still = [1.0] + [0.0] * 8
    moves = [0.0] * 6 + [1.0, 0.0, 0.0]
    overlays = [
        Overlay(policies={1: moves}),
        Overlay(policies={1: still}),
        Overlay(policies={0: [0.0, 0.0, 1.0, 0.0, 0.0]}),
        Overlay(actions={0: 2, 1: 6}),
        Overlay(goal_values=[0.1 * goal for goal in range(9)], pursued={0: 8}),
    ]
    drawn = [world.render_svg(first, overlay) for overlay in overlays]
    assert len(set(drawn)) == len(overlays)
    assert {"A", "I", ".80", "I: (2,2) (pursued)"} <= set(
        ElementTree.fromstring(drawn[-1]).itertext()
    )


def test_a_page_gets_glyphs_of_boxes_and_the_human() -> None:
    world = world_of(size=3)
    assert isinstance(world, Sketchable)
    found = world.sketch(torch.tensor([[0, 1, 3], [1, 1, 3]]))
    names = [name for name, _ in found.glyphs]
    assert [names[glyph] for glyph in found.agents[:, 0]] == ["human", "crushed human"]
    assert found.places.tolist() == [[0, 0], [1, 0]]
    assert [[cell for cell in range(9) if names[each[cell]] == "box"] for each in found.things] == [
        [1, 3]
    ] * 2
    assert all(picture.startswith("<svg") for name, picture in found.glyphs if name)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ([9, 0, 1], "row 0, .* cells are 0 to 8"),
        ([0, 2, 1], "ascend"),
        ([0, 2, 2], "ascend"),
        ([0, 1, 9], "cells are 0 to 8"),
        ([0, 1], "rows of 3 words"),
    ],
)
def test_rows_that_are_no_states_are_refused(row: list[int], complaint: str) -> None:
    with pytest.raises(WorldError, match=complaint):
        world_of(size=3).achieved(torch.tensor([row]))


@pytest.mark.parametrize(
    ("params", "place", "reason"),
    [
        ("{boxes: 25}", "params.boxes", "room for 24 boxes and the human"),
        ("{boxes: 0}", "params.boxes", "greater than or equal to 1"),
        ("{size: 33}", "params.size", "less than or equal to 32"),
        ("{size: 2, boxes: 1, start: center}", "params.start", "at least 3 x 3 cells; size is 2"),
        ("{size: 2, start: corner_hard}", "params.start", "at least 3 x 3 cells; size is 2"),
        ("{start: edge}", "params.start", ""),
        ("{start: center, corner: 1}", "params.corner", "has no effect unless start is corner"),
        ("{start: {human: [0, 0], boxes: [[1, 0]]}}", "params.start", "boxes is 2"),
        (
            "{start: {human: [0, 0], boxes: [[1, 0], [0, 0]]}}",
            "params.start",
            r"boxes: [0, 0] is the human's cell",
        ),
        (
            "{start: {human: [0, 5], boxes: [[1, 0], [0, 1]]}}",
            "params.start",
            "human: [0, 5] is outside",
        ),
        (
            "{start: {human: [0, 0], boxes: [[1, 0], [1, 0]]}}",
            "params.start",
            "[1, 0] is listed twice",
        ),
        ("{start: {human: [0, 0, 1], boxes: [[1, 0], [1, 0]]}}", "params.start.human", ""),
    ],
)
def test_every_mistake_has_a_place(params: str, place: str, reason: str) -> None:
    document = parse_yaml(f"name: blocks\nparams: {params}\n", name="world.yaml")
    with pytest.raises(ConfigError) as caught:
        validate_document(WorldModelRef, document)
    (line,) = str(caught.value).splitlines()[:1]
    assert line.startswith("world.yaml:2:")
    assert f" {place}: " in line
    assert reason in line


def test_configs_choose_world_and_prior() -> None:
    components = {component.name: component for component in empo_components()}
    chosen = WorldModelRef.model_validate({"name": "blocks", "params": {"boxes": 3}})
    world = components["blocks"].load()(chosen.params)
    assert world.initial_state().tolist()[:2] == [0, 1]
    prior = components["greedy-distance"].load()(GreedyDistanceParams(), world)
    assert prior.policy(world.initial_state()[None], torch.tensor([1])).shape == (1, 25, 5)
