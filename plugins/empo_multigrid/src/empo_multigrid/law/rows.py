"""Checking that tensors are state rows before compiled code, which checks nothing, gets them."""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Bool
from torch import Tensor

from empo_core.errors import WorldError
from empo_multigrid import layout as codes
from empo_multigrid.law.effects import PROGRAMMED_MASK
from empo_multigrid.layout import Ints, Layout, Longs
from empo_worlds.rows import rows_as

LARGEST: Final = {
    codes.DOOR: codes.DOOR_LOCKED,
    codes.MAGIC_WALL: 1,
    codes.BUSH: 1,
    codes.KILL_BUTTON: 1,
    codes.PAUSE_SWITCH: 3,
}
"""The greatest word of each kind of fixed object; that of a control button depends on the world."""


TILE = 64
"""Rows that are checked side by side."""


class RowCheck:
    """Turns tensors into the state rows of one world, and refuses all others."""

    def __init__(self, layout: Layout, name: str) -> None:
        self._name = name
        self._agents, self._words = layout.num_agents, layout.state_words
        self._low, self._high = word_bounds(layout)
        controls = layout.fixed_kind == codes.CONTROL_BUTTON
        self._controls = layout.fixed_word[controls]

    def __call__(self, states: Tensor) -> Ints:
        """The rows, contiguous.

        Raises:
            WorldError: if the rows are not integers, of another length, or mean nothing.
        """
        rows: Ints = rows_as(self._name, self._words, np.dtype(np.int16), states)
        wrong = self._out_of_range(rows)
        if len(self._controls):
            programmed = rows[:, self._controls] & PROGRAMMED_MASK
            wrong[self._controls] |= (programmed > self._agents << codes.PROGRAMMED_SHIFT).any(0)
        if wrong.any():
            raise self._error(rows, int(np.flatnonzero(wrong)[0]))
        return rows

    def _out_of_range(self, rows: Ints) -> Bool[np.ndarray, " word"]:
        """Which words are too small or too large in some row."""
        wrong, whole = np.zeros(self._words, np.bool_), len(rows) // TILE * TILE
        # Numpy finds extremes of a few long rows in a fraction of the time of many short ones.
        for part in (rows[:whole].reshape(-1, TILE * self._words), rows[whole:]):
            if len(part):
                low, high = (part.min(0), part.max(0))
                wrong |= (low.reshape(-1, self._words) < self._low).any(0)
                wrong |= (high.reshape(-1, self._words) > self._high).any(0)
        return wrong

    def _error(self, rows: np.ndarray, word: int) -> WorldError:
        if word < codes.AGENT_WORDS * self._agents and word % codes.AGENT_WORDS == codes.CELL:
            problem = f"puts agent {word // codes.AGENT_WORDS} outside the grid"
        else:
            problem = "means nothing"
        worst = rows[:, word].max() if rows[:, word].max() > self._high[word] else None
        value = rows[:, word].min() if worst is None else worst
        return WorldError(
            f"a state row of {self._name!r} has {value} as word {word}, which {problem}; words "
            f"there range from {self._low[word]} to {self._high[word]}"
        )


def word_bounds(layout: Layout) -> tuple[Longs, Longs]:
    """The least and the greatest value of each word of a state row [word], [word]."""
    low = np.zeros(layout.state_words, np.int64)
    high = np.zeros(layout.state_words, np.int64)
    agents = np.arange(layout.num_agents) * codes.AGENT_WORDS
    high[agents + codes.CELL] = layout.num_cells - 1
    high[agents + codes.DIRECTION] = codes.NORTH
    high[agents + codes.FLAGS] = codes.TERMINATED | codes.PAUSED
    high[agents + codes.FORCED] = len(layout.actions)
    items = slice(layout.first_item_word, layout.first_item_word + layout.num_items)
    low[items] = codes.GONE
    high[items] = layout.opened * np.where(layout.item_content_kind == codes.NOTHING, 1, 2) - 1
    for kind, word in zip(layout.fixed_kind.tolist(), layout.fixed_word.tolist(), strict=True):
        if kind == codes.CONTROL_BUTTON:
            recorded = len(layout.actions) << codes.RECORDED_SHIFT
            high[word] = recorded | layout.num_agents << codes.PROGRAMMED_SHIFT | 3
        elif word != codes.NOTHING:
            high[word] = LARGEST[kind]
    return low, high
