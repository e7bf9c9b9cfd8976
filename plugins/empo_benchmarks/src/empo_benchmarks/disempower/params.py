"""Layouts and params of the world; imported to list plugins, so it must not import torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from empo_core import Config

FILE = Path(__file__).with_name("layouts.json")
"""Positions and parameters of the published layouts, with their licence."""
VARIATIONS = 110
MAX_SIZE = 32
Cell = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class Layout(Config):
    """A board with whatever is on it. Cells are ``[row, column]``, row 0 at the top."""

    title: str = Field("a layout", description="Title of the world.")
    height: int = Field(ge=1, le=MAX_SIZE, description="Rows of the board.")
    width: int = Field(ge=1, le=MAX_SIZE, description="Columns of the board.")
    agent_pos: list[Cell] = Field(
        min_length=2, max_length=2, description="Cells of the user and of the bystander."
    )
    box_pos: list[Cell] = Field(description="Cells of the boxes.")
    wall_pos: list[Cell] = Field(default_factory=list, description="Cells of the walls.")
    trap_pos: list[Cell] = Field(
        default_factory=list, description="Cells that humans never leave again."
    )
    goal_pos: list[Cell] = Field(
        min_length=1,
        max_length=2,
        description="The true goal of both humans, on which both may stand; or that of the user "
        "and that of the bystander. The world has no reward: they matter to boxes and to sharing.",
    )
    key_pos: list[Cell] = Field(
        default_factory=list,
        max_length=2,
        description="The key of both humans, or that of each; needs an embodied assistant.",
    )
    assistant: Literal["embodied", "non-embodied"] = Field(
        description="embodied: on a cell, pushes boxes; non-embodied: nowhere, moves any box."
    )
    helper_pos: list[Cell] = Field(
        default_factory=list, max_length=1, description="Cell of an embodied assistant."
    )
    pull: bool = Field(False, description="An embodied assistant can pull boxes, too.")
    freeze: bool = Field(False, description="The assistant can freeze the bystander.")
    boxes_can_cover_goal: bool = Field(False, description="Boxes may enter goal cells.")
    max_steps: int = Field(50, ge=1, description="Steps after which an episode ends.")

    @model_validator(mode="after")
    def _is_a_board(self) -> Layout:
        if problem := next(self._problems(), None):
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        is_embodied = self.assistant == "embodied"
        if len(self.helper_pos) != is_embodied:
            count = "one cell" if is_embodied else "no cell"
            yield f"helper_pos: an assistant that is {self.assistant} has {count}"
        for key, value in (("pull", self.pull), ("key_pos", self.key_pos)):
            if value and not is_embodied:
                yield f"{key} needs an embodied assistant; leave it out"
        solid = ("wall_pos", "agent_pos", "box_pos", "helper_pos")
        places: dict[tuple[int, ...], str] = {}
        for key in (*solid, "trap_pos", "goal_pos", "key_pos"):
            for cell in getattr(self, key):
                place = tuple(cell)
                if place[0] >= self.height or place[1] >= self.width:
                    yield (
                        f"{key}: {cell} is outside of the board of {self.height} rows and "
                        f"{self.width} columns"
                    )
                if key in solid and place in places:
                    yield f"{key}: {cell} is in {places[place]}, too"
                if key in ("goal_pos", "key_pos") and places.get(place) == "wall_pos":
                    yield f"{key}: {cell} is a wall"
                if key in solid:
                    places[place] = key


class DisempowerParams(Config):
    """The layout, and what counts as a goal of a human."""

    layout: Literal["push_pull", "push_only", "move_any", "move_any_freeze"] | Layout = Field(
        "move_any_freeze",
        description="A published layout, or one of your own: rows and columns, cells of humans, "
        "boxes, walls, goals.",
    )
    variation: int | None = Field(
        None,
        ge=0,
        lt=VARIATIONS,
        description="Published variation of push_pull or push_only: cells of key and goal. null "
        "means the usual ones, which are those of number 89.",
    )
    key_goal: bool = Field(
        False, description="To have the key is a goal of each human, of the weight of a cell."
    )
    max_steps: int | None = Field(
        None, ge=1, description="Steps after which an episode ends; null means the layout's, 50."
    )

    @field_validator("variation")
    @classmethod
    def _varies(cls, variation: int | None, info: ValidationInfo) -> int | None:
        layout = info.data.get("layout", "push_pull")  # A wrong layout has been refused.
        names = data()["variations_of"]
        if variation is not None and layout not in names:
            raise ValueError(
                f"only {' and '.join(names)} have variations; leave it out, or write key_pos and "
                "goal_pos into the layout"
            )
        return variation

    @field_validator("key_goal")
    @classmethod
    def _has_a_key(cls, key_goal: bool, info: ValidationInfo) -> bool:
        if key_goal and {"layout", "variation"} <= info.data.keys():
            layout = info.data["layout"]
            layout = published(layout) if isinstance(layout, str) else layout
            if not layout.key_pos:
                raise ValueError("the layout has no key_pos; leave key_goal out")
        return key_goal

    @property
    def board(self) -> Layout:
        """The layout that is meant."""
        if isinstance(self.layout, str):
            return published(self.layout, self.variation)
        return self.layout


@cache
def data() -> dict[str, Any]:
    """The contents of the file of layouts."""
    loaded: dict[str, Any] = json.loads(FILE.read_text())
    return loaded


def published(name: str, variation: int | None = None) -> Layout:
    """A published layout, with the key and the goal of a variation."""
    values = dict(data()["canonical"][name])
    if variation is not None:
        cells = data()["variations"][variation]
        values |= {"key_pos": [cells["key"]], "goal_pos": [cells["goal"]]}
    return Layout.model_validate(values)
