"""Accepted contents of world files, and error messages for all others."""

import json
import logging
import re
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from empo_core.errors import ConfigError
from empo_multigrid.file.worldfile import (
    ActionName,
    ActionRule,
    ActionSet,
    AgentSettings,
    GoalEntry,
    ObjectSettings,
    WorldFile,
)
from empo_multigrid.layout import ACTION_NAMES, ACTION_SETS
from empo_multigrid.plugin import MultigridParams
from empo_multigrid.world import MultigridWorld, load_world, world_from_dict, world_from_text

ROOM = """\
map: |
  We We We We We
  We Ay .. Ae We
  We We We We We
"""


def refusal(text: str) -> str:
    """The lines of the error that the text of a world file gets."""
    with pytest.raises(ConfigError) as caught:
        world_from_text(text)
    return str(caught.value)


def test_the_names_in_the_format_are_those_of_the_kernel() -> None:
    assert set(get_args(ActionSet)) == set(ACTION_SETS)
    assert get_args(ActionName) == ACTION_NAMES


def test_a_file_with_every_public_key_loads() -> None:
    world = world_from_text(
        """
metadata: {name: All keys, author: somebody, category: test, version: 2, tags: [a, b]}
map: |
  We We We We We
  We Ay Un Ae We
  We .. Bu .. We
  We .. .. .. We
  We We We We We
max_steps: 7
seed: 3
partial_obs: false
agent_view_size: 5
see_through_walls: true
orientations: [n, 2]
can_push_rocks: ey
grid_size: 5
width: 5
height: 5
stumble_probability: 0.25
solidify_probability: 0.2
enter_bush_success_prob: 0.75
action_class: Actions
rocks_can_kill: false
possible_goals: ["1,1, 3,3"]
"""
    )
    assert world.spec.name == "All keys"
    assert world.spec.horizon == 7
    assert world.spec.agents[0].actions[-1] == "done"
    assert world.layout.can_push_rocks.tolist() == [True, True]
    assert world.layout.stumble[7] == 0.25
    assert world.layout.fixed_enter.tolist() == [0.75]
    assert world.initial_state().tolist() == [6, 3, 0, 0, 8, 2, 0, 0, 0]


def test_yaml_json_and_python_spell_one_world(tmp_path: Path) -> None:
    data = {
        "map": ["We We We We", "We Ay Ae We", "We We We We"],
        "goals": {0: ["1,1", [2, 1]]},
        "agents": {1: {"name": "Robo", "can_push_rocks": False}},
    }
    path = tmp_path / "world.json"
    path.write_text(json.dumps(data, indent="\t"))
    worlds = [world_from_dict(data), load_world(MultigridParams(file=path))]
    worlds.append(
        world_from_text(
            """
map:
  - [We, We, We, We]
  - [We, Ay, Ae, We]
  - [We, We, We, We]
goals: {0: ["1,1", [2, 1]]}
agents: {1: {name: Robo, can_push_rocks: false}}
"""
        )
    )
    assert len({tuple(world.initial_state().tolist()) for world in worlds}) == 1
    assert len({world.spec.goals for world in worlds}) == 1
    assert {world.spec.agents[1].name for world in worlds} == {"Robo"}
    assert worlds[1].spec.name == "world"


