"""Kitchens: maps, the words of a state, and the tables that compiled rules read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int16, Int64

from empo_benchmarks.overcooked.params import COOKS, TILES, OvercookedParams

ACTIONS = ("stay", "north", "south", "east", "west", "interact")
"""Of both cooks; in achieved goals humans take the first one."""
INTERACT = 5
MOVES = ((0, -1), (0, 1), (1, 0), (-1, 0))
"""Change of (x, y) in each direction: north, south, east, west."""
DIRECTIONS = ACTIONS[1:INTERACT]
"""Which cooks face."""
FLOOR, COUNTER, ONIONS, DISHES, POT, WINDOW = range(len(TILES))
"""Kinds of tiles."""
NOTHING, ONION, DISH = range(3)
"""What cooks hold and counters bear; a soup of n onions is ``DISH + n``."""
PLACE, FACING, HELD, COOK_WORDS = range(4)
"""Words of a cook; the robot's come first, then the human's."""
Table = Int16[np.ndarray, " cell"]
Moves = Int16[np.ndarray, "place direction"]
Rules = Int64[np.ndarray, " rule"]
Tables = tuple[Moves, Table, Table, Table, Rules]
FAR = 1000
"""More steps than any way has."""
LAYOUTS = {
    "cramped_room": ("XXPXX", "O  2O", "X1  X", "XDXSX"),
    "coordination_ring": ("XXXPX", "X 1 P", "D2X X", "O   X", "XOSXX"),
}


@dataclass(frozen=True)
class Kitchen:
    """The constants of a world.

    Attributes:
        lines: The map.
        onions: Onions of a soup that counts, the most that a pot takes.
        cook_time: Steps for which soups cook.
        counter_items: Most things on all counters together.
        soups: Served soups are counted up to this many.
    """

    lines: tuple[str, ...]
    onions: int
    cook_time: int
    counter_items: int
    soups: int

    @classmethod
    def of(cls, params: OvercookedParams) -> Kitchen:
        """The kitchen that the params describe."""
        named = params.layout
        lines = LAYOUTS[named] if isinstance(named, str) else tuple(named)
        max_items = params.counter_items
        items = len("".join(lines)) if max_items is None else max_items
        return cls(lines, params.onions, params.cook_time, items, params.soups)

    @property
    def width(self) -> int:
        """Columns of the map."""
        return len(self.lines[0])

    @cached_property
    def tile(self) -> Table:
        """The kind of each cell, row by row from the top left."""
        signs = "".join(" " if sign in COOKS else sign for sign in "".join(self.lines))
        return np.array([TILES.index(sign) for sign in signs], np.int16)

    @cached_property
    def floor(self) -> Int16[np.ndarray, " place"]:
        """The cell of each place where a cook can stand."""
        return np.flatnonzero(self.tile == FLOOR).astype(np.int16)

    @cached_property
    def place(self) -> Table:
        """The place that each cell is; -1 where no cook can stand."""
        index = np.full(len(self.tile), -1, np.int16)
        index[self.floor] = np.arange(len(self.floor))
        return index

    @cached_property
    def neighbour(self) -> Moves:
        """The cell next to each place in each direction."""
        steps = np.array([x + y * self.width for x, y in MOVES])
        cells: Moves = self.floor[:, None] + steps.astype(np.int16)
        return cells

    @cached_property
    def distances(self) -> Int16[np.ndarray, "place place place"]:
        """Steps that avoid a place, from another to another; ``FAR`` where there is no way."""
        count = len(self.floor)
        steps = self.place[self.neighbour]
        distances = np.full((count, count, count), FAR, np.int16)
        for avoided in range(count):
            distances[avoided, np.arange(count), np.arange(count)] = 0
            for _ in range(count):
                for direction in range(len(MOVES)):
                    there = steps[:, direction]
                    onward = np.where((there >= 0) & (there != avoided), there, avoided)
                    beyond = np.where(
                        (onward != avoided)[:, None], distances[avoided][onward] + 1, FAR
                    )
                    distances[avoided] = np.minimum(distances[avoided], beyond)
        return distances

    @cached_property
    def counters(self) -> list[int]:
        """Cells of the counters within reach, ascending."""
        return [cell for cell in np.unique(self.neighbour).tolist() if self.tile[cell] == COUNTER]

    @cached_property
    def pots(self) -> list[int]:
        """Cells of all pots, ascending."""
        return [int(cell) for cell in np.flatnonzero(self.tile == POT)]

    @property
    def first_counter(self) -> int:
        """Word of the first counter; each has one."""
        return len(COOKS) * COOK_WORDS

    @property
    def first_pot(self) -> int:
        """Word of the first pot; each has two: onions, and steps cooked (0: not yet cooking)."""
        return self.first_counter + len(self.counters)

    @cached_property
    def word(self) -> Table:
        """The first word of each counter and pot; -1 of other cells."""
        words = np.full(len(self.tile), -1, np.int16)
        words[self.counters] = self.first_counter + np.arange(len(self.counters))
        words[self.pots] = self.first_pot + 2 * np.arange(len(self.pots))
        return words

    @cached_property
    def values(self) -> tuple[int, ...]:
        """How many values each word has; the last one is the number of soups served."""
        items = DISH + self.onions + 1
        cook = len(self.floor), len(MOVES), items
        pot = self.onions + 1, self.cook_time + 1
        counters = (items,) * len(self.counters)
        return (*cook, *cook, *counters, *(pot * len(self.pots)), self.soups + 1)

    @cached_property
    def rules(self) -> Rules:
        """The numbers that compiled rules read, in the order of ``kernel``'s names of them."""
        numbers = (self.onions, self.cook_time, self.counter_items, self.soups)
        return np.array([*numbers, self.first_counter, self.first_pot, len(self.values) - 1])

    @property
    def tables(self) -> Tables:
        """All that compiled rules read."""
        return self.neighbour, self.tile, self.word, self.place, self.rules

    def start(self) -> list[int]:
        """The state every episode starts from: both cooks face north, and nothing is there."""
        signs = "".join(self.lines)
        cooks = [[int(self.place[signs.index(cook)]), 0, NOTHING] for cook in COOKS]
        return [*cooks[0], *cooks[1]] + [0] * (len(self.values) - self.first_counter)

    def at(self, cell: int) -> tuple[int, int]:
        """Column and row of a cell."""
        return cell % self.width, cell // self.width

    def thing(self, item: int) -> str:
        """Name of what is held."""
        if item <= DISH:
            return ("nothing", "an onion", "a dish")[item]
        return f"a soup of {item - DISH}"

    def cells_of(self, kinds: Sequence[int]) -> list[int]:
        """Cells of some kinds, ascending."""
        return [int(cell) for cell in np.flatnonzero(np.isin(self.tile, kinds))]
