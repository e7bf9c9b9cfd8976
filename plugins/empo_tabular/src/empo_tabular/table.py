"""The file format of explicit games, as data."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue

from empo_core import Config
from empo_core.types import Role

ANY = "*"
"""Stands for every (non-terminal) state, or for every action of an agent."""


def _number(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        parts = re.fullmatch(r"\s*([0-9]{1,15})\s*/\s*([0-9]{1,15})\s*", value)
        if parts is None or int(parts[2]) == 0:
            raise ValueError("must be a number or a fraction such as 1/3")
        return int(parts[1]) / int(parts[2])
    if isinstance(value, int) and abs(value) > 10**15:
        raise ValueError("must be a number or a fraction such as 1/3; this one is too large")
    return value


def _one_or_more(value: JsonValue) -> JsonValue:
    return [value] if isinstance(value, str) else value


def _certain(value: JsonValue) -> JsonValue:
    return {value: 1} if isinstance(value, str) else value


Number = Annotated[float, BeforeValidator(_number, json_schema_input_type=float | str), Field(ge=0)]
Duration = Annotated[
    float, BeforeValidator(_number, json_schema_input_type=float | str), Field(gt=0)
]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[
    list[Name],
    BeforeValidator(_one_or_more, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
Lottery = Annotated[
    dict[Name, Number],
    BeforeValidator(_certain, json_schema_input_type=str | dict[str, float | str]),
    Field(min_length=1),
]


class TableAgent(Config):
    """One agent."""

    name: Name = Field(description="Its name, unique in the game.")
    role: Role = Field(
        description="Role: its power counts (human), it is controlled (robot), or neither."
    )
    actions: list[Name] = Field(min_length=1, description="Names of its actions, in order.")


class TableGoal(Config):
    """One hypothetical goal of a human: to reach any of some states."""

    name: Name = Field(description="Its name, unique among this human's goals.")
    states: Names = Field(description="The states in which it is achieved, or one of them.")
    weight: Number | None = Field(
        None, description="Its factor in the human's power; default: 1 / number of goals."
    )


class TableRule(Config):
    """Transition of some states under some joint actions."""

    state: Names = Field(
        description="The state or states; '*' is every state that is not terminal."
    )
    actions: list[Names] | None = Field(
        None,
        description="For each agent an action, a list of actions, or '*' for any; "
        "default: any actions of anybody.",
    )
    to: Lottery = Field(
        description="The next state, or the probability of each, e.g. {a: 1/3, b: 2/3}."
    )
    duration: Duration = Field(1.0, description="Duration of the transition.")


class TableSymmetry(Config):
    """A renaming that changes nothing about the game; what is not listed keeps its name."""

    name: Name = Field(description="What it does, for messages.")
    states: dict[Name, Name] = Field(
        default_factory=dict, description="The state that each state becomes."
    )
    agents: dict[Name, Name] = Field(
        default_factory=dict, description="The agent whose part each agent takes over."
    )
    actions: dict[Name, dict[Name, Name]] = Field(
        default_factory=dict,
        description="By agent, the action of the other that each of its actions becomes.",
    )
    goals: dict[Name, dict[Name, Name]] = Field(
        default_factory=dict,
        description="By human, the goal of the other that each of its goals becomes.",
    )


class Table(Config):
    """An explicit game."""

    name: Name = Field("table", description="Title of the game.")
    description: str = Field("", description="Description of the game.")
    agents: list[TableAgent] = Field(
        min_length=1, max_length=32, description="Everybody who acts, in order."
    )
    states: list[Name] = Field(min_length=1, description="The names of all states.")
    initial: Lottery = Field(
        description="The state that episodes start from, or the probability of each, "
        "e.g. {a: 1/3, b: 2/3}."
    )
    terminal: list[Name] = Field(
        default_factory=list, description="The states in which an episode ends."
    )
    transitions: list[TableRule] = Field(
        description="For each state and joint action the first rule that fits counts."
    )
    available: dict[Name, dict[Name, Names]] = Field(
        default_factory=dict,
        description="State, agent, actions: where an agent has only some of its actions. "
        "State '*' is every state that says nothing about the agent.",
    )
    goals: dict[Name, list[TableGoal]] = Field(
        default_factory=dict, description="The goals of each human."
    )
    symmetries: list[TableSymmetry] = Field(
        default_factory=list,
        description="Symmetries by which a solver may save states; others follow from them.",
    )
    horizon: int | None = Field(
        None,
        ge=1,
        description="Steps after which an episode ends; null where the game ends itself.",
    )