@pytest.mark.parametrize(
    "rows",
    [
        '"We We\\nAyWe"',
        '["W e We", "AyWe"]',
        "[[We, We], [Ay, We]]",
        '[["WeWe"], ["Ay", "We"]]',
        "|\n\n  We We\n\n  AyWe\n",
        "|2\n    We  We\n   Ay\tWe\n",
    ],
)
def test_spaces_and_blank_lines_in_a_map_do_not_matter(rows: str) -> None:
    layout = world_from_text(f"map: {rows}").layout
    assert (layout.width, layout.height) == (2, 2)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("map: |\n  We We\n  We Zz\n", "3:6", "row 1, column 1: 'Zz' is not a map code"),
        ("max_steps: 3\nmap: |\n\n   We We\n   WeWx\n", "5:6", "takes a colour letter"),
        ("map: |\n  We We\n  We ae\n", "3:6", "did you mean 'Ae'?"),
        ("map: |\n  We Ay\n  We M1\n", "3:6", "a magic wall is Mn, Ms, Mw, Me or Ma"),
        ("map: |\n  We Ay\n  We K\n", "3:6", "'K' is half a cell"),
        ("map: |\n  We Ay\n  We\n", "3:3", "row 1 has 1 cells, row 0 has 2"),
        ('map: "We Ay\\nWe Zz"', "1:17", "row 1, column 1: 'Zz'"),
        ('map:\n  - "We Ay"\n  - "We Zz"\n', "3:9", "row 1, column 1: 'Zz'"),
        ("map:\n  - [We, Ay]\n  - [We, Zz]\n", "3:10", "row 1, column 1: 'Zz'"),
        ("map: |\n  We Ay\n  We ??\n", "3:6", "'??' is not a map code; a map has"),
    ],
)
def test_a_wrong_cell_is_found_where_it_is(text: str, place: str, reason: str) -> None:
    first = refusal(text).splitlines()[0]
    assert first.startswith(f"world.yaml:{place}: map")
    assert reason in first


def test_all_wrong_cells_are_reported_up_to_twenty() -> None:
    lines = refusal("map: |\n  Zz Ay Yz\n").splitlines()
    assert [line.split(":")[2] for line in lines[:2]] == ["3", "9"]
    assert lines[2].startswith("2 errors")
    assert refusal("map: |\n  " + "Zz " * 99).splitlines()[-1].startswith("20 errors")


