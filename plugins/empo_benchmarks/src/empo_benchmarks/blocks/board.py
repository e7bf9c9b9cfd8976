"""Boards: cells, moves, action names and start states."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Int16

from empo_benchmarks.blocks.params import BlocksParams, ExplicitStart
from empo_worlds.grid.world import neighbours

DIRECTIONS = ("left", "down", "right", "up", "stay")
"""In the order in which the benchmark's human prefers them."""
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1), (0, 0))
"""Change of (x, y) in each direction."""
STAY = 4
HUMAN_MOVES = (STAY, 0, 1, 2, 3)
"""Direction of each action of the human; in achieved goals humans take the first one."""


@dataclass(frozen=True)
class Board:
    """The constants of a world. Cells are numbered row by row from the top left.

    Attributes:
        size: Rows and columns.
        boxes: Number of boxes.
        robot_actions: ``still`` and four directions per box, or five directions per cell.
    """

    size: int
    boxes: int
    robot_actions: Literal["effective", "cells"] = "effective"

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.size**2

    @cached_property
    def neighbour(self) -> Int16[np.ndarray, "cell direction"]:
        """The next cell in each direction; -1 where that is off the board."""
        return neighbours(self.size, self.size, MOVES).astype(np.int16)

    @property
    def robot_action_names(self) -> tuple[str, ...]:
        """Names of the robot's actions."""
        if self.robot_actions == "effective":
            box_actions = [
                f"box {box + 1} {d}" for box in range(self.boxes) for d in DIRECTIONS[:STAY]
            ]
            return ("still", *box_actions)
        return tuple(
            f"{self.cell_name(cell)} {d}" for cell in range(self.cells) for d in DIRECTIONS
        )

    def robot_action(self, box: int, cell: int, direction: int) -> int:
        """The action that moves a box, given its number and its cell."""
        if self.robot_actions == "effective":
            return 1 + STAY * box + direction
        return len(DIRECTIONS) * cell + direction

    def place(self, cell: int) -> tuple[int, int]:
        """Column and row of a cell."""
        return cell % self.size, cell // self.size

    def cell_name(self, cell: int) -> str:
        """Such as ``(0,2)``: column, row."""
        x, y = self.place(cell)
        return f"({x},{y})"


def start_row(params: BlocksParams) -> list[int]:
    """Cell of the human, then of the boxes, ascending."""
    size, start = params.size, params.start
    if isinstance(start, ExplicitStart):
        human, *boxes = (y * size + x for x, y in (start.human, *start.boxes))
        return [human, *sorted(boxes)]
    rng = np.random.default_rng(params.extra_seed)
    last, middle = size - 1, size // 2
    x, y = int(rng.integers(size)), int(rng.integers(size))
    neighbours: list[tuple[int, int]] = []
    if start in ("corner", "corner_hard"):
        x, y = last * (params.corner % 2), last * (params.corner // 2)
        away = 1 if start == "corner" else 2
        neighbours = [(x - away if x else away, y), (x, y - away if y else away)]
    elif start == "center":
        x = y = middle
        neighbours = [(x + 1, y), (x, y + 1), (x - 1, y), (x, y - 1)]
    human, boxes = y * size + x, [row * size + column for column, row in neighbours[: params.boxes]]
    free = np.setdiff1d(np.arange(size**2), [human, *boxes])
    further = rng.choice(free, params.boxes - len(boxes), replace=False)
    return [human, *sorted([*boxes, *further.tolist()])]
