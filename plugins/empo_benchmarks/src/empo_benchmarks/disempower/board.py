"""Boards: cells without the walls, what the words of a row are, names of actions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int16

from empo_benchmarks.disempower.params import Layout
from empo_worlds.grid.world import neighbours

DIRECTIONS = ("right", "down", "left", "up")
"""In the order of the benchmark."""
MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""Change of (x, y) in each direction."""
PULLS = (2, 3, 0, 1)
"""Direction of each action that pulls: left, up, right, down."""
HUMAN_ACTIONS = ("stay", *DIRECTIONS)
"""Action 0 is to stay, action 1 + d to go in direction d. In achieved goals humans stay."""
HUMANS = 2
USER, BYSTANDER, ASSISTANT = range(3)
"""Agents, and their words in a row."""
FREEZE_STEPS = {"non-embodied": 4, "embodied": 2}
"""Steps for which the bystander stays where it is frozen."""


class Rules(NamedTuple):
    """What compiled rules read.

    Attributes:
        neighbour: The next cell in each direction; -1 where that is a wall or off the board.
        is_barred: Cells that no box may enter.
        is_trap: Cells that humans never leave.
        key: The cell of each human's key; -1: there is none.
        shared_goal: The cell on which both humans may stand; -1: there is none.
        boxes: Number of boxes.
        first_box: Word of the first box.
        key_word: Word that says whether the user has its key; that of the bystander follows.
        timer_word: Word of the steps for which the bystander is still frozen.
        is_embodied: The assistant is on a cell.
        has_pull: It can pull.
        freeze_steps: Steps for which the bystander is frozen by the last action; 0: there is none.
    """

    neighbour: Int16[np.ndarray, "cell direction"]
    is_barred: Bool[np.ndarray, " cell"]
    is_trap: Bool[np.ndarray, " cell"]
    key: Int16[np.ndarray, " human"]
    shared_goal: int
    boxes: int
    first_box: int
    key_word: int
    timer_word: int
    is_embodied: bool
    has_pull: bool
    freeze_steps: int


@dataclass(frozen=True)
class Board:
    """The constants of a world.

    Cells are those without a wall, numbered row by row from the top left.

    Attributes:
        layout: Size, and what is where at the start.
    """

    layout: Layout

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """Column and row of each cell."""
        walls = {tuple(wall) for wall in self.layout.wall_pos}
        return [
            (x, y)
            for y in range(self.layout.height)
            for x in range(self.layout.width)
            if (y, x) not in walls
        ]

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.places)

    @property
    def is_embodied(self) -> bool:
        """The assistant is on a cell."""
        return self.layout.assistant == "embodied"

    @property
    def boxes(self) -> int:
        """Number of boxes."""
        return len(self.layout.box_pos)

    @property
    def first_box(self) -> int:
        """Word of the first box."""
        return HUMANS + self.is_embodied

    @property
    def has_keys(self) -> bool:
        """There are keys to be found."""
        return bool(self.layout.key_pos)

    @property
    def key_word(self) -> int:
        """Word that says whether the user has its key, where there are keys."""
        return self.first_box + self.boxes

    @property
    def timer_word(self) -> int:
        """Word of the freeze timer, where the assistant can freeze."""
        return self.key_word + HUMANS * self.has_keys

    @property
    def words(self) -> int:
        """Length of a row."""
        return self.timer_word + self.layout.freeze

    @property
    def freeze_steps(self) -> int:
        """Steps for which the bystander is frozen at once; 0: never."""
        return FREEZE_STEPS[self.layout.assistant] if self.layout.freeze else 0

    @property
    def view_words(self) -> int:
        """Length of what an agent sees: a number per cell and kind of thing, keys and timer."""
        return (self.first_box + 1) * self.cells + sum(self.values[self.key_word :])

    @cached_property
    def values(self) -> tuple[int, ...]:
        """How many values each word has."""
        keys, timer = (2,) * (HUMANS * self.has_keys), (self.freeze_steps,) * self.layout.freeze
        return (self.cells,) * self.key_word + keys + timer

    @cached_property
    def assistant_actions(self) -> tuple[str, ...]:
        """Names of the assistant's actions; the first is to do nothing."""
        if self.is_embodied:
            names = [f"go {d}" for d in DIRECTIONS] + [f"push {d}" for d in DIRECTIONS]
            names += [f"pull {DIRECTIONS[d]}" for d in PULLS] * self.layout.pull
        else:
            names = [f"box {box + 1} {d}" for box in range(self.boxes) for d in DIRECTIONS]
        return ("nothing", *names, *["freeze bystander"] * self.layout.freeze)

    def cell(self, position: list[int]) -> int:
        """The number of the cell at ``[row, column]``; -1 for a wall."""
        place = (position[1], position[0])
        return self.places.index(place) if place in self.places else -1

    def cell_name(self, cell: int) -> str:
        """Such as ``(0,2)``: column, row."""
        x, y = self.places[cell]
        return f"({x},{y})"

    @cached_property
    def grid_cell(self) -> Int16[np.ndarray, " cell"]:
        """The number of each cell among all, walls included."""
        return np.array([y * self.layout.width + x for x, y in self.places], np.int16)

    def start_row(self) -> list[int]:
        """The words of the start."""
        layout = self.layout
        agents = [self.cell(position) for position in (*layout.agent_pos, *layout.helper_pos)]
        boxes = sorted(map(self.cell, layout.box_pos))
        return [*agents, *boxes] + [0] * (self.words - self.key_word)

    @cached_property
    def rules(self) -> Rules:
        """The tables and numbers that compiled rules read."""
        layout = self.layout
        number = np.full(layout.width * layout.height + 1, -1, np.int16)
        number[self.grid_cell] = np.arange(self.cells)
        # The last entry, -1, is what lies off the board.
        neighbour = number[neighbours(layout.width, layout.height, MOVES)][self.grid_cell]
        goals = [self.cell(goal) for goal in layout.goal_pos]
        keys = [self.cell(key) for key in layout.key_pos]
        barred = [] if layout.boxes_can_cover_goal else goals
        cells = np.arange(self.cells)
        return Rules(
            neighbour=neighbour,
            is_barred=np.isin(cells, barred),
            is_trap=np.isin(cells, [self.cell(trap) for trap in layout.trap_pos]),
            key=np.array([keys[0], keys[-1]] if keys else [-1, -1], np.int16),
            shared_goal=goals[0] if len(goals) == 1 else -1,
            boxes=self.boxes,
            first_box=self.first_box,
            key_word=self.key_word,
            timer_word=self.timer_word,
            is_embodied=self.is_embodied,
            has_pull=layout.pull,
            freeze_steps=self.freeze_steps,
        )
