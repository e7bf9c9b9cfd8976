"""What the learner remembers: a ring of transitions, with all their successors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from empo_core.errors import ConfigError
from empo_phase2.experience import Block, States, Transitions
from empo_phase2.replay.checks import check_block, check_tree
from empo_phase2.replay.kernels import link
from empo_phase2.replay.state_store import StateStore
from empo_phase2.replay.storage import ArrayStorage, StorageKind
from empo_phase2.replay.successor_pool import SuccessorPool

SUCCESSORS_PER_PAIR = 4
"""How many a replay has room for in the mean, before it evicts transitions for them."""

_STATE, _NEXT, _STEPS_LEFT, _ACTION, _GOALS = range(5)


class Replay:
    """Transitions in a ring, their successors in a pool, every distinct state once.

    All of it is preallocated. Ids of states and positions of transitions are valid until the
    next block is added.

    Args:
        capacity: How many transitions to keep; the oldest give way.
        words: Length of a state row.
        dtype: Of a state row.
        slots: Goal slots.
        robot_actions: Joint actions of the robots.
        human_slots: Slots that the humans' policies are recorded for: all or none.
        human_actions: Length of those policies; any number where there are none.
        humans: How many humans there are.
        profiles: Joint actions of the humans that successors are recorded for.
        memory: Where it lies: ordinary memory, page-locked memory (for copies to a CUDA device
            that do not wait), or a file.
        directory: Where the files lie; they need no cleaning up.
        device: Where answers go.
        max_items: The most successors to keep; None means four per pair.

    Raises:
        ConfigError: Something does not fit this machine.
    """

    def __init__(
        self,
        capacity: int,
        *,
        words: int,
        dtype: torch.dtype,
        slots: int,
        robot_actions: int,
        human_slots: int,
        human_actions: int,
        humans: int,
        profiles: int,
        memory: StorageKind = "ram",
        directory: Path | None = None,
        device: torch.device | str = "cpu",
        max_items: int | None = None,
    ) -> None:
        if not 1 <= capacity < 2**31:
            raise ConfigError(f"replay.capacity: {capacity} is not between 1 and 2**31 - 1")
        self.capacity, self.device = capacity, torch.device(device)
        self._humans, self._pairs = humans, profiles * robot_actions
        self._storage = ArrayStorage(memory, directory)
        self._states = StateStore(
            self._storage, words=words, dtype=dtype, slots=slots, robot_actions=robot_actions
        )
        limit = capacity * self._pairs * SUCCESSORS_PER_PAIR if max_items is None else max_items
        self._pool = SuccessorPool(self._storage, capacity=capacity, pairs=self._pairs, limit=limit)
        # Per transition: state, next, steps left, action, goals, human actions.
        self._record = self._storage.zeros((capacity, _GOALS + 2 * humans), np.int32)
        self._policy = self._storage.zeros((capacity, human_slots, human_actions), np.float32)
        self._links = self._storage.zeros((capacity,), np.int32)
        self._inserted = self._storage.zeros((capacity,), np.int32)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._states.clear()
        self._pool.clear()
        self._number = 0  # Of the next transition; transition n lies at n modulo capacity.
        self._length = 0
        self._newest_step = 0
        # Of each actor, the number of the last transition of each environment.
        self._last: dict[int, NDArray[np.int64]] = {}

    def __len__(self) -> int:
        """How many transitions there are."""
        return self._length

    @property
    def distinct_states(self) -> int:
        """How many different states they refer to."""
        return len(self._states)

    @property
    def items(self) -> int:
        """How many successors they have."""
        return len(self._pool)

    def memory_bytes(self) -> int:
        """Bytes that are reserved, in memory or on disk."""
        arrays = (self._record, self._policy, self._links, self._inserted)
        return sum(array.nbytes for array in arrays) + self._pool.nbytes + self._states.nbytes

    def bytes_per_transition(self) -> float:
        """Bytes in use per transition, its successors and its share of the states included."""
        arrays = (self._record, self._policy, self._links, self._inserted)
        fixed = sum(array.nbytes // self.capacity for array in arrays)
        shared = len(self._pool) * 8 + len(self._states) * self._states.bytes_per_state
        return fixed + self._pool.bytes_per_transition + shared / max(1, self._length)

    def add(self, block: Block, *, actor: int = 0, training_step: int) -> None:
        """Remember what an actor recorded; the oldest transitions give way.

        Args:
            block: What it recorded.
            actor: Which actor; its blocks must come in the order in which it made them.
            training_step: How many steps of training there were so far.

        Raises:
            ConfigError: The replay is too small for the block, or was built for another world.
            NonFiniteError: A probability is infinite or NaN.
        """
        new = block.transitions
        if training_step < self._newest_step:
            raise ValueError(
                f"training_step {training_step} is before {self._newest_step}, that of the last "
                "block; transitions are added in order"
            )
        counts = check_block(
            block, capacity=self.capacity, policy=self._policy.shape[1:], humans=self._humans,
            pairs=self._pairs,
        )  # fmt: skip
        count, num_items = len(new), len(new.successor)
        if not count:
            return
        # Whatever may fail comes before the first change.
        self._pool.accept(counts)
        surplus = max(0, self._length + count - self.capacity)
        gone, dropped = self._pool.to_evict(self._oldest, self._length, surplus, num_items)
        self._pool.reserve(num_items - dropped)
        ids = self._states.intern(block.states)
        record = self._recorded(new, ids)
        successors = ids[new.successor.numpy()]
        self._states.hold(record[:, : _NEXT + 1].reshape(-1))
        self._states.hold(successors)
        self._evict(gone, dropped)
        positions = (self._number + np.arange(count)) % self.capacity
        self._pool.append(positions, counts, successors, new.prob.numpy())
        self._record[positions] = record
        self._policy[positions] = new.human_policy.numpy()[..., : self._policy.shape[2]]
        self._inserted[positions] = training_step
        self._newest_step = training_step
        self._link(block, actor)
        self._number += count
        self._length += count
        self._states.release(ids)

    def sample(
        self, count: int, generator: torch.Generator, *, oldest: int | None = None
    ) -> Transitions:
        """Transitions drawn evenly, with replacement; see ``sample_indices``."""
        return self.transitions(self._drawn(count, generator, oldest))

    def sample_indices(
        self, count: int, generator: torch.Generator, *, oldest: int | None = None
    ) -> Int[Tensor, " transition"]:
        """Positions of transitions drawn evenly, with replacement.

        Args:
            count: How many to draw.
            generator: Source of the randomness, on the CPU.
            oldest: Draw only what was added at this training step or later, if that is
                ``count`` transitions at least.

        Raises:
            ValueError: The replay is empty.
        """
        return self._drawn(count, generator, oldest).to(self.device)

    def _drawn(
        self, count: int, generator: torch.Generator, oldest: int | None
    ) -> Int[Tensor, " transition"]:
        """``sample_indices`` on the CPU, which spares ``sample`` a way there and back."""
        if not self._length:
            raise ValueError("nothing can be sampled from a replay that is empty")
        start = self._oldest
        skipped = 0
        if oldest is not None:
            # Numbers rise along the ring, which may be in two parts.
            end = start + self._length
            parts = (self._inserted[start:end], self._inserted[: max(0, end - self.capacity)])
            skipped = sum(int(part.searchsorted(oldest)) for part in parts)
            if self._length - skipped < count:
                skipped = 0
        drawn = torch.randint(skipped, self._length, (count,), generator=generator)
        return (drawn + start).remainder_(self.capacity)

    def transitions(self, indices: Int[Tensor, " transition"]) -> Transitions:
        """The transitions at some positions.

        Raises:
            IndexError: There is none at one of them.
        """
        indices = indices.to("cpu", torch.int64)
        offsets, successor, prob = self._pool.take(indices.numpy(), self._oldest, self._length)
        record = self._gathered(self._record, indices).long()
        columns = record.T.contiguous()
        return Transitions(
            state=columns[_STATE],
            steps_left=columns[_STEPS_LEFT],
            human_policy=self._gathered(self._policy, indices),
            goal=columns[_GOALS : _GOALS + self._humans].T,
            human_action=columns[_GOALS + self._humans :].T,
            action=columns[_ACTION],
            next=columns[_NEXT],
            offsets=self._sent(offsets),
            successor=self._sent(successor),
            prob=self._sent(prob),
        )

    def states(self, ids: Int[Tensor, " distinct"]) -> States:
        """What is known about some states.

        Raises:
            IndexError: An id is not in use.
        """
        return self._states.take(ids, self.device)

    def follow(self, indices: Int[Tensor, " transition"]) -> Int[Tensor, " transition"]:
        """Positions of the next transitions of the same episodes; -1 where there is none.

        There is none where the episode is over, or its next block has not arrived or was lost.
        The position -1 stays -1.
        """
        wanted = indices.to("cpu", torch.int64).numpy()
        known = (wanted >= 0) & ((wanted - self._oldest) % self.capacity < self._length)
        after = np.where(known, self._links[np.where(known, wanted, 0)], -1)
        return torch.from_numpy(after.astype(np.int64)).to(self.device)

    def next_state(self, indices: Int[Tensor, " transition"]) -> Int[Tensor, " transition"]:
        """Ids of the states that followed some transitions."""
        column = torch.from_numpy(self._record[:, _NEXT])
        return column[indices.to("cpu", torch.int64)].long().to(self.device)

    def state_dict(self) -> dict[str, Any]:
        """Everything, as a tree of tensors and integers.

        The tensors share the replay's memory, for there may be no room for a copy: write them
        before more is added.
        """
        filled = min(self._number, self.capacity)
        alive = [
            [actor, environment, int(number)]
            for actor, numbers in self._last.items()
            for environment, number in enumerate(numbers)
            if number >= self._number - self._length
        ]
        return {
            "capacity": self.capacity,
            "number": self._number,
            "length": self._length,
            "newest_step": self._newest_step,
            "last": torch.tensor(alive, dtype=torch.int64).reshape(-1, 3),
            "record": torch.from_numpy(self._record[:filled]),
            "policy": torch.from_numpy(self._policy[:filled]),
            "links": torch.from_numpy(self._links[:filled]),
            "inserted": torch.from_numpy(self._inserted[:filled]),
            "pool": self._pool.state_dict(filled),
            "states": self._states.state_dict(),
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` returned; everything goes on as it would have there.

        Raises:
            ConfigError: It comes from a replay of another shape.
        """
        check_tree(self.state_dict(), tree)
        self.clear()
        filled = len(tree["record"])
        self._record[:filled] = tree["record"].numpy()
        self._policy[:filled] = tree["policy"].numpy()
        self._links[:filled] = tree["links"].numpy()
        self._inserted[:filled] = tree["inserted"].numpy()
        self._pool.load_state_dict(tree["pool"])
        self._states.load_state_dict(tree["states"])
        self._number, self._length = int(tree["number"]), int(tree["length"])
        self._newest_step = int(tree["newest_step"])
        for actor, environment, number in tree["last"].tolist():
            self._last_of(actor, environment)[environment] = number

    @property
    def _oldest(self) -> int:
        """Position of the oldest transition."""
        return (self._number - self._length) % self.capacity

    def _recorded(self, new: Transitions, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """Transitions as they are kept, given the ids of the block's states."""
        record = np.empty((len(new), self._record.shape[1]), np.int32)
        record[:, _STATE] = ids[new.state.numpy()]
        record[:, _NEXT] = ids[new.next.numpy()]
        record[:, _STEPS_LEFT] = new.steps_left.numpy()
        record[:, _ACTION] = new.action.numpy()
        record[:, _GOALS : _GOALS + self._humans] = new.goal.numpy()
        record[:, _GOALS + self._humans :] = new.human_action.numpy()
        return record

    def _evict(self, transitions: int, items: int) -> None:
        """Forget the oldest transitions, which have so many successors."""
        if transitions:
            positions = (self._oldest + np.arange(transitions)) % self.capacity
            self._states.release(self._record[positions, : _NEXT + 1].reshape(-1))
            self._states.release(self._pool.drop(items))
            self._length -= transitions

    def _link(self, block: Block, actor: int) -> None:
        """Connect the transitions of a block with those before them."""
        environment = np.ascontiguousarray(block.environment.numpy(), np.int64)
        last = self._last_of(actor, int(environment.max()))
        first = np.ascontiguousarray(block.first.numpy())
        oldest = self._number - self._length
        link(environment, first, self._number, oldest, self._record, last, self._links)

    def _last_of(self, actor: int, environment: int) -> NDArray[np.int64]:
        """Numbers of the last transitions of an actor's environments, up to this one at least."""
        if actor not in self._last:
            # Actors that were replaced must not be remembered for ever.
            oldest = self._number - self._length
            self._last = {a: last for a, last in self._last.items() if last.max() >= oldest}
            self._last[actor] = np.empty(0, np.int64)
        missing = environment + 1 - len(self._last[actor])
        if missing > 0:
            self._last[actor] = np.pad(self._last[actor], (0, missing), constant_values=-1)
        return self._last[actor]

    def _gathered(self, array: NDArray[Any], indices: Tensor) -> Tensor:
        """Some entries of an array, on the device."""
        source = torch.from_numpy(array)
        out = self._storage.empty_tensor((len(indices), *array.shape[1:]), source.dtype)
        return self._sent(torch.index_select(source, 0, indices, out=out))

    def _sent(self, tensor: Tensor) -> Tensor:
        """The tensor on the device."""
        return tensor.to(self.device, non_blocking=self._storage.pinned)