@pytest.mark.parametrize(
    ("extra", "place", "reason"),
    [
        ("max_step: 3", "5:1", "unknown key .*did you mean 'max_steps'"),
        ("max_steps: -5", "5:1", "greater than or equal to 1"),
        ("max_steps: ten", "5:1", "valid integer"),
        ("max_steps: 3\nmax_steps: 3", "6:1", "already given in line 5"),
        ("orientations: [up]", "5:16", "not a direction"),
        ("orientations: [4]", "5:16", "less than or equal to 3"),
        ("orientations: []", "5:1", "is empty"),
        ("can_push_rocks: grey", "5:1", "e for grey"),
        ("can_push_rocks: ex", "5:1", "'x' is not a colour letter"),
        ("stumble_probability: 1.5", "5:1", "less than or equal to 1"),
        ("stumble_probability: .nan", "5:1", "(finite|NaN|nan)"),
        ("grid_size: 5", "5:1", "is 5 but the map is 5 x 3"),
        ("width: 4", "5:1", "is 4 but the map is 5 x 3"),
        ("height: 4", "5:1", "is 4 but the map is 5 x 3"),
        ("action_class: ObjectAction", "5:1", "did you mean 'ObjectActions'"),
        ("humans: [7]", "5:10", "there is no agent 7; the map has agent 0 to 1"),
        ("humans: [0, 0]", "5:13", "already listed"),
        ("humans: [0]\nrobots: [0]", "6:1", "humans and robots disagree about agent 0"),
        ("robots: [1]\nagents: {1: {role: human}}", "6:14", "agents.1.role and robots disagree"),
        ("agents: {2: {}}", "5:10", "there is no agent 2"),
        ("agents: {x: {}}", "5:", "agents.x"),
        ("agents: {0: {name: robot 1 (grey)}}", "5:10", "another agent is called"),
        ('agents: {0: {name: "\\e[31m"}}', "5:14", "cannot be printed"),
        ('objects: {"9,9": {}}', "5:11", "outside the 5 x 3 map"),
        ('objects: {"here": {}}', "5:11", "not a cell; write the key as 'x,y'"),
        ('objects: {"1,1": {}, " 1 , 1": {}}', "5:22", "given twice"),
        ('objects: {"0,0": {enabled: true}}', "5:19", r"a wall in \(0,0\), which has no settings"),
        ("action_rules: [{forbid: []}]", "5:", "at least 1"),
        ("action_rules: [{forbid: [toggle]}]", "5:26", "'toggle' is no action of this world"),
        ("action_rules: [{agents: red, forbid: [still]}]", "5:16", "no agent is 'red'"),
        ("action_rules: [{agents: [3], forbid: [still]}]", "5:26", "there is no agent 3"),
        ('action_rules: [{cells: "7,7", forbid: [still]}]', "5:17", r"\(7,7\) is outside"),
        (
            "action_rules: [{forbid: [still, left]}, {forbid: [right, forward]}]",
            "5:41",
            r"leaves robot 1 \(grey\) no action in cell \(0,0\)",
        ),
        ('possible_goals: ["1"]', "5:18", "not a cell or rectangle; write 'x,y'"),
        ('possible_goals: ["1,1,1"]', "5:18", "not a cell or rectangle"),
        ("possible_goals: [[1, 1, 2]]", "5:18", "not a cell or rectangle"),
        ("possible_goals: [[[1, 1], [2]]]", "5:18", "not a cell or rectangle"),
        ("possible_goals: [[1, -1]]", "5:18", "not a cell or rectangle"),
        ("possible_goals: [[1, true]]", "5:18", "not a cell or rectangle"),
        ("possible_goals: [3]", "5:18", "not a cell or rectangle"),
        (
            'possible_goals: ["5,1"]',
            "5:18",
            r"\(5,1\) is outside the map, whose last cell is \(4,2\)",
        ),
        ('possible_goals: ["1,1"]', "5:1", r"no goal of agent 0 has the cells \(2,1\), \(3,1\)"),
        ('goals: {1: ["1,1"]}', "5:9", "agent 1 is no human"),
        ('goals: {5: ["1,1"]}', "5:9", "there is no agent 5"),
        (
            'possible_goals: [{cells: "1,1, 3,1", weight: 0}]',
            "5:1",
            "all weights are 0",
        ),
        ('possible_goals: [{cells: "1,1", weight: -1}]', "5:33", "greater than or equal to 0"),
        ('possible_goals: [{cells: "1,1", weight: .inf}]', "5:33", "finite"),
        (
            'possible_goals: [{cells: "1,1", name: a}, {cells: "2,1, 3,1", name: a}]',
            "5:63",
            "another goal is called 'a'",
        ),
        ('possible_goals: [{cell: "1,1"}]', "5:19", "did you mean 'cells'"),
    ],
)
def test_a_mistake_is_told_with_its_place(extra: str, place: str, reason: str) -> None:
    text = refusal(f"{ROOM}{extra}\n")
    assert re.search(reason, text), text
    assert any(line.startswith(f"world.yaml:{place}") for line in text.splitlines()), text


def test_a_file_without_agents_is_refused() -> None:
    assert "no agent" in refusal("map: |\n  .. ..\n")


def test_an_empty_map_is_refused() -> None:
    assert "is empty" in refusal('map: ""')
    assert "is empty" in refusal("map: []")
    assert "is empty" in refusal("map: [[], []]")


def test_a_world_too_large_for_its_rows_is_refused_with_the_limit() -> None:
    row = "Ay " + ".. " * 199
    rows = [row, *[".. " * 200] * 163]
    assert "32,800 cells; at most 32,767" in refusal(json.dumps({"map": rows}))
    assert world_from_dict({"map": rows[:163]}).layout.num_cells == 32600
    boxed = {"map": [*rows[:81], "Xr " * 200], "objects": {"0,81": {"contains": "Kr"}}}
    assert "boxes" in refusal(json.dumps(boxed))
    del boxed["objects"]
    assert world_from_dict(boxed).layout.num_items == 200


def test_more_agents_than_a_control_button_can_name_are_refused() -> None:
    assert "63 agents; at most 62" in refusal(json.dumps({"map": ["Ay" * 63]}))
    assert world_from_dict({"map": ["Ay" * 62]}).layout.num_agents == 62


