"""What was answered about states before, so that it is not asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.worlds.row_table import Rows, RowTable

Question: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From rows ``[state word]`` and steps left ``[state]`` to one answer per state."""

WORTHWHILE = 0.5
"""Share of questions that must have been asked before, for remembering to pay."""


class Memory:
    """Answers a question, and remembers the answers.

    Thousands of copies of a world are in few different states, and to look one up is far cheaper
    than to draw its picture or to ask how humans act there. Where states hardly ever repeat, it
    stops remembering.
    """

    def __init__(
        self, ask: Question, words: int, *, timeless: bool = False, max_bytes: int = 2**27
    ) -> None:
        """Prepare to remember.

        Args:
            ask: Answers; the same for the same state and time, and for each on its own.
            words: Length of a state row.
            timeless: Whether the answer does not depend on the steps left.
            max_bytes: Once answers take more memory than this, all are forgotten.
        """
        self._ask, self._timeless, self._max_bytes = ask, timeless, max_bytes
        self._words = words + (not timeless)
        self._pays = True
        self._forget()

    def __call__(
        self,
        rows: Int[Tensor, "state word"],
        steps_left: Int[Tensor, " state"],
        out: Tensor | None = None,
    ) -> Tensor:
        """The answer about each state; it is written to ``out``, if that is given."""
        if not self._pays:
            found = self._ask(rows, steps_left)
            return found if out is None else out.copy_(found)
        keys = self._keys(rows, steps_left)
        known, number = self._table.count, self._table.number(keys)
        self._asked += len(rows)
        if self._answers is not None and self._table.count > self._limit:
            self._pays = known < (1 - WORTHWHILE) * self._asked
            self._forget()
            return self(rows, steps_left, out)
        if self._table.count > known:
            new = np.flatnonzero(number >= known)
            first = np.empty(self._table.count - known, np.int64)
            first[number[new] - known] = new
            where = torch.from_numpy(first)
            self._learn(known, self._ask(rows[where], steps_left[where]))
        assert self._answers is not None
        return torch.index_select(self._answers, 0, torch.from_numpy(number), out=out)

    def _keys(self, rows: Tensor, steps_left: Tensor) -> Rows:
        if self._timeless:
            return rows.to(torch.int64).numpy()
        return torch.cat([rows.to(torch.int64), steps_left[:, None]], 1).numpy()

    def _forget(self) -> None:
        self._table = RowTable(self._words, np.dtype(np.int64))
        self._answers: Tensor | None = None
        self._asked = self._limit = 0

    def _learn(self, known: int, answers: Tensor) -> None:
        """Append answers about new states."""
        count = known + len(answers)
        if self._answers is None or count > len(self._answers):
            larger = answers.new_empty((max(1024, 2 * count), *answers.shape[1:]))
            if self._answers is not None:
                larger[:known] = self._answers[:known]
            self._answers = larger
            each = answers.element_size() * max(1, answers[:1].numel()) + 8 * self._words
            self._limit = max(count, self._max_bytes // each)
        self._answers[known:count] = answers
