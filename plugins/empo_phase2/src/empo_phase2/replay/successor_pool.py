"""The successors of a replay's transitions: ragged, one after the other in a ring."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int32, Int64, Shaped
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.trees import StateDict
from empo_phase2.replay.kernels import copy_items, offsets_of, to_evict
from empo_phase2.replay.storage import ArrayStorage


class SuccessorPool:
    """Successors of the transitions at each position of a ring: a state id and a probability.

    A successor takes eight bytes and a pair one, or two where some pair has more than 255
    successors. The pool starts with room for one successor per pair and grows by half up to
    its limit; then the oldest transitions must go.

    Args:
        storage: Allocates the arrays.
        capacity: Positions of the ring.
        pairs: Pairs of each transition.
        limit: The most successors to keep.
    """

    def __init__(self, storage: ArrayStorage, *, capacity: int, pairs: int, limit: int) -> None:
        self._storage, self._capacity, self._pairs, self.limit = storage, capacity, pairs, limit
        size = min(limit, capacity * pairs)
        self._states = storage.zeros((size,), np.int32)
        self._probs = storage.zeros((size,), np.float32)
        self._counts = storage.zeros((capacity, pairs), np.uint8)
        self._start = storage.zeros((capacity,), np.int64)
        self._tail, self._length = 0, 0

    def __len__(self) -> int:
        """Number of successors."""
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes reserved for successors."""
        arrays = (self._states, self._probs, self._counts, self._start)
        return sum(array.nbytes for array in arrays)

    @property
    def bytes_per_transition(self) -> int:
        """Bytes that each transition takes besides its successors."""
        return self._counts.itemsize * self._pairs + self._start.itemsize

    def accept(self, counts: Int64[np.ndarray, " pair"]) -> None:
        """Prepare for pairs with so many successors each.

        Raises:
            ConfigError: if there are too many, and no eviction would help.
        """
        largest, total = int(counts.max(initial=0)), int(counts.sum())
        if total > self.limit:
            raise ConfigError(
                f"replay: {total} successors arrive at once and it holds {self.limit}; "
                "raise replay.capacity, or lower targets.max_pairs so that fewer are recorded"
            )
        if largest > 65_535:
            raise ConfigError(f"replay: a pair has {largest} successors; it holds at most 65,535")
        if largest > 255 and self._counts.itemsize == 1:
            wider = self._storage.zeros(self._counts.shape, np.uint16)
            wider[:] = self._counts
            self._counts = wider

    def to_evict(self, oldest: int, length: int, min_count: int, more: int) -> tuple[int, int]:
        """Number of transitions to evict, and of their successors, to make room for ``more``.

        Args:
            oldest: Position of the oldest transition.
            length: How many transitions there are.
            min_count: How many must go anyway.
            more: How many successors are to come.
        """
        excess = self._length + more - self.limit
        if not min_count and excess <= 0:
            return 0, 0
        return to_evict(self._counts, oldest, length, min_count, excess)

    def reserve(self, more: int) -> None:
        """Make room for so many more successors."""
        if self._length + more > len(self._states):
            self._grow(self._length + more)

    def drop(self, count: int) -> Int32[np.ndarray, " item"]:
        """Forget the oldest successors; returns their states."""
        ids = _ring(self._states, self._tail, count)
        self._tail = (self._tail + count) % len(self._states)
        self._length -= count
        return ids

    def append(
        self,
        positions: Int64[np.ndarray, " transition"],
        counts: Int64[np.ndarray, " pair"],
        states: Int32[np.ndarray, " item"],
        probs: Float32[np.ndarray, " item"],
    ) -> None:
        """Remember the successors of new transitions, for which there must be room."""
        size, head = len(self._states), self._tail + self._length
        counts = counts.reshape(len(positions), self._pairs)
        items = counts.sum(1)
        self._counts[positions] = counts
        self._start[positions] = (head + items.cumsum() - items) % size
        head %= size
        fits = min(len(states), size - head)
        for pool, new in ((self._states, states), (self._probs, probs)):
            pool[head : head + fits] = new[:fits]
            pool[: len(new) - fits] = new[fits:]
        self._length += len(states)

    def take(
        self, indices: Int64[np.ndarray, " transition"], oldest: int, length: int
    ) -> tuple[Int[Tensor, " pair_plus_1"], Int[Tensor, " item"], Float[Tensor, " item"]]:
        """Offsets, states and probabilities of the successors of some transitions.

        Args:
            indices: Their positions.
            oldest: Position of the oldest transition.
            length: How many transitions there are.

        Raises:
            IndexError: if there is no transition at one of the positions.
        """
        room = self._storage.room
        starts, offsets = room((len(indices) * self._pairs + 1,), np.int64)
        wrong = offsets_of(indices, self._counts, oldest, length, starts)
        if wrong >= 0:
            raise IndexError(
                f"there is no transition at position {indices[wrong]} of the replay: "
                f"it holds {length} from position {oldest} on"
            )
        count = int(starts[-1])
        states, states_to_send = room((count,), np.int64)
        probs, probs_to_send = room((count,), np.float32)
        copy_items(
            indices, self._start, self._states, self._probs, starts, self._pairs, states, probs
        )
        return offsets, states_to_send, probs_to_send

    def clear(self) -> None:
        """Forget all successors."""
        self._tail, self._length = 0, 0

    def state_dict(self, transitions: int) -> StateDict:
        """Everything about the first positions, in tensors that share the pool's memory."""
        wrapped = self._tail + self._length > len(self._states)
        end = len(self._states) if wrapped else self._tail + self._length
        return {
            "size": len(self._states),
            "tail": self._tail,
            "length": self._length,
            "states": torch.from_numpy(self._states[:end]),
            "probs": torch.from_numpy(self._probs[:end]),
            "counts": torch.from_numpy(self._counts[:transitions]),
            "start": torch.from_numpy(self._start[:transitions]),
        }

    def load_state_dict(self, tree: StateDict) -> None:
        """Take over what ``state_dict`` returned."""
        size, transitions = int(tree["size"]), len(tree["counts"])
        if size != len(self._states):
            self._states = self._storage.zeros((size,), np.int32)
            self._probs = self._storage.zeros((size,), np.float32)
        counts = tree["counts"].numpy()
        if counts.dtype != self._counts.dtype:
            self._counts = self._storage.zeros(self._counts.shape, counts.dtype)
        self._states[: len(tree["states"])] = tree["states"].numpy()
        self._probs[: len(tree["probs"])] = tree["probs"].numpy()
        self._counts[:transitions] = counts
        self._start[:transitions] = tree["start"].numpy()
        self._tail, self._length = int(tree["tail"]), int(tree["length"])

    def _grow(self, min_size: int) -> None:
        """Copy everything into larger arrays, the oldest first."""
        old = len(self._states)
        size = min(self.limit, max(min_size, old + old // 2))
        for name in ("_states", "_probs"):
            array = getattr(self, name)
            larger = self._storage.zeros((size,), array.dtype)
            larger[: self._length] = _ring(array, self._tail, self._length)
            setattr(self, name, larger)
        # Positions without a transition change too, but those are never read.
        self._start -= self._tail
        self._start %= old
        self._tail = 0


def _ring(
    array: Shaped[np.ndarray, " place"], start: int, count: int
) -> Shaped[np.ndarray, " {count}"]:
    """So many entries of a ring from ``start`` on, in order."""
    end = start + count
    if end <= len(array):
        return array[start:end]
    return np.concatenate([array[start:], array[: end - len(array)]])
