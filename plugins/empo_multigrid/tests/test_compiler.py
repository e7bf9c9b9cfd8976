"""Compilation of each part of a world file into the layout, the spec and the initial row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.errors import ConfigError
from empo_multigrid.file.mapcodes import all_codes
from empo_multigrid.layout import (
    ACTION_SETS,
    AGENT_WORDS,
    ANY_SIDE,
    BALL,
    BLOCK,
    BLUE,
    BOX,
    BROWN,
    BUSH,
    COLOURS,
    CONTROL_BUTTON,
    DISABLING_SWITCH,
    DOOR,
    DOOR_CLOSED,
    DOOR_LOCKED,
    DOOR_OPEN,
    EAST,
    EMPTY,
    FLAGS,
    FLOOR,
    GOAL_SQUARE,
    GREEN,
    GREY,
    KEY,
    KILL_BUTTON,
    LAVA,
    MAGIC_WALL,
    NORTH,
    NOTHING,
    PAUSE_SWITCH,
    PAUSED,
    PURPLE,
    RED,
    ROCK,
    SOUTH,
    SWITCH,
    UNSTEADY,
    WALL,
    WEST,
    YELLOW,
)
from empo_multigrid.show.text import describe
from empo_multigrid.world import MultigridWorld, world_from_dict, world_from_text

LETTERS = {"r": RED, "g": GREEN, "b": BLUE, "p": PURPLE, "y": YELLOW, "e": GREY}


def with_code(code: str) -> MultigridWorld:
    return world_from_dict({"map": [f"Ay{code}"]})


@pytest.mark.parametrize(
    ("code", "kind"),
    [("..", EMPTY), ("La", LAVA), ("Un", UNSTEADY), ("Sw", SWITCH)],
)
def test_plain_terrain(code: str, kind: int) -> None:
    layout = with_code(code).layout
    assert layout.terrain.tolist() == [EMPTY, kind]
    assert layout.stumble.tolist() == [0, 0.5 * (kind == UNSTEADY)]
    assert layout.fixed_at.tolist() == [NOTHING, NOTHING]
    assert layout.state_words == AGENT_WORDS


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize(("first", "kind"), [("W", WALL), ("G", GOAL_SQUARE), ("F", FLOOR)])
def test_coloured_terrain(first: str, kind: int, letter: str) -> None:
    layout = with_code(first + letter).layout
    assert layout.terrain.tolist() == [EMPTY, kind]
    assert layout.terrain_colour[1] == LETTERS[letter]


@pytest.mark.parametrize(
    ("code", "kind", "colour"),
    [
        ("Bl", BLOCK, BROWN),
        ("Ro", ROCK, GREY),
        ("Kr", KEY, RED),
        ("KB", KEY, BLUE),
        ("Bb", BALL, BLUE),
        ("Be", BALL, GREY),
        ("Xp", BOX, PURPLE),
    ],
)
def test_items(code: str, kind: int, colour: int) -> None:
    world = with_code(code)
    layout = world.layout
    assert layout.item_kind.tolist() == [kind]
    assert layout.item_colour.tolist() == [colour]
    assert layout.item_content_kind.tolist() == [NOTHING]
    assert layout.item_content_colour.tolist() == [NOTHING]
    assert world.initial_state().tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize(
    ("first", "word"), [("L", DOOR_LOCKED), ("C", DOOR_CLOSED), ("O", DOOR_OPEN)]
)
def test_doors(first: str, word: int, letter: str) -> None:
    world = with_code(first + letter)
    assert world.layout.fixed_kind.tolist() == [DOOR]
    assert world.layout.fixed_colour.tolist() == [LETTERS[letter]]
    assert world.initial_state().tolist()[-1] == word


@pytest.mark.parametrize(
    ("code", "side"), [("Mn", NORTH), ("Ms", SOUTH), ("Mw", WEST), ("Me", EAST), ("Ma", ANY_SIDE)]
)
def test_magic_walls(code: str, side: int) -> None:
    world = with_code(code)
    assert world.layout.fixed_kind.tolist() == [MAGIC_WALL]
    assert world.layout.fixed_side.tolist() == [side]
    assert world.layout.fixed_enter.tolist() == [0.5]
    assert world.layout.fixed_solidify.tolist() == [0.1]
    assert world.initial_state().tolist()[-1] == 1


@pytest.mark.parametrize(
    ("codes", "kind", "colour", "target", "word"),
    [
        (["Kb", "Ki"], KILL_BUTTON, YELLOW, GREY, 1),
        (["Ps", "Pa"], PAUSE_SWITCH, YELLOW, GREY, 2),
        (["CB"], CONTROL_BUTTON, YELLOW, GREY, 1),
        (["Dk", "dK"], DISABLING_SWITCH, GREY, KILL_BUTTON, None),
        (["Dp", "dP"], DISABLING_SWITCH, GREY, PAUSE_SWITCH, None),
        (["DC", "dC"], DISABLING_SWITCH, GREY, CONTROL_BUTTON, None),
        (["Bu"], BUSH, NOTHING, NOTHING, 0),
    ],
)
def test_buttons_switches_and_bushes(
    codes: list[str], kind: int, colour: int, target: int, word: int | None
) -> None:
    for code in codes:
        world = with_code(code)
        layout = world.layout
        assert layout.fixed_kind.tolist() == [kind]
        assert layout.fixed_colour.tolist() == [colour]
        assert layout.fixed_target.tolist() == [target]
        assert layout.fixed_word.tolist() == [NOTHING if word is None else AGENT_WORDS]
        assert world.initial_state().tolist()[4:] == ([] if word is None else [word])


def test_text_shows_every_code_as_the_map_wrote_it() -> None:
    same = {"Ki": "Kb", "Pa": "Ps", "dK": "Dk", "dP": "Dp", "dC": "DC"}
    for code in all_codes():
        if code[0] == "A":
            continue
        world = with_code(code)
        shown = describe(world.layout, world.spec, world.initial_state().numpy())
        assert shown.split()[1] == same.get(code, code)


SHOWN_AS_WRITTEN = [c for c in all_codes() if c not in ("Ki", "Pa", "dK", "dP", "dC")]


@given(
    rows=st.integers(1, 5).flatmap(
        lambda width: st.lists(
            st.lists(st.sampled_from(SHOWN_AS_WRITTEN), min_size=width, max_size=width),
            min_size=1,
            max_size=5,
        )
    ),
    spaced=st.booleans(),
)
@settings(max_examples=60)
def test_text_of_the_initial_state_is_the_map(rows: list[list[str]], spaced: bool) -> None:
    rows[0][0] = "Ay"
    text = "\n".join((" " if spaced else "").join(row) for row in rows)
    world = world_from_dict({"map": text})
    shown = describe(world.layout, world.spec, world.initial_state().numpy()).splitlines()
    agents = iter("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    expected = [[">" + next(agents) if c[0] == "A" else c for c in row] for row in rows]
    assert [line.upper().split() for line in shown[: len(rows)]] == [
        [code.upper() for code in row] for row in expected
    ]
    words = world.layout.fixed_word[world.layout.fixed_word >= 0].tolist()
    assert words == list(range(world.spec.state_words - len(words), world.spec.state_words))


def test_words_of_fixed_objects_follow_reading_order_and_skip_disabling_switches() -> None:
    layout = world_from_dict({"map": ["Cr Dk Bu", "Ay Kb Lg", "Ro .. .."]}).layout
    assert layout.fixed_cell.tolist() == [0, 1, 2, 4, 5]
    assert layout.fixed_word.tolist() == [5, NOTHING, 6, 7, 8]
    assert layout.fixed_at.tolist() == [0, 1, 2, NOTHING, 3, 4, *[NOTHING] * 3]
    assert layout.state_words == 9


def test_items_that_cannot_be_told_apart_form_sorted_groups() -> None:
    world = world_from_dict(
        {
            "map": ["Ro Xr Kr Xr", "Bl Ro Xr Kg", "Ay Kr Xr Bl"],
            "objects": {"1,0": {"contains": "Kr"}, "2,2": {"contains": "Kr"}},
        }
    )
    layout = world.layout
    things = list(
        zip(
            layout.item_kind.tolist(),
            layout.item_colour.tolist(),
            layout.item_content_kind.tolist(),
            layout.item_content_colour.tolist(),
            strict=True,
        )
    )
    groups = layout.item_group.tolist()
    for i, one in enumerate(things):
        for j, other in enumerate(things):
            assert (groups[i] == groups[j]) == (one == other)
    assert groups == sorted(groups)
    places = world.initial_state().tolist()[AGENT_WORDS:]
    assert list(zip(groups, places, strict=True)) == sorted(zip(groups, places, strict=True))
    assert [thing for thing in things if thing[0] == BOX].count((BOX, RED, KEY, RED)) == 2


@pytest.mark.parametrize(
    ("codes", "chosen"),
    [
        (["..", "Bl", "Ro", "Bu", "La", "Sw", "Un", "Ma", "Kb", "Gg", "Fr"], "SmallActions"),
        (
            ["Kr", "Bg", "Xr", "Lr", "Cr", "Or", "Ps", "Dk", "Dp", "DC", "CB"],
            "ObjectActions",
        ),
    ],
)
def test_the_map_chooses_the_actions(codes: list[str], chosen: str) -> None:
    for code in codes:
        assert tuple(with_code(code).layout.actions) == ACTION_SETS[chosen]


@pytest.mark.parametrize("name", ACTION_SETS)
def test_the_file_can_name_the_actions(name: str) -> None:
    layout = world_from_dict({"map": ["Ay Kr"], "action_class": name}).layout
    assert tuple(layout.actions) == ACTION_SETS[name]


def test_agents_are_numbered_in_reading_order_and_colour_decides_what_they_are() -> None:
    world = world_from_dict({"map": ["Ar Ay", "Ae Ap"], "orientations": ["s", 3, "w"]})
    assert [agent.role for agent in world.spec.agents] == ["other", "human", "robot", "other"]
    assert [agent.name for agent in world.spec.agents] == [
        "agent 0 (red)",
        "human 1 (yellow)",
        "robot 2 (grey)",
        "agent 3 (purple)",
    ]
    layout = world.layout
    assert [COLOURS[c] for c in layout.agent_colour] == ["red", "yellow", "grey", "purple"]
    assert layout.can_push_rocks.tolist() == [False, False, True, False]
    assert not layout.can_enter_magic.any()
    assert layout.tramples.tolist() == [False, False, True, False]
    assert world.initial_state().tolist()[1::4] == [SOUTH, NORTH, WEST, SOUTH]


def test_settings_of_agents_override_their_colour() -> None:
    world = world_from_dict(
        {
            "map": ["Ay Ay Ae Ae Ay"],
            "agents": {
                "0": {"can_push_rocks": True, "name": "Ada"},
                "1": {"can_enter_magic_walls": True, "role": "robot"},
                "2": {"can_push_rocks": False, "role": "human"},
            },
        }
    )
    assert [agent.role for agent in world.spec.agents] == [
        "human", "robot", "human", "robot", "human",
    ]  # fmt: skip
    assert world.spec.agents[0].name == "Ada"
    assert world.layout.can_push_rocks.tolist() == [True, False, False, True, False]
    assert world.layout.can_enter_magic.tolist() == [False, True, False, False, False]
    assert world.layout.tramples.tolist() == [True, True, True, True, False]


def test_lists_of_humans_and_robots_replace_those_by_colour() -> None:
    world = world_from_dict({"map": ["Ay Ae Ar Ay"], "humans": [2], "robots": [0]})
    assert [agent.role for agent in world.spec.agents] == ["robot", "other", "human", "other"]


def test_settings_of_objects_reach_the_layout() -> None:
    world = world_from_dict(
        {
            "map": ["Ay Un Un Mn Mn", "Ae Bu Bu Xr Kb", "Ps Dk CB Un Bu"],
            "stumble_probability": 0.3,
            "solidify_probability": 0.2,
            "enter_bush_success_prob": 0.6,
            "objects": {
                "1,0": {"stumble_probability": 0.1},
                "3,0": {"enter_probability": 0.9, "solidify_probability": 0, "active": False},
                "1,1": {"enter_probability": 0.25},
                "3,1": {"contains": "Bp"},
                "4,1": {"trigger_colour": "red", "target_colour": "blue", "enabled": False},
                "0,2": {"trigger_colour": "green", "is_on": True},
                "1,2": {"trigger_colour": "purple"},
                "2,2": {"programmed_agent": 1, "programmed_action": "toggle"},
            },
        }
    )
    layout = world.layout
    assert layout.stumble.tolist() == [0, 0.1, 0.3, *[0] * 10, 0.3, 0]
    assert layout.fixed_enter.tolist() == [0.9, 0.5, 0.25, 0.6, 0, 0, 0, 0, 0.6]
    assert layout.fixed_solidify.tolist() == [0, 0.2, *[0] * 7]
    assert layout.fixed_colour.tolist()[4:8] == [RED, GREEN, PURPLE, YELLOW]
    assert layout.fixed_target.tolist()[4:8] == [BLUE, GREY, KILL_BUTTON, GREY]
    assert layout.item_content_kind.tolist() == [BALL]
    assert layout.item_content_colour.tolist() == [PURPLE]
    row = world.initial_state().tolist()
    assert row[FLAGS : 2 * AGENT_WORDS : AGENT_WORDS] == [0, PAUSED]
    toggle = world.spec.agents[0].actions.index("toggle")
    button = 1 | (1 + 1) << 2 | (toggle + 1) << 8
    assert row[2 * AGENT_WORDS + 1 :] == [0, 1, 0, 0, 0, 3, button, 0]


def test_goals_take_every_spelling_and_are_named_by_their_cells() -> None:
    world = world_from_text(
        """