def test_goals_that_would_need_too_much_memory_are_refused() -> None:
    rows = ["Ay" * 62 + ".." * 138, *[".." * 200] * 150]
    data = {"map": rows, "possible_goals": ["0,0, 199,150"] * 60}
    assert "30,200 cells" in refusal(json.dumps(data))


@pytest.mark.parametrize("extra", ["orientations: [e, e, e]", "rocks_can_kill: true"])
def test_what_existing_files_carry_without_effect_is_logged(
    extra: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="empo_multigrid"):
        world = world_from_text(f"{ROOM}{extra}\n")
    assert isinstance(world, MultigridWorld)
    (record,) = caplog.records
    assert record.getMessage().startswith("world.yaml:5:")


def test_python_data_that_json_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="plain data"):
        world_from_dict({"map": {"We", "Ay"}})
    with pytest.raises(ConfigError, match="plain data"):
        world_from_dict({"map": ["Ay"], "stumble_probability": float("nan")})


# Silent acceptance: every field of every model, each with each kind of mistake.

RICH: dict[str, Any] = {
    "metadata": {"name": "rich"},
    "map": ["We Ay Ae Xr", "We Un Mw Ki", "We Ps CB Bu", "We .. .. .."],
    "max_steps": 9,
    "seed": 1,
    "partial_obs": True,
    "agent_view_size": 3,
    "see_through_walls": False,
    "rocks_can_kill": False,
    "orientations": ["e", "w"],
    "can_push_rocks": "e",
    "grid_size": 4,
    "width": 4,
    "height": 4,
    "stumble_probability": 0.5,
    "solidify_probability": 0.5,
    "enter_bush_success_prob": 0.5,
    "action_class": "ObjectActions",
    "possible_goals": [{"cells": "0,0, 3,3", "weight": 1.0, "name": "all"}],
    "goals": {"0": [{"cells": "0,0, 3,3", "weight": 1.0, "name": "all"}]},
    "goal_coverage": "complete",
    "humans": [0],
    "robots": [1],
    "agents": {
        "0": {
            "name": "Ada",
            "role": "human",
            "can_push_rocks": True,
            "can_enter_magic_walls": True,
        }
    },
    "objects": {
        "1,1": {"stumble_probability": 0.5},
        "2,1": {"enter_probability": 0.5, "solidify_probability": 0.5, "active": True},
        "3,0": {"contains": "Kr"},
        "1,2": {"trigger_colour": "red", "target_colour": "red", "enabled": True, "is_on": True},
        "2,2": {"programmed_agent": 1, "programmed_action": "forward"},
    },
    "action_rules": [{"agents": "robots", "cells": "1,1", "forbid": ["still"]}],
}

MODELS: dict[tuple[str | int, ...], type[BaseModel]] = {
    (): WorldFile,
    ("possible_goals", 0): GoalEntry,
    ("agents", "0"): AgentSettings,
    **{("objects", key): ObjectSettings for key in RICH["objects"]},
    ("action_rules", 0): ActionRule,
}
FREE = {"metadata"}  # Its content is free; only its type is checked.


def fields() -> list[tuple[tuple[str | int, ...], str, FieldInfo]]:
    return [
        (path, name, model.model_fields[name])
        for path, model in MODELS.items()
        for name in child(RICH, path)
    ]


