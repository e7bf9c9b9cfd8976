"""Params of kitchens and their human; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from empo_core import Config
from empo_core.config import HumanPriorRef

COOKS = "12"
"""Signs of the robot and the human in maps."""
TILES = " XODPS"
"""Signs of floor, counters, onions, dishes, pots and windows in maps."""


class OvercookedParams(Config):
    """The kitchen, and how it is made smaller where it is to be solved exactly."""

    layout: Literal["cramped_room", "coordination_ring"] | list[str] = Field(
        "cramped_room",
        description="Name of a kitchen, or a map: 'X' counter, 'O' onions, 'D' dishes, 'P' pot, "
        "'S' window where soups are served, ' ' floor, '1' the robot, '2' the human.",
    )
    onions: int = Field(3, ge=1, le=3, description="Onions of a soup that counts.")
    cook_time: int = Field(20, ge=1, le=100, description="Steps for which soups cook.")
    counter_items: int | None = Field(
        None, ge=0, description="Most things on all counters together; null: one on each."
    )
    soups: int = Field(3, ge=1, le=100, description="Served soups are counted up to this many.")
    max_steps: int | None = Field(
        400, ge=1, description="Steps after which an episode ends; null: it never does."
    )

    @field_validator("layout")
    @classmethod
    def _is_a_kitchen(cls, layout: str | list[str]) -> str | list[str]:
        if isinstance(layout, list):
            _check_map(layout)
        return layout


class KitchenPlannerParams(Config):
    """Humans of a kitchen who know what to do next for what they want."""

    noise: float = Field(
        0.1, ge=0, le=1, description="Probability of choosing evenly among all actions instead."
    )


class KitchenParams(Config):
    """Who learns in copies of the run's kitchen, and what is paid."""

    learners: Literal["both", "robot"] = Field(
        "both", description="Cooks that learn; where only the robot does, human_prior is the other."
    )
    human_prior: HumanPriorRef | None = Field(
        None, description="Human prior while only the robot learns, e.g. kitchen-planner."
    )
    goal: str = Field(
        "soup 1 served", description="Goal that the human pursues while only the robot learns."
    )
    shaping: float = Field(
        1.0,
        ge=0,
        description="Factor of what the game pays on the way: 3 for an onion in a pot, 3 for a "
        "dish that is of use, 5 for a soup taken. A served soup pays 20.",
    )

    @model_validator(mode="after")
    def _knows_the_human(self) -> KitchenParams:
        if (self.learners == "both") != (self.human_prior is None):
            raise ValueError("human_prior belongs to learners 'robot': give both, or neither")
        return self


def _check_map(lines: list[str]) -> None:
    """Raise a ValueError where a map is no kitchen."""
    if len({len(line) for line in lines}) != 1 or len(lines) < 3 or len(lines[0]) < 3:
        raise ValueError("a map has at least 3 rows and columns, and rows of equal length")
    if len(lines) * len(lines[0]) > 100:
        raise ValueError("a map has at most 100 cells")
    edge = lines[0] + lines[-1] + "".join(line[0] + line[-1] for line in lines)
    for y, line in enumerate(lines):
        for x, sign in enumerate(line):
            if sign not in TILES + COOKS:
                raise ValueError(f"({x},{y}) is {sign!r}; a map is made of {TILES + COOKS!r}")
    if set(edge) & set(" " + COOKS):
        raise ValueError("the edge of a map has no floor and no cooks")
    signs = "".join(lines)
    for cook in COOKS:
        if signs.count(cook) != 1:
            raise ValueError(f"a map shows {cook!r} once; this has it {signs.count(cook)} times")
