"""Surroundings of an agent in a batch of states: doors, keys, room to put something down."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from empo_multigrid import layout as codes
from empo_multigrid.layout import Bools, Ints, Layout
from empo_multigrid.paths import free_directions

AHEAD, RIGHTWARD, BEHIND, LEFTWARD = range(4)

Longs = NDArray[np.int64]


class Surroundings:
    """Surroundings of one agent in each state.

    Attributes:
        rows: State rows.
        agent: Whose surroundings these are.
        cells: Its cell [state].
        turned: The directions ahead, right, behind and left of it [state relative].
        around: The cells there, ``NOTHING`` outside the grid [state relative].
        free: Whether it could move there [state relative].
    """

    def __init__(self, layout: Layout, around: Longs, rows: Ints, agent: int) -> None:
        self.rows = rows
        self.agent = agent
        self._layout = layout
        self.cells = rows[:, codes.AGENT_WORDS * agent + codes.CELL].astype(np.int64)
        facing = rows[:, codes.AGENT_WORDS * agent + codes.DIRECTION].astype(np.int64)
        self.turned = (facing[:, None] + np.arange(4)) % 4
        self.around = around[self.cells[:, None], self.turned]
        self.free = np.take_along_axis(free_directions(layout, rows, agent), self.turned, 1)
        self._keys, self._carries_something = self._find_keys()
        self._locked = self._locked_colours()

    def closed_doors(self) -> Bools:
        """Relative positions of doors that the agent can open now, `[state relative]`."""
        kind, colour, word = self._fixed_around()
        carried = np.take_along_axis(self._carried_keys(), np.maximum(colour, 0), 1)
        is_closed: Bools = (kind == codes.DOOR) & (
            (word == codes.DOOR_CLOSED) | ((word == codes.DOOR_LOCKED) & carried)
        )
        return is_closed

    def open_door_ahead(self) -> Bools:
        """True where the agent faces an open door that nothing blocks, `[state]`."""
        kind, _, word = self._fixed_around()
        is_open = (kind[:, AHEAD] == codes.DOOR) & (word[:, AHEAD] == codes.DOOR_OPEN)
        is_open_ahead: Bools = is_open & self.free[:, AHEAD]
        return is_open_ahead

    def useful_keys(self) -> Bools:
        """Relative positions of keys that the agent can use and take, `[state relative]`."""
        is_useful = np.zeros(self.around.shape, dtype=np.bool_)
        for colour, places in self._keys:
            here = (self.around == places[:, None]) & (places >= 0)[:, None]
            is_useful |= here & self._locked[:, colour][:, None]
        return is_useful & ~self._carries_something[:, None]

    def carries_useless_key(self) -> Bools:
        """True where the agent carries a key for which no locked door is left, `[state]`."""
        is_useless: Bools = np.any(self._carried_keys() & ~self._locked, axis=-1)
        return is_useless

    def has_room_ahead(self) -> Bools:
        """True where something could be put down ahead, `[state]`."""
        layout, cell_ahead = self._layout, self.around[:, AHEAD]
        kind, _, word = self._fixed_around()
        ground = (kind[:, AHEAD] == codes.NOTHING) | (
            (kind[:, AHEAD] == codes.BUSH) & (word[:, AHEAD] == 1)
        )
        room: Bools = (
            (cell_ahead >= 0) & ground & (layout.terrain[np.maximum(cell_ahead, 0)] != codes.WALL)
        )
        for agent in range(layout.num_agents):
            room &= self.rows[:, codes.AGENT_WORDS * agent + codes.CELL] != cell_ahead
        for item in range(layout.num_items):
            place = self.rows[:, layout.first_item_word + item]
            room &= np.where(place >= layout.opened, place - layout.opened, place) != cell_ahead
        return room

    def _fixed_around(self) -> tuple[Longs, Longs, Longs]:
        """Kind, colour and word of the fixed objects around, else ``NOTHING`` [state relative]."""
        layout = self._layout
        fixed = np.where(self.around < 0, codes.NOTHING, layout.fixed_at[self.around])
        if not len(layout.fixed_kind):
            return fixed, fixed, fixed
        word = layout.fixed_word[fixed].astype(np.int64)
        value = np.take_along_axis(self.rows, np.maximum(word, 0), 1)
        there = fixed >= 0
        return (
            np.where(there, layout.fixed_kind[fixed], codes.NOTHING),
            np.where(there, layout.fixed_colour[fixed], codes.NOTHING),
            np.where(there & (word >= 0), value, codes.NOTHING),
        )

    def _find_keys(self) -> tuple[list[tuple[int, Longs]], Bools]:
        """Colour and place [state] of all keys, and whether the agent carries anything."""
        layout = self._layout
        keys, carries = [], np.zeros(len(self.rows), dtype=np.bool_)
        for item in range(layout.num_items):
            place = self.rows[:, layout.first_item_word + item].astype(np.int64)
            opened = place >= layout.opened
            now = np.where(opened, place - layout.opened, place)
            carries |= now == layout.num_cells + self.agent
            if layout.item_kind[item] == codes.KEY:
                keys.append((int(layout.item_colour[item]), place))
            elif layout.item_content_kind[item] == codes.KEY:
                # In the closed box the key is nowhere.
                keys.append(
                    (int(layout.item_content_colour[item]), np.where(opened, now, codes.NOTHING))
                )
        return keys, carries

    def _carried_keys(self) -> Bools:
        """True where the agent carries a key of each colour, `[state colour]`."""
        carried = np.zeros((len(self.rows), len(codes.COLOURS)), dtype=np.bool_)
        for colour, places in self._keys:
            carried[:, colour] |= places == self._layout.num_cells + self.agent
        return carried

    def _locked_colours(self) -> Bools:
        """True where a door of each colour is locked somewhere, `[state colour]`."""
        layout = self._layout
        locked = np.zeros((len(self.rows), len(codes.COLOURS)), dtype=np.bool_)
        for fixed in np.flatnonzero(layout.fixed_kind == codes.DOOR):
            word = self.rows[:, layout.fixed_word[fixed]]
            locked[:, layout.fixed_colour[fixed]] |= word == codes.DOOR_LOCKED
        return locked
