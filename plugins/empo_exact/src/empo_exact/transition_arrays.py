"""Transitions in CSR form, written block by block into arrays that grow where they are."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64, Shaped, UInt16, UInt32

from empo_core.types import Expansion
from empo_worlds.compilation import compiled
from empo_worlds.row_table import RowTable

Offsets = UInt32[np.ndarray, " pair_plus_1"] | Int64[np.ndarray, " pair_plus_1"]
Codes = UInt16[np.ndarray, " transition"] | Int32[np.ndarray, " transition"]


@compiled
def renumber(
    successor: Int32[np.ndarray, " transition"], number: Int32[np.ndarray, " state"]
) -> None:
    """Replace each successor by its new number."""
    for item in range(len(successor)):
        successor[item] = number[successor[item]]


@compiled
def mark(
    successor: Int32[np.ndarray, " transition"], is_marked: Bool[np.ndarray, " state"]
) -> None:
    """Set True for each state that transitions lead to."""
    for item in range(len(successor)):
        is_marked[successor[item]] = True


class Growing:
    """An array that is written from the front.

    Copies would be there twice, and new memory costs more than what is written into it.
    """

    def __init__(self, dtype: type[np.generic], expected: int = 0) -> None:
        self.count = 0
        self._array = np.empty(expected, dtype)

    def room(self, count: int, widest: int) -> Shaped[np.ndarray, " _item"]:
        """The next entries, to be filled in.

        Args:
            count: How many.
            widest: The greatest number that may come; all entries get as wide as it takes.
        """
        if widest > np.iinfo(self._array.dtype).max:
            self._array = self._array.astype(np.int32 if self._array.itemsize < 4 else np.int64)
        first, self.count = self.count, self.count + count
        if self.count > len(self._array):
            enough = max(self.count, len(self._array) + len(self._array) // 8)
            self._array.resize(enough, refcheck=False)
        return self._array[first : self.count]

    @property
    def written(self) -> Shaped[np.ndarray, " _item"]:
        """The entries so far."""
        return self._array[: self.count]

    def whole(self) -> Shaped[np.ndarray, " _item"]:
        """All entries; none may follow."""
        self._array.resize(self.count, refcheck=False)
        return self._array


class TransitionArrays:
    """The transitions of states, in the order in which the states were expanded."""

    def __init__(self, codes: RowTable, pairs: int = 0, transitions: int = 0) -> None:
        """Numbers of pairs and transitions are what to expect, where that is known.

        ``codes`` numbers the probabilities and durations.
        """
        self._codes = codes
        self._offsets = Growing(np.uint32, pairs + 1)
        self._successor = Growing(np.int32, transitions)
        self._code = Growing(np.uint16, transitions)
        self._offsets.room(1, 0)[:] = 0

    @property
    def count(self) -> int:
        """Number of transitions."""
        return self._successor.count

    def append(self, expansion: Expansion, number: Int32[np.ndarray, " outcome"]) -> None:
        """Add the transitions of a block of states, whose outcomes have these numbers."""
        index, ends = expansion.index.numpy(), expansion.offsets.numpy()[1:]
        before, after = self.count, self.count + len(index)
        code = self._codes.number(chances(expansion))
        np.take(number, index, out=self._successor.room(len(index), 0), mode="clip")
        room = self._code.room(len(index), self._codes.count - 1)
        np.take(code.astype(room.dtype), index, out=room, mode="clip")
        np.add(ends, before, out=self._offsets.room(len(ends), after), casting="unsafe")

    def whole(
        self,
    ) -> tuple[Offsets, Int32[np.ndarray, " transition"], Codes]:
        """Start of each pair's transitions, states reached, codes; nothing may be added after."""
        return self._offsets.whole(), self._successor.whole(), self._code.whole()


def chances(expansion: Expansion) -> Float64[np.ndarray, "outcome 2"]:
    """Probability and duration of each outcome [outcome 2]."""
    prob = expansion.prob.numpy()
    duration = (
        np.ones_like(prob) if expansion.duration is None else expansion.duration.double().numpy()
    )
    return np.stack([prob, duration], -1)