map: ["Ay .. ..", ".. .. .."]
possible_goals:
  - "1,0"
  - 0, 1
  - "1,0,2,1"
  - " 2 , 1 , 1 , 0 "
  - [2, 0]
  - [0, 0, 1, 1]
  - [[0, 0], [0, 1]]
  - {cells: ["0,0", "2,0, 2,1"]}
  - {cells: [2, 1], weight: 3, name: corner}
  - "1,0"
"""
    )
    assert [goal.name for goal in world.spec.goals] == [
        "(1,0)",
        "(0,1)",
        "(1,0)-(2,1)",
        "(1,0)-(2,1) #2",
        "(2,0)",
        "(0,0)-(1,1)",
        "(0,0)-(0,1)",
        "(0,0)+(2,0)-(2,1)",
        "corner",
        "(1,0) #2",
    ]
    assert [goal.weight for goal in world.spec.goals] == [*[0.1] * 8, 3, 0.1]
    cells = [np.flatnonzero(row).tolist() for row in world.layout.goal_cells]
    assert cells[:5] == [[1], [3], [1, 2, 4, 5], [1, 2, 4, 5], [2]]
    assert cells[5:] == [[0, 1, 3, 4], [0, 3], [0, 2, 5], [5], [1]]


def test_humans_have_the_common_goals_unless_they_have_their_own() -> None:
    world = world_from_text(
        """
