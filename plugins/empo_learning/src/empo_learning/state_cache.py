"""Memoisation of functions of world states: each distinct (state, steps left) is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from empo_worlds.row_table import RowTable

StateFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From rows ``[state word]`` and steps left ``[state]`` to one value (of any shape) per state."""

MIN_HIT_RATE = 0.5
"""Share of look-ups that must hit when the cache is full; below it, caching costs more."""


class StateCache:
    """Caches the values of a function of states; a hash table finds them again.

    Thousands of copies of a world are in few different states, and to look one up is far cheaper
    than to draw its picture or to plan how humans act there. Where states hardly ever repeat, it
    stops caching.

    Attributes:
        is_caching: False once it has stopped.
    """

    def __init__(
        self,
        function: StateFunction,
        words: int,
        *,
        dtype: torch.dtype = torch.int64,
        timeless: bool = False,
        max_bytes: int = 2**27,
    ) -> None:
        """Prepare an empty cache.

        Args:
            function: Computes values; the same for equal states and times, and for each on its
                own.
            words: Length of a state row.
            dtype: Type that holds every word of a row and every number of steps left.
            timeless: Whether values do not depend on the steps left.
            max_bytes: Once values take more memory than this, all are dropped.
        """
        self._function, self._timeless, self._max_bytes = function, timeless, max_bytes
        self._words, self._dtype = words + (not timeless), dtype
        self.is_caching = True
        self._clear()

    def __call__(
        self,
        rows: Int[Tensor, "state word"],
        steps_left: Int[Tensor, " state"],
        out: Tensor | None = None,
    ) -> Tensor:
        """The value of each state; written to ``out``, if that is given."""
        if not self.is_caching:
            values = self._function(rows, steps_left)
            return values if out is None else out.copy_(values)
        words = rows.to(self._dtype)
        if not self._timeless:
            words = torch.cat([words, steps_left[:, None].to(self._dtype)], 1)
        keys = words.numpy()
        num_known, number = self._table.count, self._table.find(keys)
        self._lookups += len(rows)
        new = np.flatnonzero(number < 0)
        if len(new):
            fresh = RowTable(self._words, keys.dtype)
            position = fresh.number(keys[new])
            if self._values is not None and num_known + fresh.count > self._limit:
                self.is_caching = num_known < (1 - MIN_HIT_RATE) * self._lookups
                self._clear()
                return self(rows, steps_left, out)
            first = np.empty(fresh.count, np.int64)
            first[position] = new
            where = torch.from_numpy(first)
            # States are entered once their values are there: the function may raise.
            self._append(num_known, self._function(rows[where], steps_left[where]))
            self._table.number(fresh.rows)
            number[new] = num_known + position
        assert self._values is not None
        return torch.index_select(self._values, 0, torch.from_numpy(number), out=out)

    def _clear(self) -> None:
        self._table = RowTable(
            self._words, torch.empty(0, dtype=self._dtype, device="cpu").numpy().dtype
        )
        self._values: Tensor | None = None
        self._lookups = self._limit = 0

    def _append(self, num_known: int, values: Tensor) -> None:
        """Add values of new states behind the ``num_known`` ones."""
        count = num_known + len(values)
        if self._values is None or count > len(self._values):
            larger = values.new_empty((max(1024, 2 * count), *values.shape[1:]))
            if self._values is not None:
                larger[:num_known] = self._values[:num_known]
            self._values = larger
            row_bytes = values.element_size() * max(1, values[:1].numel()) + 8 * self._words
            self._limit = max(count, self._max_bytes // row_bytes)
        self._values[num_known:count] = values
