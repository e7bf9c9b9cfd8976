"""Which entry belongs to a state and a time: packed keys in a compiled hash table."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from empo_worlds.row_table import RowTable


class Keys:
    """Numbers the distinct pairs of state and remaining steps, in order of first discovery.

    A key is the state's row and the remaining steps as they lie in memory. Keys are compared in
    full, so no two of them are ever confused, and their hash depends on nothing but them.
    """

    def __init__(self, words: int, dtype: torch.dtype, *, include_time: bool) -> None:
        self._words, self._dtype = words, dtype
        self._time_words = 8 // dtype.itemsize if include_time else 0
        self._numpy_dtype = torch.zeros(0, dtype=dtype, device="cpu").numpy().dtype
        self._rows = self._empty()

    def __len__(self) -> int:
        """Number of keys."""
        return self._rows.count

    @property
    def memory_bytes(self) -> int:
        """Bytes taken, spare room included."""
        return self._rows.memory_bytes

    def find(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Int[Tensor, " state"]:
        """The number of each key; -1 where it is not known."""
        return torch.from_numpy(self._rows.find(self._packed(states, steps_left))).long()

    def number(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Int[Tensor, " state"]:
        """The number of each key; new ones get the next numbers."""
        return torch.from_numpy(self._rows.number(self._packed(states, steps_left))).long()

    def states(self) -> Int[Tensor, "entry word"]:
        """The state of each key."""
        return torch.from_numpy(self._rows.rows[:, : self._words].copy())

    def steps_left(self) -> Int[Tensor, " entry"] | None:
        """The remaining steps of each key; None where time is not in the keys."""
        if not self._time_words:
            return None
        return torch.from_numpy(self._rows.rows[:, self._words :].copy().view(np.int64)[:, 0])

    def replace(
        self, states: Int[Tensor, "entry word"], steps_left: Int[Tensor, " entry"] | None
    ) -> None:
        """Forget all keys and number these instead.

        Raises:
            ValueError: if a key occurs twice.
        """
        times = torch.zeros(len(states), dtype=torch.int64) if steps_left is None else steps_left
        keys = self._packed(states, times)
        stored = self._rows.rows
        if np.array_equal(stored, keys[: len(stored)]):
            rows = self._rows  # A later state of the same table: most of the work is done.
            rows.number(keys[len(stored) :])
        else:
            rows = self._empty()
            rows.number(keys)
        if rows.count != len(keys):
            self._rows = self._empty()
            raise ValueError(f"only {rows.count} of {len(keys)} keys are distinct")
        self._rows = rows

    def _empty(self) -> RowTable:
        return RowTable(self._words + self._time_words, self._numpy_dtype)

    def _packed(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Int[np.ndarray, "state key_word"]:
        if states.ndim != 2 or states.shape[1] != self._words:
            raise ValueError(
                f"the table's states have {self._words} words, but a question has states of shape "
                f"{list(states.shape)}; ask with rows of the spec that the table was made for"
            )
        rows = states.cpu()
        if rows.dtype != self._dtype:
            rows = rows.to(self._dtype)
            if not torch.equal(rows.to(states.dtype), states.cpu()):
                raise ValueError(
                    f"the table's states are {self._dtype}, and a question's {states.dtype} do not "
                    "fit into that; ask with rows of the spec that the table was made for"
                )
        if not self._time_words:
            return rows.numpy()
        time = steps_left.cpu().long().contiguous().numpy()[:, None].view(self._numpy_dtype)
        return np.concatenate([rows.numpy(), time], 1)