map: ["Ay Ae Ay"]
possible_goals: ["0,0, 1,0", "2,0"]
goals: {2: ["0,0", "1,0", {cells: "2,0", weight: 0.5}]}
"""
    )
    found = [(goal.human, goal.name, goal.weight) for goal in world.spec.goals]
    third = 1 / 3
    assert found == [
        (0, "(0,0)-(1,0)", 0.5),
        (0, "(2,0)", 0.5),
        (2, "(0,0)", third),
        (2, "(1,0)", third),
        (2, "(2,0)", 0.5),
    ]
    assert world.layout.goal_human.tolist() == [0, 0, 2, 2, 2]


def test_goals_need_not_cover_what_nobody_can_walk_on_nor_lie_where_one_can() -> None:
    data = {
        "map": ["Ay We La Ma Bu Kb Ps Dk CB"],
        "possible_goals": ["0,0", "1,0"],
    }
    assert len(world_from_dict(data).spec.goals) == 2


@pytest.mark.parametrize("code", ["..", "Un", "Sw", "Gr", "Fr", "Ro", "Bl", "Kr", "Xr", "Lr", "Or"])
def test_goals_must_cover_what_can_be_walked_on(code: str) -> None:
    data = {"map": ["Ay", code], "possible_goals": ["0,0"]}
    with pytest.raises(ValueError, match="possible_goals:"):
        world_from_dict(data)
    assert world_from_dict({**data, "goal_coverage": "partial"}).spec.goals


def test_every_humans_goals_must_cover_and_humans_without_goals_are_told() -> None:
    data = {"map": ["Ay Ay"], "goals": {"0": ["0,0, 1,0"]}}
    with pytest.raises(ValueError, match=r"goals: .*agent 1"):
        world_from_dict(data)
    data = {**data, "possible_goals": ["0,0"]}
    with pytest.raises(ValueError, match="possible_goals:"):
        world_from_dict(data)


def test_worlds_without_goals_or_humans_load() -> None:
    assert world_from_dict({"map": ["Ay .."]}).spec.goals == ()
    assert world_from_dict({"map": ["Ar .."], "possible_goals": ["0,0"]}).spec.goals == ()


def test_action_rules_add_up() -> None:
    world = world_from_text(
        """
