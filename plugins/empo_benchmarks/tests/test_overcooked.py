"""The overcooked world: kits, rules by hand, smaller kitchens, goals, pictures, mistakes."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from package import random_row

from empo_benchmarks.overcooked.kitchen import ACTIONS, DISH, NOTHING, ONION
from empo_benchmarks.overcooked.params import TILES, OvercookedParams
from empo_benchmarks.overcooked.world import OvercookedWorld, load_world
from empo_benchmarks.plugin import empo_components
from empo_core.config import WorldModelRef
from empo_core.config.files import parse_yaml, validate_document
from empo_core.errors import ConfigError, WorldError
from empo_core.protocols import WorldModel
from empo_core.types import Overlay
from empo_testing.world_model import WorldModelTests
from empo_theory.inspection import Sketchable

CORRIDOR = ["XXPXX", "O1 2O", "XDXSX"]
"""The cooks cannot pass each other: the robot, at the dishes, has to hand them over."""


def world_of(**params: Any) -> OvercookedWorld:
    return load_world(OvercookedParams.model_validate(params))


def played(world: OvercookedWorld, *turns: str, start: list[int] | None = None) -> list[int]:
    """The state after some turns, each ``robot action, human action``."""
    state = (
        world.initial_state()[None] if start is None else torch.tensor([start], dtype=torch.int16)
    )
    for turn in turns:
        actions = [[ACTIONS.index(action) for action in turn.split(", ")]]
        state = world.step(state, torch.tensor(actions), torch.Generator())
    row: list[int] = state[0].tolist()
    return row


def names_of(world: OvercookedWorld) -> list[str]:
    """Names of all goals."""
    return [goal.name for goal in world.spec.goals]


def goals_at(world: OvercookedWorld, row: list[int]) -> set[str]:
    """Names of the goals that a state achieves."""
    is_achieved = world.achieved(torch.tensor([row]))[0].tolist()
    return {goal.name for goal, here in zip(world.spec.goals, is_achieved, strict=True) if here}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"layout": "coordination_ring", "soups": 1},
        {"layout": CORRIDOR, "cook_time": 3, "counter_items": 1, "onions": 1, "max_steps": 10},
    ],
    ids=["cramped_room", "coordination_ring", "corridor"],
)
class TestOvercooked(WorldModelTests):
    @pytest.fixture
    def world(self, params: dict[str, Any]) -> WorldModel:
        return world_of(**params)

    @pytest.fixture
    def states(self, world: OvercookedWorld) -> torch.Tensor:
        rng, most = np.random.default_rng(1), world.kitchen.counter_items
        some = [random_row(world.kitchen, rng) for _ in range(40)]
        counters = slice(world.kitchen.first_counter, world.kitchen.first_pot)
        fit = [row for row in some if np.count_nonzero(row[counters]) <= most]
        rows = torch.tensor([world.kitchen.start(), *fit[:12]], dtype=torch.int16)
        return torch.unique(rows, dim=0)


def test_two_cooks_make_a_soup_by_hand() -> None:
    world = world_of(layout=CORRIDOR, onions=2, cook_time=3)
    row = played(
        world,
        "west, east", "interact, interact",  # Both take an onion.
        "east, stay", "north, stay", "interact, stay",
        "west, west", "stay, north", "stay, interact",  # The pot has both onions.
    )  # fmt: skip
    pot = world.kitchen.first_pot
    assert row[pot : pot + 2] == [2, 0]
    assert goals_at(world, row) == {"2 in a pot", "at a pot"}
    row = played(world, "south, interact", "interact, stay", start=row)
    assert row[pot : pot + 2] == [2, 2]
    assert row[2] == DISH
    row = played(world, "stay, east", "east, stay", "north, south", start=row)
    assert goals_at(world, row) == {"2 in a pot", "a soup is ready", "at the window"}
    row = played(world, "interact, stay", "south, stay", "interact, west", start=row)
    assert row[pot : pot + 2] == [0, 0]
    row = played(world, "west, west", "stay, south", "stay, interact", start=row)
    assert goals_at(world, row) == {"hold a soup of 2"}
    row = played(world, "stay, east", "stay, south", "stay, interact", start=row)
    assert goals_at(world, row) == {"soup 1 served", "at the window"}
    assert row[-1] == 1


@pytest.mark.parametrize("turn", ["east, west", "east, stay", "stay, west"])
def test_cooks_turn_but_do_not_walk_where_they_would_meet(turn: str) -> None:
    world = world_of(layout=["XXXX", "X12X", "XXXX"])
    row = played(world, turn)
    robot, human = turn.split(", ")
    assert row[:6] == [0, 2 * (robot == "east"), 0, 1, 3 * (human == "west"), 0]


def test_soups_of_too_few_onions_are_cooked_and_served_but_do_not_count() -> None:
    world = world_of(layout=CORRIDOR, onions=2, cook_time=1)
    start = world.kitchen.start()
    start[3:6] = [2, 1, DISH + 1]
    row = played(world, "stay, interact", start=start)
    assert row[5] == NOTHING
    assert row[-1] == 0
    start[5] = DISH + 2
    assert played(world, "stay, interact", start=start)[-1] == 1


def test_served_soups_are_counted_up_to_a_limit() -> None:
    world = world_of(layout=CORRIDOR, soups=2)
    for served, after in ((0, 1), (1, 2), (2, 2)):
        start = world.kitchen.start()
        start[3:6], start[-1] = [2, 1, DISH + 3], served
        assert played(world, "stay, interact", start=start)[-1] == after


def test_counters_of_a_smaller_kitchen_bear_no_more_than_they_may() -> None:
    world = world_of(layout=CORRIDOR, counter_items=1)
    start = world.kitchen.start()
    start[2] = start[5] = ONION
    row = played(world, "interact, stay", "stay, interact", start=start)
    assert [row[2], row[5]] == [NOTHING, ONION]
    row = played(world, "interact, stay", "north, interact", start=row)
    assert [row[2], row[5]] == [ONION, NOTHING]
    with pytest.raises(WorldError, match="at most 1"):
        world.achieved(torch.tensor([[*row[:6], ONION, ONION, *row[8:]]]))


def test_soups_cook_for_as_long_as_it_says() -> None:
    world = world_of(layout=CORRIDOR, cook_time=5)
    start, pot = world.kitchen.start(), world.kitchen.first_pot
    start[0], start[pot] = 1, 3
    cooked = [
        played(world, "interact, stay", *["stay, stay"] * n, start=start)[pot + 1] for n in range(7)
    ]
    assert cooked == [1, 2, 3, 4, 5, 5, 5]


def test_networks_see_a_one_for_the_value_of_each_word() -> None:
    world = world_of(layout=CORRIDOR, onions=1, cook_time=2, soups=1)
    states = torch.stack([world.initial_state(), torch.tensor(played(world, "west, east"))])
    found = world.spec.featurizer(states.short()).flat()
    words = found[:, : sum(world.kitchen.values)]
    assert found.shape == (2, world.spec.featurizer.shape.flat)
    assert (words.sum(1) == world.spec.state_words).all()
    assert words[0, : 3 + 4 + 4].tolist() == [1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]
    assert words[1, : 3 + 4 + 4].tolist() == [1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0]
    with pytest.raises(WorldError, match=r"shape \[state, 12\]"):
        world.spec.featurizer(states[:, :2])


def test_networks_see_what_follows_from_several_words() -> None:
    """The human of the corridor cannot reach the dishes, where the robot stands."""
    world = world_of(layout=CORRIDOR, onions=2, cook_time=2)
    row, kitchen = world.kitchen.start(), world.kitchen
    row[1] = ACTIONS.index("south") - 1
    row[kitchen.first_counter : kitchen.first_counter + 2] = [ONION, DISH]
    row[kitchen.first_pot : kitchen.first_pot + 2] = [2, 2]
    found = world.spec.featurizer(torch.tensor([row], dtype=torch.int16)).flat()[0].tolist()
    rest = found[sum(kitchen.values) :]
    both, rest = rest[:9], rest[9:]
    assert both == [0, 0, 1, 0, 0, 0, 0, 0, 0]
    tiles, contents, stations = 6, 5 + 6, 5
    sizes = [tiles, contents, stations] * 2
    parts = torch.tensor(rest[: sum(sizes)]).split(sizes)
    assert parts[0].nonzero().tolist() == [[TILES.index("D")]]
    assert parts[1].nonzero().tolist() == [[NOTHING]]
    assert parts[2].tolist() == pytest.approx([1, 1, 1, 0.9, 0])
    assert parts[3].nonzero().tolist() == [[TILES.index("X")]]
    assert parts[4].nonzero().tolist() == [[DISH]]
    assert parts[5].tolist() == pytest.approx([1, 1, 0, 0.9, 1])
    stages, lying = rest[sum(sizes) : -4], rest[-4:]
    assert stages == [0, 0, 0, 0, 1, 0], "a soup that counts is ready"
    assert lying == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("pot", "stage"),
    [([0, 0], 0), ([2, 0], 2), ([1, 1], 3), ([2, 2], 4), ([1, 2], 5)],
)
def test_networks_see_what_is_in_the_pot_that_a_cook_faces(pot: list[int], stage: int) -> None:
    world = world_of(layout=CORRIDOR, onions=2, cook_time=2)
    row, kitchen = world.kitchen.start(), world.kitchen
    row[0], row[3] = 1, 2
    row[kitchen.first_pot : kitchen.first_pot + 2] = pot
    found = world.spec.featurizer(torch.tensor([row], dtype=torch.int16)).flat()[0]
    first = sum(kitchen.values) + 9 + 6
    assert found[first : first + 11].nonzero().tolist() == [[5 + stage]]


def test_each_cook_sees_itself_first() -> None:
    world = world_of(layout=CORRIDOR, max_steps=None)
    assert world.spec.horizon is None
    views = world.views(torch.tensor([played(world, "west, east", "interact, stay")]))
    cook = 3 + 4 + 6
    assert views.shape == (1, 2, sum(world.kitchen.values))
    assert (views[0, 0, :cook] == views[0, 1, cook : 2 * cook]).all()
    assert (views[0, 1, :cook] == views[0, 0, cook : 2 * cook]).all()
    assert (views[0, 0, 2 * cook :] == views[0, 1, 2 * cook :]).all()
    assert views[0, 0, 3 + 4 + ONION] == 1


def test_descriptions_tell_everything() -> None:
    world = world_of(layout=CORRIDOR)
    row = played(world, "west, stay", "interact, stay", "north, west", "interact, stay")
    assert world.positions(torch.tensor([row])).tolist() == [[[1, 1], [2, 1]]]
    assert world.describe(torch.tensor(row)).splitlines() == [
        "robot at (1,1) faces north, holds nothing",
        "human at (2,1) faces west, holds nothing",
        "counter (1,0): an onion",
        "pot (2,0): onions 0, cooked 0/20",
        "soups served: 0",
    ]


def test_a_page_gets_glyphs_of_cooks_things_and_pots() -> None:
    world = world_of(layout=CORRIDOR)
    assert isinstance(world, Sketchable)
    row = played(world, "west, stay", "interact, stay", "north, west", "interact, stay")
    found = world.sketch(torch.tensor([world.kitchen.start(), row]))
    names = [name for name, _ in found.glyphs]
    assert [names[glyph] for glyph in found.ground[:3]] == ["counter", "counter", "stove"]
    assert [names[glyph] for glyph in found.things[1, 1:3]] == [
        "an onion", "pot: onions 0, cooked 0/20",
    ]  # fmt: skip
    assert [[names[glyph] for glyph in each] for each in found.agents] == [
        ["robot, faces north", "human, faces north"],
        ["robot, faces north", "human, faces west"],
    ]
    assert found.places.tolist() == [[6, 8], [6, 7]]
    assert found.headings.tolist() == [[3, 3], [3, 2]]
    assert np.flatnonzero(found.goals[names_of(world).index("at the window")]).tolist() == [13]
    assert all(picture.startswith("<svg") for name, picture in found.glyphs if name)


def test_pictures_show_everything_that_differs() -> None:
    world = world_of(layout=CORRIDOR)
    rng = np.random.default_rng(0)
    states = torch.tensor([random_row(world.kitchen, rng) for _ in range(20)])
    drawn = [world.render_svg(state) for state in states]
    assert len(set(drawn)) == len(torch.unique(states, dim=0))
    assert world.render(states[0]).shape == (288, 480, 3)
    first, even = world.initial_state(), [1 / len(ACTIONS)] * len(ACTIONS)
    values = [0.05 * goal for goal in range(len(world.spec.goals))]
    overlays = [
        Overlay(policies={0: even}),
        Overlay(policies={1: even}),
        Overlay(actions={0: ACTIONS.index("interact"), 1: 2}),
        Overlay(goal_values=values, pursued={1: 3}),
    ]
    drawn = [world.render_svg(first, overlay) for overlay in overlays]
    assert len(set(drawn)) == len(overlays)
    assert {".50", ".55", ".60", ".65", "D: 1 in a pot (pursued)"} <= set(
        ElementTree.fromstring(drawn[-1]).itertext()
    )


@pytest.mark.parametrize(
    ("word", "value"),
    [(0, 3), (0, 2), (1, 4), (2, 6), (6, -1), (-2, 1), (-1, 4)],
    ids=["no place", "both in one place", "no direction", "no item", "less than nothing",
         "cooks without onions", "too many soups"],
)  # fmt: skip
def test_rows_that_are_no_states_are_refused(word: int, value: int) -> None:
    world = world_of(layout=CORRIDOR)
    row = world.initial_state()
    row[word] = value
    with pytest.raises(WorldError, match=r"row 1, .*3 onions"):
        world.achieved(torch.stack([world.initial_state(), row]))


@pytest.mark.parametrize(
    ("params", "place", "reason"),
    [
        ("{layout: big}", "params.layout", "cramped_room"),
        ("{layout: [XXX, X1X]}", "params.layout", "at least 3 rows and columns"),
        ("{layout: [XXXX, X1X, XXX]}", "params.layout", "rows of equal length"),
        ("{layout: [XXXX, X12X, X XX]}", "params.layout", "edge of a map has no floor"),
        ("{layout: [XXXX, X1TX, XXXX]}", "params.layout", "(2,1) is 'T'"),
        ("{layout: [XXXX, X11X, XXXX]}", "params.layout", "shows '1' once; this has it 2 times"),
        ("{onions: 4}", "params.onions", "less than or equal to 3"),
        ("{cook_time: 0}", "params.cook_time", "greater than or equal to 1"),
        ("{soups: 0}", "params.soups", "greater than or equal to 1"),
    ],
)
def test_every_mistake_has_a_place(params: str, place: str, reason: str) -> None:
    document = parse_yaml(f"name: overcooked\nparams: {params}\n", name="world.yaml")
    with pytest.raises(ConfigError) as caught:
        validate_document(WorldModelRef, document)
    line = str(caught.value).splitlines()[0]
    assert line.startswith("world.yaml:2:")
    assert f" {place}" in line
    assert reason in line


def test_configs_choose_the_world() -> None:
    components = {(component.kind, component.name): component for component in empo_components()}
    chosen = WorldModelRef.model_validate({"name": "overcooked", "params": {"onions": 1}})
    world = components["world_model", "overcooked"].load()(chosen.params)
    assert len(world.spec.goals) == 3 + 1 + 1 + 3 + 4
