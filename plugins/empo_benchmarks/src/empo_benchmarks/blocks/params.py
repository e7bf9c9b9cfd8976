"""Params of the blocks world and its human."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from empo_core import Config

MAX_SIZE = 32
"""A state of a fully loaded board then has some 50 MB of successors."""
Cell = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class ExplicitStart(Config):
    """Cells ``[x, y]``, counted from the top left."""

    human: Cell = Field(description="Cell [x, y] of the human.")
    boxes: list[Cell] = Field(description="Cell [x, y] of each box.")


class BlocksParams(Config):
    """Size of the board, and how an episode starts."""

    size: int = Field(5, ge=2, le=MAX_SIZE, description="Rows and columns of the board.")
    boxes: int = Field(2, ge=1, description="Number of boxes.")
    start: Literal["corner", "corner_hard", "center", "random"] | ExplicitStart = Field(
        "corner",
        description="corner: the human in a corner, boxes on the two cells next to it; "
        "corner_hard: boxes two cells away along both edges; center: the human in the middle, "
        "boxes right, below, left, above; random: anywhere; or cells. Further boxes: anywhere.",
    )
    corner: int = Field(
        0, ge=0, le=3, description="0 top left, 1 top right, 2 bottom left, 3 bottom right."
    )
    extra_seed: int = Field(0, ge=0, description="Seed of what the start leaves to chance.")
    max_steps: int = Field(50, ge=1, description="Steps after which an episode ends.")
    robot_actions: Literal["effective", "cells"] = Field(
        "effective",
        description="effective: still, and four directions per box; cells: five directions per "
        "cell of the board, most without effect, as baselines have them.",
    )

    @field_validator("boxes")
    @classmethod
    def _boxes_fit(cls, boxes: int, info: ValidationInfo) -> int:
        size = info.data.get("size", MAX_SIZE)
        if boxes > size**2 - 1:
            raise ValueError(
                f"a board of {size} x {size} cells has room for {size**2 - 1} boxes and the human"
            )
        return boxes

    @field_validator("start")
    @classmethod
    def _start_fits(cls, start: str | ExplicitStart, info: ValidationInfo) -> str | ExplicitStart:
        if not {"size", "boxes"} <= info.data.keys():
            return start  # They have been refused.
        size, boxes = info.data["size"], info.data["boxes"]
        if isinstance(start, ExplicitStart):
            _check_cells(start, size, boxes)
        elif start in ("corner_hard", "center") and size < 3:
            raise ValueError(f"{start} needs a board of at least 3 x 3 cells; size is {size}")
        return start

    @field_validator("corner")
    @classmethod
    def _corner_matters(cls, corner: int, info: ValidationInfo) -> int:
        start = info.data.get("start", "corner")
        if start not in ("corner", "corner_hard"):
            raise ValueError("has no effect unless start is corner or corner_hard; leave it out")
        return corner


class GreedyDistanceParams(Config):
    """Humans that go where they are nearest to their goal after one step."""

    noise: float = Field(
        0.2, ge=0, le=1, description="Probability of choosing evenly among all actions instead."
    )
    stay_bonus: float = Field(
        0.1, ge=0, description="Cells by which staying counts as nearer to the goal than it is."
    )
    ties: Literal["first", "even"] = Field(
        "first",
        description="first: of equally good actions the first of left, down, right, up, stay; "
        "even: all of them alike.",
    )


class SoftmaxDistanceParams(Config):
    """Humans that walk to their goal around boxes as these stand, with noise."""

    beta: float = Field(
        2.0,
        ge=0,
        description="Inverse temperature per step: of two actions, one after which the goal is a "
        "step nearer is exp(beta) times as likely.",
    )


class GoalInferenceParams(Config):
    """How a robot that infers the human's goal looks ahead."""

    discount: float = Field(
        0.95, ge=0, lt=1, description="Discount per step of the steps that the human is in a goal."
    )


def _check_cells(start: ExplicitStart, size: int, boxes: int) -> None:
    """Raise a ValueError where the cells of a start are no state."""
    if len(start.boxes) != boxes:
        raise ValueError(f"has cells of {len(start.boxes)} boxes; boxes is {boxes}")
    for name, cell in (("human", start.human), *(("boxes", cell) for cell in start.boxes)):
        if max(cell) >= size:
            raise ValueError(f"{name}: {cell} is outside of the board of {size} x {size} cells")
    if start.human in start.boxes:
        raise ValueError(f"boxes: {start.human} is the human's cell; boxes start beside it")
    twice = [cell for i, cell in enumerate(start.boxes) if cell in start.boxes[:i]]
    if twice:
        raise ValueError(f"boxes: {twice[0]} is listed twice")