map: ["Ay Ae Ae", "Ar .. .."]
action_rules:
  - {agents: humans, cells: "0,0, 0,1", forbid: [left]}
  - {agents: [1], cells: ["2,0", "2,1"], forbid: [still, right]}
  - {agents: red, forbid: [forward]}
  - {agents: all, cells: [1, 1], forbid: [still]}
"""
    )
    forbidden = {tuple(map(int, index)) for index in np.argwhere(~world.layout.action_mask)}
    expected = {(0, 0, 1), (0, 3, 1)}
    expected |= {(1, 2, 0), (1, 2, 2), (1, 5, 0), (1, 5, 2)}
    expected |= {(3, cell, 3) for cell in range(6)}
    expected |= {(agent, 4, 0) for agent in range(4)}
    assert forbidden == expected


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ('{"1,0": {contains: Zz}}', r"objects\.'?1,0'?\.contains: 'Zz'"),
        ('{"1,0": {contains: Ro}}', "'Ro'"),
        ('{"1,0": {contains: Kb}}', "'Kb'"),
        ('{"1,0": {is_on: true}}', r"box in \(1,0\)"),
        ('{"2,0": {is_on: true, enabled: false}}', "disabled"),
        ('{"3,0": {programmed_agent: 0}}', "programmed_agent and programmed_action"),
        (
            '{"3,0": {programmed_agent: 9, programmed_action: left}}',
            r"objects\.'?3,0'?\.programmed_agent: .*agent 9",
        ),
        (
            '{"3,0": {programmed_agent: 0, programmed_action: build}}',
            "'build' .*pickup",
        ),
        (
            '{"3,0": {programmed_agent: 0, programmed_action: still}}',
            "'still'",
        ),
        ('{"4,0": {enabled: true}}', r"objects\.'?4,0'?: \(4,0\) .*4 x 1"),
    ],
)
def test_settings_that_do_not_fit_their_object_are_refused(objects: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        world_from_text(f"map: [Ay Xr Ps CB]\nobjects: {objects}")


def test_the_title_is_the_metadatas_name_fit_for_a_terminal() -> None:
    text = 'map: [Ay]\nmetadata: {name: "A \\e[31m\\n  title"}'
    assert world_from_text(text).spec.name == "A [31m title"
    assert world_from_text("map: [Ay]", name="folder/my_world.yaml").spec.name == "my_world"
    assert world_from_text("map: [Ay]\nmetadata: {name: 3}", name="w.yaml").spec.name == "w"


def test_max_steps_and_simultaneity_can_be_set_from_outside() -> None:
    world = world_from_text("map: [Ay]", max_steps=3, simultaneity="reference")
    assert world.spec.horizon == 3
    assert world.layout.reference
    assert not world_from_text("map: [Ay]").layout.reference
    assert world_from_text("map: [Ay]").spec.horizon == 100


def test_a_horizon_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_steps"):
        world_from_text("map: [Ay]", max_steps=0)
