"""The disempower world: kit, variations, numbers of states, reductions, pictures, mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from empo_benchmarks.disempower.params import EMBODIED, DisempowerParams, Layout, published
from empo_benchmarks.disempower.ranks import Ranks
from empo_benchmarks.disempower.world import DisempowerWorld, load_world
from empo_benchmarks.plugin import empo_components
from empo_core.config import WorldModelRef
from empo_core.config.files import parse_yaml, validate_document
from empo_core.errors import ConfigError, WorldError
from empo_core.protocols import WorldModel
from empo_core.types import Overlay
from empo_testing.world_model import WorldModelTests
from empo_theory.inspection import Sketchable
from empo_worlds.cone_checks import cone, word_that_matters

DATA = json.loads(Path(__file__).with_name("disempower_layouts.json").read_text())
"""The published layouts and variations, as data."""
SMALL = {
    "height": 2,
    "width": 4,
    "agent_pos": [[0, 0], [1, 3]],
    "box_pos": [[0, 1]],
    "helper_pos": [[1, 1]],
    "goal_pos": [[0, 3]],
    "key_pos": [[0, 2]],
    "assistant": "embodied",
    "pull": True,
    "freeze": True,
    "boxes_can_cover_goal": False,
}


def world_of(**params: Any) -> DisempowerWorld:
    return load_world(DisempowerParams.model_validate(params))


def walked(world: DisempowerWorld, steps: int, at_most: int = 40) -> torch.Tensor:
    """Some states within so many steps of the start."""
    states = world.initial_state()[None]
    for _ in range(steps):
        states = torch.unique(torch.cat([states, world.transitions(states).states]), dim=0)
        states = states[torch.randperm(len(states), generator=torch.Generator().manual_seed(0))]
        states = states[:at_most]
    return torch.unique(torch.cat([states, world.initial_state()[None]]), dim=0)


def num_reached(world: DisempowerWorld, at_once: int = 20_000) -> int:
    """How many states are within reach."""
    ranks = Ranks(world.board)
    seen = np.zeros(ranks.count, np.bool_)
    front = ranks.rank(world.initial_state()[None].numpy())
    while len(front):
        seen[front] = True
        new = np.zeros_like(seen)
        for part in np.array_split(front, -(-len(front) // at_once)):
            rows = torch.from_numpy(ranks.unrank(part))
            new[ranks.rank(world.transitions(rows).states.numpy())] = True
        front = np.flatnonzero(new & ~seen)
    return int(seen.sum())


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"layout": "move_any"},
        {"layout": "push_only", "variation": 3},
        {"layout": SMALL, "key_goal": True},
    ],
    ids=["freeze", "move_any", "push_only", "small"],
)
class TestDisempower(WorldModelTests):
    @pytest.fixture
    def world(self, params: dict[str, Any]) -> WorldModel:
        return world_of(**params)

    @pytest.fixture
    def states(self, world: DisempowerWorld) -> torch.Tensor:
        return walked(world, 4, 12)


WITHOUT_KEYS = {name: DATA["canonical"][name] | {"key_pos": []} for name in DATA["variations_of"]}


@pytest.mark.parametrize(
    ("layout", "states"),
    [
        ("move_any_freeze", 3_960),
        ("move_any", 93_951),
        *(
            pytest.param(*case, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])
            for case in (
                ("push_only", 9_823_622),
                ("push_pull", 19_767_067),
                (WITHOUT_KEYS["push_only"], 2_640_335),
                (WITHOUT_KEYS["push_pull"], 5_226_187),
            )
        ),
    ],
    ids=["freeze", "move_any", "push_only", "push_pull", "push_only keyless", "push_pull keyless"],
)
def test_as_many_states_are_reached_as_were_counted_elsewhere(layout: Any, states: int) -> None:
    assert num_reached(world_of(layout=layout)) == states


@pytest.mark.parametrize("name", DATA["canonical"])
def test_layouts_are_the_published_ones(name: str) -> None:
    assert published(name) == Layout.model_validate(DATA["canonical"][name])


def test_variations_are_the_published_ones_and_number_89_is_the_usual_layout() -> None:
    assert sorted(DATA["variations_of"]) == list(EMBODIED)
    for name in EMBODIED:
        listed = [
            (layout.key_pos[0], layout.goal_pos[0]) for layout in published(name).variations()
        ]
        assert listed == [(cells["key"], cells["goal"]) for cells in DATA["variations"]]
        assert world_of(layout=name, variation=89).board.layout == published(name)
        assert world_of(layout=name, variation=3).board.layout == published(name).variations()[3]


def test_a_library_and_files_have_layouts(tmp_path: Path) -> None:
    library = WorldModelRef.model_validate({"name": "disempower/move_any"})
    assert library.params.board == published("move_any")
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(SMALL))
    chosen = {"name": "disempower", "params": {"file": str(file), "variation": 1}}
    mine = WorldModelRef.model_validate(chosen).params.board
    assert mine == Layout.model_validate(SMALL).variations()[1]
    assert mine.goal_pos != SMALL["goal_pos"]
    file.write_text(json.dumps(SMALL | {"height": 0}))
    with pytest.raises(ConfigError, match=r"mine\.json:1:.* height: "):
        load_world(DisempowerParams(file=file))


def test_a_frozen_bystander_stays_for_four_steps_that_of_the_freeze_included() -> None:
    world = world_of()
    actions = [agent.actions for agent in world.spec.agents]
    up, freeze = actions[1].index("up"), actions[2].index("freeze bystander")
    states, cells, timers = world.initial_state()[None], [], []
    for assistant in (freeze, 0, 0, 0, 0):
        states = world.transitions(states, torch.tensor([[0, up, assistant]])).states
        cells.append(world.positions(states)[0, 1].tolist())
        timers.append(int(states[0, -1]))
    assert timers == [3, 2, 1, 0, 0]
    assert cells == [[0, 4]] * 4 + [[0, 3]]


def test_cells_are_the_goals_of_both_humans_and_to_have_a_key_is_one_if_asked_for() -> None:
    world = world_of(layout=SMALL)
    with_key = world_of(layout=SMALL, key_goal=True)
    for human in (0, 1):
        names = [world.spec.goals[goal].name for goal in world.spec.goals_of(human)]
        assert names == [f"({x},{y})" for y in range(2) for x in range(4)]
        weights = {with_key.spec.goals[goal].weight for goal in with_key.spec.goals_of(human)}
        assert weights == {1 / 9}
    state = torch.tensor([[0, 7, 5, 1, 0, 1, 0]])
    names = [goal.name for goal in with_key.spec.goals]
    reached = with_key.achieved(state)[0].nonzero().flatten().tolist()
    assert [names[goal] for goal in reached] == ["(0,0)", "(3,1)", "has key"]


def test_nothing_depends_on_keys_but_goals_about_them() -> None:
    for world, dropped in (
        (world_of(layout=SMALL), [4, 5]),
        (world_of(layout=SMALL, key_goal=True), []),
        (world_of(), []),
    ):
        outside = ~cone(world.reads())
        assert outside.nonzero().flatten().tolist() == dropped
        states = walked(world, 6, 400)
        assert not dropped or len(torch.unique(states[:, dropped], dim=0)) > 2
        assert word_that_matters(world, outside, states) is None


@pytest.mark.parametrize("params", [{}, {"layout": SMALL}, {"layout": "push_pull"}], ids=str)
def test_every_row_has_a_number(params: dict[str, Any]) -> None:
    world = world_of(**params)
    ranks, states = Ranks(world.board), walked(world, 5).numpy()
    numbers = ranks.rank(states)
    assert len(set(numbers.tolist())) == len(states)
    assert np.array_equal(ranks.unrank(numbers), states)
    assert ranks.count == world.max_states
    some = np.linspace(0, ranks.count - 1, 50).astype(np.int64)
    assert np.array_equal(ranks.rank(ranks.unrank(some)), some)
    with pytest.raises(WorldError, match=str(ranks.count - 1)):
        ranks.unrank(np.array([ranks.count]))


def test_networks_see_agents_boxes_keys_and_the_timer() -> None:
    world = world_of(layout=SMALL)
    state = torch.tensor([[0, 7, 5, 1, 0, 1, 1]], dtype=torch.int16)
    features = world.spec.featurizer(state)
    assert features.grid[0].flatten(1).argmax(1).tolist() == [0, 7, 5, 1]
    assert features.grid.sum() == 4
    assert features.globals.tolist() == [[1, 0, 0, 1, 0, 1]]
    assert features.agents.tolist() == world.positions(state).tolist()
    assert world.positions(state)[0].tolist() == [[0, 0], [3, 1], [1, 1]]
    assert world_of().positions(world_of().initial_state()[None])[0, 2].tolist() == [-1, -1]
    with pytest.raises(WorldError, match=r"shape \[state, 7\]"):
        world.spec.featurizer(state[:, :2])


def test_pictures_show_agents_keys_ice_policies_and_goals() -> None:
    world = world_of(layout=SMALL, key_goal=True)
    first = world.initial_state()
    rows = [first.tolist()]
    rows += [rows[0][:4] + words for words in ([1, 0, 0], [0, 1, 0], [0, 0, 1])]
    rows.append([3, 3, 5, 1, 1, 1, 1])
    plain = [world.render_svg(torch.tensor(row, dtype=torch.int16)) for row in rows]
    assert len(set(plain)) == len(rows)
    actions = [len(agent.actions) for agent in world.spec.agents]
    overlays = [Overlay(actions={2: action}) for action in range(actions[2])]
    overlays += [Overlay(policies={2: [1 / actions[2]] * actions[2]})]
    overlays += [Overlay(policies={agent: [0.2] * 5}) for agent in (0, 1)]
    overlays += [Overlay(goal_values=[g / 18 for g in range(18)], pursued={0: 8, 1: 9})]
    drawn = [world.render_svg(first, overlay) for overlay in overlays]
    assert len(set(drawn)) == len(overlays)
    assert ".44" in set(ElementTree.fromstring(drawn[-1]).itertext())
    freeze = world_of()
    walks = [Overlay(actions={2: action}) for action in range(6)]
    assert len({freeze.render_svg(freeze.initial_state(), walk) for walk in walks}) == 6


def test_a_page_gets_glyphs_of_boxes_and_agents() -> None:
    world = world_of(layout=SMALL, key_goal=True)
    assert isinstance(world, Sketchable)
    sketch = world.sketch(torch.tensor([[0, 7, 5, 1, 0, 1, 0], [3, 3, 5, 1, 1, 1, 1]]))
    names = [name for name, _ in sketch.glyphs]
    assert [[names[glyph] for glyph in row] for row in sketch.agents] == [
        ["user", "bystander, has the key", "assistant"],
        [
            "user, has the key, beside the other",
            "bystander, has the key, frozen for 1, beside the other",
            "assistant",
        ],
    ]
    assert sketch.places.tolist() == [[0, 7, 5], [3, 3, 5]]
    assert [names[glyph] for glyph in sketch.things[0]].index("box") == 1
    # Where goals are drawn: the cells of the user, its key, and the same of the bystander.
    assert sketch.goals.argmax(1).tolist() == [*range(8), 2] * 2
    assert sketch.goals.sum() == 18


def test_a_state_is_described_as_a_board() -> None:
    world = world_of(layout=SMALL)
    assert world.describe(torch.tensor([3, 3, 5, 1, 0, 1, 1], dtype=torch.int16)).split("\n") == [
        ". 1 . B",
        ". A . .",
        "user and bystander are at (3,0)",
        "bystander has the key",
        "bystander is frozen for 1 steps",
    ]


@pytest.mark.parametrize(
    "row",
    [
        [8, 7, 5, 1, 0, 0, 0],
        [1, 7, 5, 1, 0, 0, 0],
        [5, 7, 5, 1, 0, 0, 0],
        [0, 0, 5, 1, 0, 0, 0],
        [0, 7, 1, 1, 0, 0, 0],
        [0, 7, 5, 1, 2, 0, 0],
        [0, 7, 5, 1, 0, 0, 2],
    ],
    ids=str,
)
def test_rows_that_are_no_states_are_refused(row: list[int]) -> None:
    with pytest.raises(WorldError, match="row 0"):
        world_of(layout=SMALL).achieved(torch.tensor([row]))


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({"layout": "elsewhere"}, "params.layout"),
        ({"layout": "push_pull", "variation": 110}, "params.variation"),
        ({"layout": "move_any", "variation": 0}, "params.variation"),
        ({"layout": SMALL, "variation": 12}, "params.variation"),
        ({"layout": "move_any", "key_goal": True}, "params.key_goal"),
        ({"layout": "move_any", "file": __file__}, "params.layout"),
        ({"file": "nowhere.yaml"}, "params.file"),
        ({"layout": SMALL | {"helper_pos": []}}, "params.layout"),
        ({"layout": SMALL | {"box_pos": [[0, 0]]}}, "params.layout"),
        ({"layout": SMALL | {"box_pos": [[2, 0]]}}, "params.layout"),
        ({"layout": SMALL | {"wall_pos": [[0, 2]]}}, "params.layout"),
        ({"layout": SMALL | {"agent_pos": [[0, 0]]}}, "params.layout.agent_pos"),
        ({"layout": SMALL | {"colour": "red"}}, "params.layout.colour"),
        ({"layout": SMALL | {"assistant": "non-embodied", "helper_pos": []}}, "params.layout"),
    ],
    ids=str,
)
def test_every_mistake_has_a_place(params: dict[str, Any], place: str) -> None:
    document = parse_yaml(f"name: disempower\nparams: {json.dumps(params)}\n", name="world.yaml")
    with pytest.raises(ConfigError) as caught:
        validate_document(WorldModelRef, document)
    (line,) = str(caught.value).splitlines()[:1]
    assert line.startswith("world.yaml:2:")
    assert f" {place}" in line


def test_configs_choose_the_world() -> None:
    components = {(component.kind, component.name): component for component in empo_components()}
    chosen = WorldModelRef.model_validate({"name": "disempower", "params": {"layout": "push_pull"}})
    world = components["world_model", "disempower"].load()(chosen.params)
    assert world.spec.horizon == 50
    assert [len(agent.actions) for agent in world.spec.agents] == [5, 5, 13]
    assert world.spec.agents[0].actions[0] == "stay"
