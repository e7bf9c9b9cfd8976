"""Numbering distinct rows in order of first discovery; compiled hash table.

The table has open addressing: a slot holds a row's number plus 1, and 0 where it is empty, so that
fresh memory is an empty table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from empo_core.errors import WorldError
from empo_worlds.compilation import compiled, inlined
from empo_worlds.rows import surviving

Rows = NDArray[Any]


@inlined
def row_hash(rows: Rows, index: int, words: int) -> np.uint64:
    """A 64-bit hash of one row (multiply-xorshift per word)."""
    value = np.uint64(0x9E3779B97F4A7C15)
    for word in range(words):
        value ^= np.uint64(rows[index, word])
        value *= np.uint64(0xBF58476D1CE4E5B9)
        value ^= value >> np.uint64(29)
    value *= np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(32))


@inlined
def are_equal(rows: Rows, item: int, other_rows: Rows, other: int) -> bool:
    """True if a row has the same words as another one."""
    equal = True
    for word in range(rows.shape[1]):
        if rows[item, word] != other_rows[other, word]:
            equal = False
            break
    return equal


@inlined
def find_slot(rows: Rows, item: int, states: Rows, slots: NDArray[np.int32]) -> np.uint64:
    """The slot that holds a row's number, or the empty one where it belongs."""
    mask = np.uint64(len(slots) - 1)
    slot = row_hash(rows, item, rows.shape[1]) & mask
    while slots[slot] > 0:
        if are_equal(rows, item, states, slots[slot] - 1):
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def rebuild(states: Rows, count: int, slots: NDArray[np.int32]) -> None:
    """Enter the first ``count`` states into empty slots; their number is a power of 2."""
    for state in range(count):
        slots[find_slot(states, state, states, slots)] = state + 1


@compiled
def intern(
    rows: Rows,
    first: int,
    states: Rows,
    count: int,
    slots: NDArray[np.int32],
    index: NDArray[np.int32],
) -> tuple[int, int]:
    """Look up rows from ``first`` on, appending new ones to ``states``.

    Stops where ``states`` is full or half the slots are used. Returns how far it came and
    the new number of states; ``index`` is filled in up to there.
    """
    limit = min(len(states), len(slots) // 2)
    for item in range(first, len(rows)):
        if item > first and are_equal(rows, item, rows, item - 1):  # As many neighbours are.
            index[item] = index[item - 1]
            continue
        slot = find_slot(rows, item, states, slots)
        if slots[slot] == 0:
            if count >= limit:
                return item, count
            for word in range(rows.shape[1]):
                states[count, word] = rows[item, word]
            count += 1
            slots[slot] = count
        index[item] = slots[slot] - 1
    return len(rows), count


@compiled
def look_up(rows: Rows, states: Rows, slots: NDArray[np.int32], index: NDArray[np.int32]) -> None:
    """The number of each row among the states; -1 where it is not there."""
    for item in range(len(rows)):
        index[item] = slots[find_slot(rows, item, states, slots)] - 1


def distinct(rows: Rows) -> Rows:
    """Each row once, in order of first appearance."""
    unique_rows: Rows = RowTable.of(rows).rows.copy()
    return unique_rows


class RowTable:
    """Distinct state rows, numbered in order of first discovery.

    Attributes:
        count: How many there are.
    """

    def __init__(
        self, words: int, dtype: np.dtype[Any], empty: Callable[..., NDArray[Any]] = np.empty
    ) -> None:
        """An empty table; ``empty`` allocates room for rows, given a shape and a dtype."""
        self.count, self._empty = 0, empty
        self._words, self._dtype = words, dtype
        # Rows are hashed and compared by pieces of eight bytes, the last of them padded; or by the
        # largest that a shorter row consists of.
        size = words * dtype.itemsize
        self._piece = next(np.dtype(f"u{n}") for n in (8, 4, 2, 1) if size % n == 0 or size > 8)
        self._states = empty((1024, -(-size // self._piece.itemsize)), self._piece)
        self._slots = np.zeros(4096, np.int32)

    @classmethod
    def of(cls, rows: Rows) -> RowTable:
        """A table of some rows, each entered once."""
        table = cls(rows.shape[1], rows.dtype)
        table.number(rows)
        return table

    @property
    def rows(self) -> Rows:
        """All rows so far, in order; perhaps not contiguous [state word]."""
        return self._states[: self.count].view(self._dtype)[:, : self._words]

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Rows in pieces [state piece], and slots, for ``find_slot``."""
        return self._states, self._slots

    @property
    def memory_bytes(self) -> int:
        """Bytes taken, spare room included."""
        return self._states.nbytes + self._slots.nbytes

    def number(self, rows: Rows) -> NDArray[np.int32]:
        """The number of each row; new rows get the next ones.

        Raises:
            WorldError: if a row has a word that the table's dtype does not hold.
        """
        pieces, fits = self._pieces(rows)
        if fits is not None:
            row = rows[int((~fits).argmax())].tolist()
            raise WorldError(f"the row {row} has a word that is no {self._dtype}")
        index = np.empty(len(rows), np.int32)
        done = 0
        while True:
            done, self.count = intern(pieces, done, self._states, self.count, self._slots, index)
            if done == len(rows):
                return index
            self._grow()

    def find(self, rows: Rows) -> NDArray[np.int32]:
        """The number of each row; -1 where it is not known."""
        pieces, fits = self._pieces(rows)
        index = np.empty(len(rows), np.int32)
        look_up(pieces, self._states, self._slots, index)
        if fits is not None:
            index[~fits] = -1
        return index

    def _pieces(self, rows: Rows) -> tuple[Rows, NDArray[np.bool_] | None]:
        """Rows in pieces, and which of them the table's dtype can hold; None: all of them."""
        fits, are_integers = None, rows.dtype.kind in "iu" and self._dtype.kind in "iu"
        if are_integers and rows.dtype != self._dtype:
            fits = surviving(rows, self._dtype)
        padded = self._states.shape[1] * self._piece.itemsize // self._dtype.itemsize
        if padded == self._words:
            return np.ascontiguousarray(rows, self._dtype).view(self._piece), fits
        pieces = np.zeros((len(rows), padded), self._dtype)
        pieces[:, : self._words] = rows
        return pieces.view(self._piece), fits

    def _grow(self) -> None:
        if self.count == len(self._states):
            states = self._empty((2 * len(self._states), self._states.shape[1]), self._states.dtype)
            states[: self.count] = self._states[: self.count]
            self._states = states
        if self.count >= len(self._slots) // 2:
            self._slots = np.zeros(2 * len(self._slots), np.int32)
            rebuild(self._states, self.count, self._slots)
