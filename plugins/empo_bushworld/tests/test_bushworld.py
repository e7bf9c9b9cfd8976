"""BushWorld: the batched kernel, known values, files, pictures, and the prior."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_bushworld import successors

from empo_bushworld.layout import WorldFile, layout_of, read_layout
from empo_bushworld.plugin import BushworldParams, ShortestPathParams, empo_components
from empo_bushworld.prior import ShortestPath
from empo_bushworld.world import BushWorld, load_world
from empo_core.config import HumanPriorRef, WorldModelRef
from empo_core.errors import ConfigError, WorldError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.types import AgentSpec, Overlay
from empo_pictures.canvas import heat_colour
from empo_pictures.picture_sheet import CAPTION_HEIGHT, TITLE_HEIGHT
from empo_testing.human_prior import HumanPriorTests
from empo_testing.world_model import WorldModelTests
from empo_testing.worlds import TinyWorld
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference
from empo_worlds.enumeration import enumerate_world

COMPONENTS = {component.name: component for component in empo_components()}
LIBRARY = BushworldParams.library
SHIPPED = sorted(LIBRARY.glob("*.yaml"))


def world_of(**keys: Any) -> BushWorld:
    return BushWorld(layout_of(WorldFile.model_validate(keys)))


def corridor(max_steps: int, impenetrable: int) -> BushWorld:
    path = LIBRARY / "two_humans_one_robot.yaml"
    return load_world(BushworldParams(file=path, max_steps=max_steps, B=impenetrable))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
class TestBushWorld(WorldModelTests):
    @pytest.fixture
    def world(self, path: Path) -> WorldModel:
        return load_world(BushworldParams(file=path))

    @pytest.fixture
    def states(self, world: WorldModel) -> torch.Tensor:
        first = world.initial_state()[None]
        return torch.unique(torch.cat([first, world.transitions(first).states]), dim=0)[:12]


@pytest.mark.parametrize("beta", ["inf", 0.0, 3.5])
class TestShortestPath(HumanPriorTests):
    @pytest.fixture
    def world(self) -> WorldModel:
        return load_world(BushworldParams(file=LIBRARY / "thicket.yaml"))

    @pytest.fixture
    def prior(self, world: WorldModel, beta: Any) -> HumanPrior:
        return ShortestPath(ShortestPathParams(beta=beta), world)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[list[str]], int, list[int], list[int]]:
    width, height = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    cells = width * height
    agents = min(cells, draw(st.integers(1, 4)))
    humans = draw(st.integers(1, agents))
    impenetrable = draw(st.integers(1, 5))
    tokens = ["Hu"] * humans + ["Ro"] * (agents - humans) + ["."] * (cells - agents)
    tokens = draw(st.permutations(tokens))
    grid = [tokens[i : i + width] for i in range(0, cells, width)]
    places = draw(st.permutations(range(cells)))[:agents]
    densities = draw(st.lists(st.integers(0, impenetrable), min_size=cells, max_size=cells))
    actions = draw(st.lists(st.integers(0, 4), min_size=agents, max_size=agents))
    return grid, impenetrable, [*places, *densities], actions


@settings(max_examples=400)
@given(situations())
def test_the_kernel_does_what_the_reference_says(
    situation: tuple[list[list[str]], int, list[int], list[int]],
) -> None:
    grid, impenetrable, row, actions = situation
    world = world_of(map=grid, B=impenetrable)
    outcomes = world.transitions(torch.tensor([row], dtype=torch.int16), torch.tensor([actions]))
    got = {
        tuple(s): p for s, p in zip(outcomes.states.tolist(), outcomes.prob.tolist(), strict=True)
    }
    expected = successors(world.layout, row, actions)
    assert got == pytest.approx(expected, abs=1e-15)
    assert len(got) == outcomes.prob.numel() == len(expected)


@pytest.mark.parametrize(
    ("text", "actions", "expected"),
    [
        # The robot and a human want one cell: the robot is first in order, only it tries.
        ("Hu 1 Ro Hu", [1, 3, 4], {(1, 0, 3): 1.0}),
        # Of two humans only the first tries.
        ("Hu 1 Hu Ro", [4, 3, 1], {(3, 0, 2): 0.25, (3, 1, 2): 0.75}),
        # Nobody follows into a cell that is left in the same step, and nobody swaps.
        ("Hu Hu 0 Ro", [1, 3, 3], {(2, 0, 1): 1.0}),
        ("Hu Hu 0 Ro", [0, 3, 3], {(3, 0, 2): 1.0}),
        ("Hu Hu 0 Ro", [0, 3, 1], {(3, 0, 1): 1.0}),
        # Two coins are independent.
        ("Hu 1 2 Hu", [3, 1], {(0, 3): 0.125, (1, 3): 0.375, (0, 2): 0.125, (1, 2): 0.375}),
        # Impenetrable.
        ("Hu 4 Ro", [4, 3], {(2, 0): 1.0}),
    ],
)
def test_moves_are_resolved_as_specified(
    text: str, actions: list[int], expected: dict[tuple[int, ...], float]
) -> None:
    world = world_of(map=text, B=4)
    outcomes = world.transitions(world.initial_state()[None], torch.tensor([actions]))
    places = [tuple(row[: len(actions)]) for row in outcomes.states.tolist()]
    assert dict(zip(places, outcomes.prob.tolist(), strict=True)) == expected


def test_a_robot_treads_where_it_goes_or_stays() -> None:
    world = world_of(map="Hu 3 Ro 0", B=4, fill_density=2)
    first = world.initial_state()
    assert first.tolist() == [2, 0, 2, 3, 2, 0]
    for action, cell, densities in [
        (1, 1, [2, 2, 2, 0]),  # West, into the bush.
        (3, 3, [2, 3, 2, 0]),  # East, where nothing is left to tread down.
        (4, 2, [2, 3, 1, 0]),  # Passing.
        (0, 2, [2, 3, 2, 0]),  # North is off the grid: nothing happens.
    ]:
        outcomes = world.transitions(first[None], torch.tensor([[action, 4]]))
        assert outcomes.states.tolist() == [[cell, 0, *densities]]


@pytest.mark.parametrize(
    ("steps", "impenetrable", "sizes"), [(3, 10, (155, 92, 761)), (4, 1, (56, 26, 95))]
)
def test_the_unrolled_graph_has_the_known_size(
    steps: int, impenetrable: int, sizes: tuple[int, int, int]
) -> None:
    world = corridor(steps, impenetrable)
    level = world.initial_state()[None]
    states, edges = 1, 0
    for _ in range(steps):
        outcomes = world.transitions(level)
        source = torch.repeat_interleave(
            torch.arange(outcomes.num_pairs) // world.spec.num_joint_actions,
            outcomes.offsets.diff(),
        )
        edges += len(torch.unique(torch.cat([source[:, None], outcomes.states], 1), dim=0))
        level = torch.unique(outcomes.states, dim=0)
        states += len(level)
    assert (states, len(level), edges) == sizes


# Known to about 1e-5; they belong to eta = 1.
@pytest.mark.parametrize(
    ("steps", "impenetrable", "with_prior", "value", "policy"),
    [
        (3, 10, True, -8.78272, [0.22918, 0.06087, 0.22918, 0.24669, 0.23408]),
        (3, 10, False, -12.02319, [0.1785, 0.09165, 0.1785, 0.37275, 0.17861]),
        (4, 1, True, -24.61146, None),
        (4, 1, False, -25.19990, None),
    ],
)
def test_the_corridor_has_its_known_values(
    steps: int, impenetrable: int, with_prior: bool, value: float, policy: list[float] | None
) -> None:
    world = corridor(steps, impenetrable)
    theory = CompleteTheory(
        beta_h=5.0, gamma_h=0.95, gamma_r=0.95, beta_r=5.0, zeta=2.0,
        accrual="continuous",
    )  # fmt: skip
    prior = ShortestPath(ShortestPathParams(), world) if with_prior else None
    values = Reference(world, theory, prior).at(tuple(world.initial_state().tolist()), steps)
    assert values.v_r == pytest.approx(value, rel=1.2e-5)
    if policy is not None:
        assert list(values.pi_r.values()) == pytest.approx(policy, abs=3e-5)


def test_a_python_author_would_get_the_same_world() -> None:
    world = corridor(2, 10)

    class Corridor:
        name = "corridor"
        horizon = 2
        agents = tuple(
            AgentSpec(name=agent.name, role=agent.role, actions=agent.actions)
            for agent in world.spec.agents
        )

        def initial_state(self) -> tuple[int, ...]:
            return tuple(world.initial_state().tolist())

        def transition_probabilities(self, state: Any, actions: Any) -> Any:
            return [(p, s) for s, p in successors(world.layout, state, actions).items()]

    slow = enumerate_world(Corridor())
    outcomes = slow.transitions(slow.initial_state()[None])
    fast = world.transitions(world.initial_state()[None])
    assert torch.equal(outcomes.offsets, fast.offsets)
    assert outcomes.prob.sum().item() == pytest.approx(fast.prob.sum().item())
    assert {slow.state_of(row) for row in outcomes.states} == {
        tuple(s) for s in fast.states.tolist()
    }


def test_the_prior_is_uniform_over_shortest_ways() -> None:
    world = world_of(map="Hu .  .\n.  Ro .", possible_goals=["2,1", "0,0, 0,1"])
    prior = ShortestPath(ShortestPathParams(), world)
    policy = prior.policy(world.initial_state()[None], torch.tensor([3]))
    # Blind to the robot: south and east both lead to (2,1).
    assert policy[0, 0].tolist() == [0, 0, 0.5, 0.5, 0]
    # Standing on a goal: whatever stays on it, e.g. moving off the grid or within it.
    assert policy[0, 1].tolist() == [0.25, 0.25, 0.25, 0, 0.25]
    soft = ShortestPath(ShortestPathParams(beta=2.0), world).policy(
        world.initial_state()[None], torch.tensor([1])
    )
    weights = np.exp(-2.0 * np.array([3, 3, 2, 2, 3]))
    assert soft[0, 0].tolist() == pytest.approx((weights / weights.sum()).tolist())


def test_the_prior_needs_a_bushworld() -> None:
    class Elsewhere(BushWorld):
        pass

    with pytest.raises(ConfigError, match="needs world_model 'bushworld'"):
        ShortestPath(ShortestPathParams(), TinyWorld())
    assert ShortestPath(ShortestPathParams(), Elsewhere(world_of(map="Hu").layout))


def test_goals_default_to_every_cell_of_every_human() -> None:
    world = world_of(map="Hu 0 Hu\n. Ro 0", B=1)
    assert len(world.spec.goals) == 12
    assert {goal.weight for goal in world.spec.goals} == {1 / 6}
    assert [goal.name for goal in world.spec.goals_of(1) and world.spec.goals[:4]] == [
        *("(0,0)", "(1,0)", "(2,0)", "(0,1)"),
    ]
    achieved = world.achieved(world.initial_state()[None])[0].nonzero()[:, 0].tolist()
    assert achieved == [0, 8]
    rectangles = world_of(map="Hu . .", possible_goals=[[0, 0], [[2, 0], [1, 0]], "0,0,2,0"])
    assert [goal.name for goal in rectangles.spec.goals] == ["(0,0)", "(1,0)-(2,0)", "(0,0)-(2,0)"]
    assert world.positions(world.initial_state()[None]).tolist() == [[[1, 1], [0, 0], [2, 0]]]


def test_the_title_is_the_name_else_that_of_the_metadata() -> None:
    metadata = {"name": "Ann's lane\x1b", "category": "bushworld"}
    assert world_of(map="Hu 0").spec.name == "bushworld"
    assert world_of(map="Hu 0", metadata=metadata).spec.name == "Ann's lane\\x1b"
    assert world_of(map="Hu 0", metadata=metadata, name="mine").spec.name == "mine"


def test_a_state_is_described_by_its_map() -> None:
    world = world_of(map="Hu 12 Ro", B=12, fill_density=3)
    assert world.describe(world.initial_state()) == "H1 12 R1\nR1 stands on 3, H1 stands on 3"


def test_pictures_show_bushes_agents_and_overlays() -> None:
    world = world_of(map="Hu 4 Ro\n. . .", B=4, render_tile_size=20)
    first = world.initial_state()
    plain = world.render(first)
    assert plain.shape == (40, 60, 3)
    assert plain[10, 30].tolist() == [38, 110, 48]
    later = world.transitions(first[None], torch.tensor([[1, 4]])).states[0]
    assert not np.array_equal(world.render(later), plain)
    overlay = Overlay(goal_values=[1.0, 0.0, 0.0, 0.5, 0.0, 0.0], titles={1: "X_h = 2"})
    hot = world.render(first, overlay)[TITLE_HEIGHT:]
    assert tuple(hot[1, 10]) == heat_colour(1.0)
    assert tuple(hot[21, 10]) == heat_colour(0.5)
    policies = world.render(first, Overlay(policies={0: [0.0, 1.0, 0.0, 0.0, 0.0]}))
    assert (policies[8:12, 43] != plain[8:12, 43]).any()
    captioned = world.render(first, Overlay(caption="step 1"))
    assert captioned.shape == (40 + CAPTION_HEIGHT, 60, 3)
    assert captioned[40:].min() < 100
    drawn = world.render_svg(first, replace(overlay, actions={0: 1}, caption="step 1"))
    texts = set(ElementTree.fromstring(drawn).itertext())
    assert {"human 1: X_h = 2", "robot 1: W", "A: (0,0)", "A", "1.000", "step 1"} <= texts


def test_malformed_rows_are_refused() -> None:
    world = world_of(map="Hu 1 Hu", B=2)
    for row, complaint in [
        ([0, 3, 0, 0, 0], "the 3 cells"),
        ([1, 1, 0, 0, 0], "one cell"),
        ([0, 1, 0, 3, 0], "density"),
        ([0, 1, 0, 0], "rows of 5 words"),
    ]:
        with pytest.raises(WorldError, match=complaint):
            world.achieved(torch.tensor([row]))
    with pytest.raises(WorldError, match="action 5 of human 2 in row 0"):
        world.transitions(world.initial_state()[None], torch.tensor([[0, 5]]))


FILE = """\
name: test
map: |
  Hu 1 Ro

  .  2 ..
