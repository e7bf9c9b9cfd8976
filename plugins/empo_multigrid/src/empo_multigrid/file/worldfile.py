"""Schema of world files; ``docs/reference/world_format.md`` explains it.

The models check types, bounds and spelling. What depends on the map (is there a box in this
cell, is there an agent 3) is checked by ``compiler``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    PlainValidator,
    StringConstraints,
)

from empo_core import Config
from empo_core.config.files import read_yaml, validate_document
from empo_core.config.yaml import Document
from empo_core.types import Role
from empo_multigrid.file.mapcodes import COLOUR_LETTERS
from empo_multigrid.layout import EAST, NORTH, SOUTH, WEST
from empo_worlds.grid.maps import Rectangle, rectangle

MAX_NAME = 100
Colour = Literal["red", "green", "blue", "purple", "yellow", "grey"]
ActionSet = Literal["SmallActions", "ObjectActions", "Actions", "MinimalActions", "MineActions"]
ActionName = Literal[
    "still", "left", "right", "forward", "pickup", "drop", "toggle", "done", "build"
]
Probability = Annotated[float, Field(ge=0, le=1)]


def _area(value: JsonValue) -> tuple[Rectangle, ...]:
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return tuple(rectangle(part) for part in value)
    return (rectangle(value),)


Area = Annotated[
    tuple[Rectangle, ...],
    PlainValidator(_area, json_schema_input_type=str | list[str] | list[int] | list[list[int]]),
]
"""A cell, a rectangle, or a list of strings that are either."""


def _direction(value: JsonValue) -> JsonValue:
    letters = {"e": EAST, "s": SOUTH, "w": WEST, "n": NORTH}
    if isinstance(value, str):
        if value.lower() not in letters:
            raise ValueError("is not a direction; write e, s, w, n or 0, 1, 2, 3")
        return letters[value.lower()]
    return value


Direction = Annotated[
    int,
    Field(ge=0, le=3),
    BeforeValidator(_direction, json_schema_input_type=Literal["e", "s", "w", "n", 0, 1, 2, 3]),
]


def _index(value: JsonValue) -> JsonValue:
    # JSON has no number keys.
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,4}", value) else value


AgentIndex = Annotated[int, Field(ge=0)]
AgentKey = Annotated[int, Field(ge=0), BeforeValidator(_index, json_schema_input_type=int | str)]


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("has characters that cannot be printed; remove them")
    return value


Name = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_NAME), AfterValidator(_printable)
]


def _colour_letters(value: str) -> str:
    if value == "grey":  # Four letters, and surely not what was meant.
        raise ValueError("is a word; write letters: e for grey, ergy for those four colours")
    if unknown := sorted(set(value) - set(COLOUR_LETTERS)):
        raise ValueError(f"{unknown[0]!r} is not a colour letter; write some of rgbpye, or ''")
    return value


class GoalEntry(Config):
    """One hypothetical goal: to stand in one of some cells."""

    cells: Area = Field(description="A cell, a rectangle, or a list of them as strings.")
    weight: float | None = Field(
        None, ge=0, description="Factor in X_h; default 1 over the number of the human's goals."
    )
    name: Name | None = Field(None, description="Short name; default: its cells, e.g. (2,1).")


def _goal(value: JsonValue) -> JsonValue:
    return value if isinstance(value, dict) else {"cells": value}


GoalItem = Annotated[
    GoalEntry,
    BeforeValidator(_goal, json_schema_input_type=GoalEntry | str | list[int] | list[list[int]]),
]


class AgentSettings(Config):
    """Settings of one agent; those not given follow from its colour."""

    name: Name | None = Field(None, description="Name in reports.")
    role: Role | None = Field(None, description="Whether it is a human, a robot or neither.")
    can_push_rocks: bool | None = Field(None, description="Whether it can push rocks.")
    can_enter_magic_walls: bool = Field(False, description="Whether it can enter magic walls.")


class ObjectSettings(Config):
    """Settings of the object or ground in one cell; each key needs its object."""

    stumble_probability: Probability | None = Field(None, description="Unsteady ground.")
    enter_probability: Probability | None = Field(
        None, description="Magic wall or bush: chance that an attempt to enter succeeds."
    )
    solidify_probability: Probability | None = Field(
        None, description="Magic wall: chance that a failed attempt makes it solid."
    )
    active: bool | None = Field(None, description="Magic wall: false for a solid one.")
    contains: str | None = Field(None, description="Box: map code of the key or ball inside.")
    trigger_colour: Colour | None = Field(
        None, description="Button or switch: colour of the agents that can use it."
    )
    target_colour: Colour | None = Field(
        None, description="Kill or control button, pause switch: colour of whom it affects."
    )
    enabled: bool | None = Field(
        None, description="Kill or control button, pause switch: false if disabled."
    )
    is_on: bool | None = Field(None, description="Pause switch: true if its targets start paused.")
    programmed_agent: AgentIndex | None = Field(
        None, description="Control button: the agent it already controls."
    )
    programmed_action: ActionName | None = Field(
        None, description="Control button: the action it already makes that agent do."
    )


class ActionRule(Config):
    """Actions that some agents do not have while they stand in some cells."""

    agents: Literal["all", "humans", "robots"] | Colour | list[AgentIndex] = Field(
        "robots", description="Agents: all, humans, robots, a colour, or a list of agent indices."
    )
    cells: Area | None = Field(None, description="Cells; default: everywhere.")
    forbid: list[ActionName] = Field(min_length=1, description="Actions that they cannot do there.")


class UnusedKeys(Config):
    """Keys that existing EMPO files carry and that mean nothing to planning."""

    metadata: dict[str, Any] | None = Field(
        None, description="Name (the world's title), description, author and so on."
    )
    seed: int | None = Field(None, description="Not used by planning: runs have their own seed.")
    partial_obs: bool | None = Field(None, description="Not used by planning.")
    agent_view_size: int | None = Field(None, ge=1, description="Not used by planning.")
    see_through_walls: bool | None = Field(None, description="Not used by planning.")
    rocks_can_kill: bool | None = Field(
        None, description="Not used: rocks never kill, here as in the public implementation."
    )


class PublicKeys(UnusedKeys):
    """Keys of the public EMPO format that shape the world."""

    map: str | list[str] | list[list[str]] = Field(
        description="The grid: two characters per cell, a row per line."
    )
    max_steps: int = Field(100, ge=1, le=10**6, description="Steps after which an episode ends.")
    orientations: list[Direction] | None = Field(
        None, description="Directions that agents face: e, s, w, n or 0 to 3; repeated if too few."
    )
    can_push_rocks: Annotated[str, AfterValidator(_colour_letters)] = Field(
        "e", description="Letters of the colours whose agents can push rocks."
    )
    grid_size: int | None = Field(None, ge=1, description="Width and height; must fit the map.")
    width: int | None = Field(None, ge=1, description="Columns; must fit the map.")
    height: int | None = Field(None, ge=1, description="Rows; must fit the map.")
    stumble_probability: Probability = Field(
        0.5, description="Chance of stumbling when leaving unsteady ground forward."
    )
    solidify_probability: Probability = Field(
        0.1, description="Chance that a failed attempt makes a magic wall solid."
    )
    enter_bush_success_prob: Probability = Field(
        1.0, description="Chance that a human's attempt to enter a bush succeeds."
    )
    action_class: ActionSet | None = Field(
        None, description="Actions of agents; default: ObjectActions if the map needs them."
    )
    possible_goals: list[GoalItem] | None = Field(
        None, description="Goals of every human that has none of its own in 'goals'."
    )


class WorldFile(PublicKeys):
    """A world file: the public EMPO format and what goes beyond it."""

    goals: dict[AgentKey, list[GoalItem]] = Field(
        default_factory=dict, description="Goals of single humans, by agent index."
    )
    goal_coverage: Literal["complete", "partial"] = Field(
        "complete",
        description="Whether each human's goals must cover all cells that can be walked on, "
        "which keeps its power positive.",
    )
    humans: list[AgentIndex] | None = Field(
        None, description="Agents that are humans; default: the yellow ones."
    )
    robots: list[AgentIndex] | None = Field(
        None, description="Agents that are robots; default: the grey ones."
    )
    agents: dict[AgentKey, AgentSettings] = Field(
        default_factory=dict, description="Settings of single agents, by index."
    )
    objects: dict[str, ObjectSettings] = Field(
        default_factory=dict, description="Settings of single objects, by cell 'x,y'."
    )
    action_rules: list[ActionRule] = Field(
        default_factory=list, description="Actions that are missing in some cells."
    )


def cell_of_key(key: str) -> tuple[int, int] | None:
    """The cell that a key of ``objects`` names; None if it is none."""
    match = re.fullmatch(r"\s*(\d{1,6})\s*,\s*(\d{1,6})\s*", key, re.ASCII)
    return (int(match[1]), int(match[2])) if match else None


def schema_text() -> str:
    """The format as a JSON Schema for editors; ``world.schema.json`` holds it."""
    schema = WorldFile.model_json_schema() | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "EMPO multigrid world",
    }
    return json.dumps(schema, indent=1) + "\n"


def read_world_file(path: Path) -> tuple[WorldFile, Document]:
    """A world file and where everything in it was written.

    Raises:
        ConfigError: if the file cannot be read or is not a world file.
    """
    document = read_yaml(path)
    return validate_document(WorldFile, document), document
