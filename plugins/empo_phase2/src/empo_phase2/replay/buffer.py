"""A ring of transitions with all their successors, and the distinct states they refer to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.trees import StateDict
from empo_phase2.experience import Block, States, Transitions
from empo_phase2.replay.checks import check_block, check_tree
from empo_phase2.replay.records import TransitionRecords
from empo_phase2.replay.shape import ReplayShape
from empo_phase2.replay.sources import NewestSources
from empo_phase2.replay.state_store import StateStore
from empo_phase2.replay.storage import ArrayStorage, StorageKind
from empo_phase2.replay.successor_pool import SuccessorPool

SUCCESSORS_PER_PAIR = 4
"""Mean number of successors there is room for, before transitions are evicted for them."""


class Replay:
    """Transitions in a ring, their successors in a pool, every distinct state once.

    All of it is preallocated. Ids of states and positions of transitions are valid until the
    next block is added.

    Args:
        capacity: Number of transitions to keep; the oldest are evicted.
        shape: Sizes of a transition and of a state.
        storage: RAM, page-locked RAM (for copies to a CUDA device that do not wait), or a
            memory-mapped file.
        directory: Folder of the mapped files, which need no cleaning up.
        device: Device of what is sampled.
        max_items: The most successors to keep; None means four per pair.

    Raises:
        ConfigError: if something does not fit this machine.
    """

    def __init__(
        self,
        capacity: int,
        shape: ReplayShape,
        *,
        storage: StorageKind = "ram",
        directory: Path | None = None,
        device: torch.device | str = "cpu",
        max_items: int | None = None,
    ) -> None:
        if not 1 <= capacity < 2**31:
            raise ConfigError(f"replay.capacity: {capacity} is not between 1 and 2**31 - 1")
        self.capacity, self.device = capacity, torch.device(device)
        self._shape, self._storage = shape, ArrayStorage(storage, directory)
        self._states = StateStore(self._storage, shape)
        limit = capacity * shape.pairs * SUCCESSORS_PER_PAIR if max_items is None else max_items
        self._pool = SuccessorPool(self._storage, capacity=capacity, pairs=shape.pairs, limit=limit)
        self._records = TransitionRecords(self._storage, capacity, shape)
        self._sources = NewestSources(self._records)
        self.clear()

    def clear(self) -> None:
        """Drop everything."""
        for part in (self._states, self._pool, self._sources):
            part.clear()
        self._number = 0  # Of the next transition; transition n lies at n modulo capacity.
        self._length = 0
        self._newest_step = 0

    def __len__(self) -> int:
        """Number of transitions."""
        return self._length

    @property
    def distinct_states(self) -> int:
        """Number of different states that they refer to."""
        return len(self._states)

    @property
    def freed_states(self) -> int:
        """Number of state ids given back so far, which may mean others now."""
        return self._states.freed

    @property
    def items(self) -> int:
        """Number of their successors."""
        return len(self._pool)

    def reserved_bytes(self) -> int:
        """Bytes that are reserved, in RAM or on disk."""
        parts = (self._records, self._pool, self._states)
        return sum(part.nbytes for part in parts)

    def bytes_when_full(self, items: float, states: float) -> int:
        """Bytes in use when full, with so many successors and distinct states per transition."""
        transition_bytes = self._pool.bytes_per_transition + states * self._states.bytes_per_state
        pooled = 8 * min(int(items * self.capacity), self._pool.limit)
        return self._records.nbytes + pooled + int(transition_bytes * self.capacity)

    def bytes_per_transition(self) -> float:
        """Bytes in use per transition, its successors and its share of the states included."""
        fixed = self._records.nbytes // self.capacity
        shared = len(self._pool) * 8 + len(self._states) * self._states.bytes_per_state
        return fixed + self._pool.bytes_per_transition + shared / max(1, self._length)

    def add(self, block: Block, *, training_step: int) -> None:
        """Add what an actor recorded; the oldest transitions are evicted.

        Args:
            block: The transitions.
            training_step: Number of training steps so far.

        Raises:
            ConfigError: if the replay is too small for the block, or was built for another world.
            NonFiniteError: if a probability is infinite or NaN.
        """
        new = block.transitions
        if training_step < self._newest_step:
            raise ValueError(
                f"training_step {training_step} is before {self._newest_step}, that of the last "
                "block; transitions are added in order"
            )
        counts = check_block(
            block, capacity=self.capacity, policy=self._records.policy_shape, shape=self._shape
        )
        count, num_items = len(new), len(new.successor)
        if not count:
            return
        # Whatever may fail comes before the first change.
        self._pool.accept(counts)
        surplus = max(0, self._length + count - self.capacity)
        num_evicted, dropped = self._pool.to_evict(self._oldest, self._length, surplus, num_items)
        self._pool.reserve(num_items - dropped)
        ids = self._states.intern(block.states)
        record = self._records.encoded(new, ids)
        successors = ids[new.successor.numpy()]
        self._states.hold(record[:, :2].reshape(-1))
        self._states.hold(successors)
        self._evict(num_evicted, dropped)
        positions = (self._number + np.arange(count)) % self.capacity
        self._pool.append(positions, counts, successors, new.prob.numpy())
        self._records.write(positions, record, new, training_step)
        self._sources.add(positions)
        self._newest_step = training_step
        self._number += count
        self._length += count
        self._states.release(ids)

    def sample(
        self, count: int, generator: torch.Generator, *, oldest: int | None = None
    ) -> Transitions:
        """Transitions drawn evenly, with replacement; see ``sample_indices``."""
        return self.transitions(self.sample_indices(count, generator, oldest=oldest))

    def sample_indices(
        self, count: int, generator: torch.Generator, *, oldest: int | None = None,
        by_state: bool = False,
    ) -> Int[Tensor, " transition"]:  # fmt: skip
        """Positions of transitions drawn evenly, with replacement.

        Args:
            count: How many to draw.
            generator: Source of the randomness, on the CPU.
            oldest: Draw only what was added at this training step or later, if that is enough.
            by_state: Draw from the distinct (state, steps left); see ``NewestSources.drawn``.

        Raises:
            ValueError: if the replay is empty.
        """
        if not self._length:
            raise ValueError("nothing can be sampled from a replay that is empty")
        if by_state:
            drawn = self._sources.drawn(count, generator, self._places(self._length), oldest)
            return drawn.to(self.device)
        skipped = 0
        if oldest is not None:
            older = self._records.number_before(oldest, self._oldest, self._length)
            skipped = older if self._length - older >= count else 0
        drawn = torch.randint(skipped, self._length, (count,), generator=generator)
        return (drawn + self._oldest).remainder_(self.capacity).to(self.device)

    def spread(self, items: int) -> Int[Tensor, " transition"]:
        """Positions of transitions of all ages, in order, with about so many successors."""
        share = max(1, -(-len(self._pool) // items))
        return torch.from_numpy(self._places(self._length)[::share].copy())

    def transitions(self, indices: Int[Tensor, " transition"]) -> Transitions:
        """The transitions at some positions.

        Raises:
            IndexError: if there is none at one of them.
        """
        positions = indices.to("cpu", torch.int64).numpy()
        successors = self._pool.take(positions, self._oldest, self._length)
        return self._records.read(positions, successors, self.device)

    def states(self, ids: Int[Tensor, " distinct"]) -> States:
        """States by id.

        Raises:
            IndexError: if an id is not in use.
        """
        return self._states.take(ids, self.device)

    def state_dict(self) -> StateDict:
        """Everything, as a tree of tensors and integers.

        The tensors share the replay's memory, for there may be no room for a copy: write them
        before more is added.
        """
        filled = min(self._number, self.capacity)
        counts = {
            "capacity": self.capacity,
            "number": self._number,
            "length": self._length,
            "newest_step": self._newest_step,
            "pool": self._pool.state_dict(filled),
            "states": self._states.state_dict(),
        }
        return counts | self._records.state_dict(filled) | self._sources.state_dict()

    def load_state_dict(self, tree: StateDict) -> None:
        """Restore what ``state_dict`` returned; everything goes on as it would have there.

        Raises:
            ConfigError: if the state comes from a replay of another shape.
        """
        check_tree(self.state_dict(), tree)
        self.clear()
        self._records.load_state_dict(tree)
        self._pool.load_state_dict(tree["pool"])
        self._states.load_state_dict(tree["states"])
        self._number, self._length = int(tree["number"]), int(tree["length"])
        self._newest_step = int(tree["newest_step"])
        self._sources.load_state_dict(tree)

    @property
    def _oldest(self) -> int:
        """Position of the oldest transition."""
        return (self._number - self._length) % self.capacity

    def _places(self, count: int) -> Int64[np.ndarray, " transition"]:
        """Positions of the oldest transitions."""
        return (self._oldest + np.arange(count)) % self.capacity

    def _evict(self, transitions: int, items: int) -> None:
        """Drop the oldest transitions, which have so many successors."""
        if transitions:
            positions = self._places(transitions)
            self._sources.evict(positions)
            self._states.release(self._records.states_at(positions))
            self._states.release(self._pool.drop(items))
            self._length -= transitions