B: 3
possible_goals: ["0,0", [2, 1]]
"""


@pytest.mark.parametrize(
    ("old", "new", "place", "reason"),
    [
        ("2 ..", "4 ..", "5:6: map", "density 4 is more than B = 3"),
        ("2 ..", "-2 ..", "5:6: map", "'-2' is not Ro, Hu"),
        ("2 ..", "2", "5:3: map", "row 1 has 2 cells, but row 0 has 3"),
        ("Hu 1", ". 1", "2:", "has no human"),
        ("B: 3", "B: 0", "6:1: B", ""),
        ("B: 3", "B: 3\nfill_density: 4", "7:1: fill_density", "more than B"),
        ("B: 3", "B: 3\nseed: 4", "", "'seed' has no place in a world"),
        ("B: 3", "b: 3", "6:1: b", "B"),
        ("B: 3", "B: three", "6:1: B", ""),
        ("[2, 1]", "[3, 1]", "7:25: possible_goals.1", "outside of the map of 3 x 2"),
        ("[2, 1]", "[0, 0]", "7:25: possible_goals.1", "listed twice"),
        ("[2, 1]", "[2]", "7:25: possible_goals.1", "not a cell or rectangle"),
        ('"0,0"', '"zero"', "7:18: possible_goals.0", "not a cell or rectangle"),
        (FILE[11:], "map: []\n", "2:1: map", "is empty"),
        (FILE[11:], "map: [[Hu, 1], [., 9]]\n", ":2:20: map.1.1", "density 9 is more than B = 1"),
    ],
)
def test_every_mistake_in_a_file_is_located(
    tmp_path: Path, old: str, new: str, place: str, reason: str
) -> None:
    assert old in FILE
    path = tmp_path / "bush.yaml"
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_world(BushworldParams(file=path))
    first = str(caught.value).splitlines()[0]
    assert place in first.partition("bush.yaml")[2]
    assert reason in first


def test_maps_may_be_text_lines_or_cells(tmp_path: Path) -> None:
    layouts = []
    for written in ["|\n  Hu 1\n  Ro .\n", "[Hu 1, Ro ..]", "[[Hu, 1], [Ro, .]]"]:
        path = tmp_path / "bush.yaml"
        path.write_text(f"map: {written}\nB: 2\n")
        layouts.append(read_layout(path, max_steps=4))
    assert layouts[0] == layouts[1] == layouts[2]
    assert layouts[0].max_steps == 4


def test_configs_choose_world_and_prior() -> None:
    chosen = WorldModelRef.model_validate("bushworld/two_robots")
    world = COMPONENTS["bushworld"].load()(chosen.params)
    assert world.spec.robots == (0, 1)
    prior = HumanPriorRef.model_validate({"name": "shortest-path", "params": {"beta": 2.0}})
    made = COMPONENTS["shortest-path"].load()(prior.params, world)
    assert isinstance(made, HumanPrior)
    with pytest.raises(ValueError, match="beta"):
        ShortestPathParams(beta=-1.0)


def test_a_network_sees_bushes_and_who_stands_where() -> None:
    world = world_of(map="2 Ro 1\nHu . Hu", B=4, fill_density=3)
    features = world.spec.featurizer
    encoded = features(world.initial_state()[None].repeat(2, 1))
    assert encoded.grid[1].tolist() == [
        [[0.5, 0.75, 0.25], [0.75, 0, 0.75]],
        [[0, 1, 0], [0, 0, 0]],
        [[0, 0, 0], [1, 0, 1]],
    ]
    assert encoded.agents[0].tolist() == [[1, 0, 0], [0, 1, 1], [2, 1, 1]]
    assert encoded.flat().shape == (2, features.shape.flat) == (2, 27)
    assert world.spec.goals[1].features == (1, 0, 1, 0)
    with pytest.raises(WorldError, match=r"shape \[state, 9\]"):
        features(torch.zeros(1, 8, dtype=torch.int16))