def child(data: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        data = data[part]
    return data


def leaves(annotation: Any) -> set[Any]:
    if get_origin(annotation) is Annotated:
        return leaves(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return set().union(*(leaves(part) for part in get_args(annotation)))
    return {get_origin(annotation) or annotation}


def bounds(annotation: Any, metadata: list[Any]) -> list[Any]:
    """One value outside each bound of a field, also of the members of a union."""
    wrong: list[Any] = []
    for item in metadata:
        for part in getattr(item, "metadata", [item]):
            if isinstance(part, annotated_types.Ge):
                wrong += [part.ge - 1, -(10**9)]
            if isinstance(part, annotated_types.Le):
                wrong += [part.le + 1, 10**12]
            if isinstance(part, annotated_types.MinLen):
                wrong.append([])
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        wrong += bounds(inner, more)
    elif get_origin(annotation) in (Union, types.UnionType):
        wrong += [w for part in get_args(annotation) for w in bounds(part, [])]
    return wrong


def wrong_values(field: FieldInfo) -> list[Any]:
    """Values of types that a field does not take, or outside its bounds."""
    kinds = leaves(field.annotation)
    wrong: list[Any] = []
    if bool not in kinds:
        wrong += [True]
    else:
        wrong += [1, "true"]
    if int not in kinds and float not in kinds:
        wrong += [3]
    if str in kinds or Literal in kinds:
        wrong += [{"a": 1}]
    else:
        wrong += ["what"]
    if float not in kinds:
        wrong += [1.5]
    if not kinds & {list, tuple}:
        wrong += [["what"]]
    if dict not in kinds:
        wrong += [{"what": 1}]
    wrong += [float("nan"), float("inf"), float("-inf")]
    return wrong + bounds(field.annotation, list(field.metadata))


def as_yaml(value: Any) -> str:
    """Flow YAML: JSON, with YAML's words for what JSON lacks."""
    text = json.dumps(value)
    for json_word, yaml_word in (("-Infinity", "-.inf"), ("Infinity", ".inf"), ("NaN", ".nan")):
        text = text.replace(json_word, yaml_word)
    return text


def changed(path: tuple[str | int, ...], name: str, value: Any) -> str:
    data = json.loads(json.dumps(RICH))
    child(data, path)[name] = value
    return as_yaml(data)


def test_the_rich_file_itself_is_fine_and_has_every_field() -> None:
    assert world_from_dict(RICH).spec.horizon == 9
    given: dict[type[BaseModel], set[str]] = {}
    for path, model in MODELS.items():
        given.setdefault(model, set()).update(child(RICH, path))
    assert all(names == set(model.model_fields) for model, names in given.items())


@pytest.mark.parametrize(("path", "name", "field"), fields())
def test_a_misspelt_key_is_refused_with_the_right_one(
    path: tuple[str | int, ...], name: str, field: FieldInfo
) -> None:
    data = json.loads(json.dumps(RICH))
    child(data, path)[f"{name}x"] = child(data, path).pop(name)
    text = refusal(as_yaml(data))
    assert f"{name}x: unknown key" in text
    assert f"{name!r}?" in text


@pytest.mark.parametrize(("path", "name", "field"), fields())
def test_a_wrong_value_is_refused_at_its_key(
    path: tuple[str | int, ...], name: str, field: FieldInfo
) -> None:
    for value in wrong_values(field):
        text = refusal(changed(path, name, value))
        key = ".".join(str(part) for part in (*path, name))
        # A key with a comma may be quoted.
        assert any(f": {key}" in line.replace("'", "") for line in text.splitlines()), (value, text)


@pytest.mark.parametrize(("path", "name", "field"), fields())
def test_a_duplicate_key_is_refused(
    path: tuple[str | int, ...], name: str, field: FieldInfo
) -> None:
    value = child(RICH, path)[name]
    once = f'"{name}": {json.dumps(value)}'
    text = changed(path, name, "MARK").replace(f'"{name}": "MARK"', f"{once}, {once}")
    assert f"key {name!r}" in refusal(text)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            'map: |\n  We Ay Ae\npossible_goals: ["0,0, 2,0", "0,0"]\n',
            "world.yaml:3:30: possible_goals.1: can never be reached: all of its cells are walls",
        ),
        ('map: |\n  We Ay\npossible_goals: ["1,0"]\n', "world.yaml:1:1: map: has no robot"),
        ("map: |\n  We Ae\n", "world.yaml:1:1: map: has no human"),
        ("map: |\n  We Ae Ay\nhumans: []\n", "world.yaml:3:1: humans: has no human"),
    ],
)
def test_what_is_most_likely_a_mistake_is_a_warning_with_its_place(
    text: str, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="empo_multigrid"):
        world_from_text(text)
    (record,) = caplog.records
    assert record.getMessage().startswith(warning)
