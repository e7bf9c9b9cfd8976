"""Long rows as their differences from another of the same layout, which are few.

A compact row has a word for each cell, and in most cells there is always the same. So of each
layout one row is kept whole, and of others the words that differ from it.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, Shaped, UInt64

from empo_phase2.replay.kernels import add_differences

Rows = Shaped[np.ndarray, "state word"]
Pieces = UInt64[np.ndarray, "state piece"]

LONG = 128
"""Bytes of a row from which on differences take less."""
EXPECTED = 16
"""Pieces of a row at first: its layout, and that many differences but one."""


def pays(words: int, dtype: np.dtype[np.generic]) -> bool:
    """Whether rows should be kept as differences."""
    return words * dtype.itemsize > LONG and dtype.itemsize <= 4


class RowDifferences:
    """Rows in pieces of eight bytes: the layout, then position and value of each differing word.

    Differences are in the order of their positions, and followed by zeros, so that equal rows have
    equal pieces however many there are.

    Attributes:
        bases: The row of each layout that is kept whole.
        layouts: Layouts of these, ascending.
    """

    def __init__(self, words: int, dtype: np.dtype[np.generic]) -> None:
        self.bases = np.empty((0, words), dtype)
        self.layouts: Int64[np.ndarray, " base"] = np.empty(0, np.int64)

    def packed(self, rows: Rows, layout: Int64[np.ndarray, " state"], min_pieces: int) -> Pieces:
        """Pieces of rows, at least so many for each; the first row of a new layout is its base."""
        self._take_in(rows, layout)
        row, word = np.nonzero(rows != self._bases_of(layout))
        counts = np.bincount(row, minlength=len(rows))
        begins = np.cumsum(counts) - counts
        pieces = np.zeros((len(rows), max(min_pieces, 1 + int(counts.max(initial=0)))), np.uint64)
        pieces[:, 0] = layout
        value = rows[row, word].astype(np.int32).view(np.uint32).astype(np.uint64)
        place = 1 + np.arange(len(row)) - begins[row]
        pieces[row, place] = (word + 1).astype(np.uint64) << np.uint64(32) | value
        return pieces

    def unpack(
        self,
        pieces: Pieces,
        states: Int64[np.ndarray, " query"],
        layout: Int64[np.ndarray, " query"],
        rows: Shaped[np.ndarray, "query word"],
    ) -> None:
        """Write the rows of some states, of these layouts, given the pieces of all."""
        rows[:] = self._bases_of(layout)
        add_differences(states, pieces, rows)

    def _take_in(self, rows: Rows, layout: Int64[np.ndarray, " state"]) -> None:
        """Keep the first row of each new layout."""
        distinct, first = np.unique(layout, return_index=True)
        is_new = ~np.isin(distinct, self.layouts)
        if not is_new.any():
            return
        layouts = np.concatenate([self.layouts, distinct[is_new]])
        order = np.argsort(layouts)
        self.layouts = layouts[order]
        self.bases = np.concatenate([self.bases, rows[first[is_new]]])[order]

    def _bases_of(self, layout: Int64[np.ndarray, " state"]) -> Rows:
        return self.bases[np.searchsorted(self.layouts, layout)]
