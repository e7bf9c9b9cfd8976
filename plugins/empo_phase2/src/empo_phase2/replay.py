"""A ring of transitions with all their successors, and the distinct states they refer to.

Everything lies in arrays that are reserved beforehand: columns of a fixed size per transition, one
ring of successors, and a table of states that is only appended to. Once the table holds twice as
many states as were in use last time, those that no transition refers to any more are dropped, and
the others get new ids (``renumberings``). Long rows are kept as numbers of their pieces, each of
which is kept once: most cells of a grid look alike in thousands of states.
"""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import shutil
import tempfile
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int, Int64, Shaped
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from empo_core.errors import ConfigError, NonFiniteError, StorageError
from empo_core.runs.files import refuse_gone
from empo_core.trees import StateDict, whole_number
from empo_phase2.experience import Block, States, Transitions
from empo_worlds.row_table import RowTable

StorageKind = Literal["ram", "pinned", "mapped"]

SUCCESSORS_PER_PAIR = 4
"""Mean number of successors there is room for, before transitions are evicted for them."""
MOST_PER_PAIR = 32_767
"""The most successors of one pair."""
FEW_STATES = 1024
"""Unused states are not dropped while there are fewer than twice so many."""
PIECE_BYTES = 64
"""Rows that are at least twice as long are kept in pieces of this size."""
AT_ONCE = 65_536
"""States that are written anew at the same time."""
ROUNDS = 10
"""Draws by state are repeated so often until enough of them are young enough."""
GIB = 1 << 30
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayShape:
    """Sizes of one transition and one state of a replay.

    Attributes:
        words: Length of a state row.
        dtype: Type of a state row.
        slots: Number of goal slots.
        robot_actions: Number of joint actions of the robots.
        human_slots: Slots whose humans' policies are recorded: all or none.
        human_actions: Length of those policies; any number where there are none.
        behaviour_actions: Joint robot actions whose chances in the behaviour policy are recorded:
            all or none.
        profiles: Joint actions of the humans that successors are recorded for.
    """

    words: int
    dtype: torch.dtype
    slots: int
    robot_actions: int
    human_slots: int
    human_actions: int
    profiles: int
    behaviour_actions: int = 0

    @property
    def pairs(self) -> int:
        """Number of (profile, robot action) pairs of a transition."""
        return self.profiles * self.robot_actions


class Replay:
    """Transitions in a ring, their successors in another, every distinct state once.

    Ids of states and positions of transitions are valid until the next block is added.

    Args:
        capacity: Number of transitions to keep; the oldest are evicted.
        shape: Sizes of a transition and of a state.
        storage: ``ram``; ``pinned``, which sends batches through page-locked RAM, for copies to a
            CUDA device that do not wait; or ``mapped``, in files.
        directory: Folder of the mapped files, which need no cleaning up.
        device: Device of what is sampled.
        max_items: The most successors to keep; None means four per pair.

    Attributes:
        renumberings: How often states got new ids.

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
        if storage == "pinned" and not torch.cuda.is_available():
            raise ConfigError(
                "replay.storage: 'pinned' speeds up copies to a CUDA device, and torch finds none; "
                "use 'ram' or 'mapped'"
            )
        if storage == "mapped" and directory is None:
            raise ConfigError("replay.storage: 'mapped' needs a directory for its files; got none")
        self.capacity, self.device = capacity, torch.device(device)
        self._shape, self._pinned = shape, storage == "pinned"
        self._zeros = partial(zeros, directory=directory if storage == "mapped" else None)
        self._limit = capacity * shape.pairs * SUCCESSORS_PER_PAIR
        if max_items is not None:
            self._limit = max_items
        columns: dict[str, tuple[tuple[int, ...], DTypeLike]] = {
            "state": ((), np.int32),
            "steps_left": ((), np.int32),
            "action": ((), np.int32),
            "human_policy": ((shape.human_slots, shape.human_actions), np.float32),
            "acts_for": ((shape.slots,), np.bool_),
            "behaviour": ((shape.behaviour_actions,), np.float32),
            "inserted": ((), np.int32),  # The training step.
            "first_item": ((), np.int64),  # Number of the first successor.
            "counts": ((shape.pairs,), np.int16),  # Successors of each pair.
        }
        self._columns = {
            name: self._zeros((capacity, *sizes), dtype) for name, (sizes, dtype) in columns.items()
        }
        size = min(self._limit, capacity * shape.pairs)
        self._successors = self._zeros((size,), np.int32)
        self._probs = self._zeros((size,), np.float32)
        self._flag_bytes = -(-(1 + shape.slots + shape.robot_actions) // 8)
        self._dtype = torch.empty(0, dtype=shape.dtype).numpy().dtype
        self.renumberings = 0
        self.clear()

    def clear(self) -> None:
        """Drop everything."""
        self._table = self._empty_table()
        self._flags = self._zeros((FEW_STATES, self._flag_bytes), np.uint8)
        self._used_states = 0  # How many were in use when ids were last given.
        # Transition n lies at n modulo capacity, successor i at i modulo the size of their ring.
        self._number = self._length = self._num_items = 0
        self._sources: _NewestSources | None = None
        self.renumberings += 1

    def __len__(self) -> int:
        """Number of transitions."""
        return self._length

    @property
    def distinct_states(self) -> int:
        """Number of different states in the table; at most about twice those in use."""
        return len(self._table)

    @property
    def items(self) -> int:
        """Number of successors of all transitions."""
        return self._num_items - self._oldest_item(0)

    def reserved_bytes(self) -> int:
        """Bytes that are reserved, in RAM or on disk."""
        arrays = (*self._columns.values(), self._successors, self._probs, self._flags)
        return sum(column.nbytes for column in arrays) + self._table.memory_bytes

    def bytes_when_full(self, items: float, states: float) -> int:
        """Bytes in use when full, with so many successors and distinct states per transition."""
        fixed = sum(column.nbytes for column in self._columns.values())
        pooled = 8 * min(int(items * self.capacity), self._limit)
        state_bytes = 1.5 * (self._table.row_bytes + self._flag_bytes)
        return fixed + pooled + int(states * state_bytes * self.capacity)

    def bytes_per_transition(self) -> float:
        """Bytes in use per transition, its successors and its share of the states included."""
        fixed = sum(column.nbytes for column in self._columns.values()) // self.capacity
        shared = self.items * 8 + len(self._table) * self._flag_bytes + self._table.used_bytes
        return fixed + shared / max(1, self._length)

    def add(self, block: Block, *, training_step: int) -> None:
        """Add what an actor recorded; the oldest transitions are evicted.

        Args:
            block: The transitions.
            training_step: Number of training steps so far; it never falls.

        Raises:
            ConfigError: if the replay is too small for the block.
            NonFiniteError: if a probability is infinite or NaN.
        """
        new = block.transitions
        counts = self._checked_counts(block)
        keys, flags = self._packed(block.states)
        count, num_items = len(new), len(new.successor)
        if not count:
            return
        self._evict(self._num_to_evict(count, num_items))
        self._make_room(num_items)
        limit = 2 * max(self._used_states, FEW_STATES)
        if self._number > self._length and len(self._table) > limit:
            self._renumber()
        ids = self._table.number(keys)
        if len(self._table) > len(self._flags):
            self._flags = self._longer(self._flags, 2 * len(self._table))
        self._flags[ids] = flags
        positions = (self._number + np.arange(count)) % self.capacity
        items = counts.sum(1)
        policy = new.human_policy[..., : self._shape.human_actions]
        for name, part in {
            "state": ids[new.state.numpy()],
            "steps_left": new.steps_left.numpy(),
            "action": new.action.numpy(),
            "human_policy": policy.numpy(),
            "acts_for": new.acts_for.numpy(),
            "behaviour": new.behaviour.numpy(),
            "inserted": training_step,
            "first_item": self._num_items + items.cumsum() - items,
            "counts": counts,
        }.items():
            self._columns[name][positions] = part
        places = (self._num_items + np.arange(num_items)) % len(self._successors)
        self._successors[places] = ids[new.successor.numpy()]
        self._probs[places] = new.prob.numpy()
        self._number += count
        self._length += count
        self._num_items += num_items
        if self._sources is not None:
            self._sources.add(positions)

    def sample_indices(
        self, count: int, generator: torch.Generator, *, oldest: int | None = None,
        by_state: bool = False,
    ) -> Int[Tensor, " transition"]:  # fmt: skip
        """Positions of transitions drawn evenly, with replacement.

        Args:
            count: How many to draw.
            generator: Source of the randomness, on the CPU.
            oldest: Draw only what was added at this training step or later, if that is enough.
            by_state: Draw the newest transition from some of the distinct (state, steps left): half
                of them evenly, half so that all numbers of steps left count alike.
        """
        if by_state:
            if self._sources is None:
                self._sources = _NewestSources(self._columns)
                self._sources.add(self._places(self._length))
            return self._sources.draw(count, generator, oldest).to(self.device)
        skipped = 0
        if oldest is not None:
            # Training steps rise along the ring, which may be in two parts.
            steps, end = self._columns["inserted"], self._oldest + self._length
            parts = steps[self._oldest : end], steps[: max(0, end - self.capacity)]
            older = sum(int(part.searchsorted(oldest)) for part in parts)
            skipped = older if self._length - older >= count else 0
        drawn = torch.randint(skipped, self._length, (count,), generator=generator)
        return (drawn + self._oldest).remainder_(self.capacity).to(self.device)

    def spread(self, items: int) -> Int[Tensor, " transition"]:
        """Positions of transitions of all ages, in order, with about so many successors."""
        share = max(1, -(-self.items // items))
        return torch.from_numpy(self._places(self._length)[::share].copy())

    def transitions(self, indices: Int[Tensor, " transition"]) -> Transitions:
        """The transitions at some positions."""
        positions = indices.to("cpu", torch.int64).numpy()
        named = {name: column[positions] for name, column in self._columns.items()}
        counts = named.pop("counts")
        offsets = np.zeros(counts.size + 1, np.int64)
        counts.cumsum(out=offsets[1:])
        ends = offsets[counts.shape[1] :: counts.shape[1]]
        # From a position in this batch to that in the ring, the same for a whole transition.
        shift = named.pop("first_item") - offsets[: -1 : counts.shape[1]]
        lengths = np.diff(ends, prepend=0)
        places = (np.arange(offsets[-1]) + shift.repeat(lengths)) % len(self._successors)
        named |= {
            "offsets": offsets,
            "successor": self._successors[places],
            "prob": self._probs[places],
        }
        del named["inserted"]
        for name in ("state", "steps_left", "action", "successor"):
            named[name] = named[name].astype(np.int64)
        return Transitions(**{name: self._sent(part) for name, part in named.items()})

    def states(self, ids: Int[Tensor, " distinct"]) -> States:
        """States by id."""
        numbers, slots = ids.to("cpu", torch.int64).numpy(), self._shape.slots
        keys = self._table.rows(numbers)
        number = 1 + slots + self._shape.robot_actions
        flags = np.unpackbits(self._flags[numbers], 1, number, "little").view(np.bool_)
        sent = self._sent(flags)
        return States(
            rows=self._sent(np.ascontiguousarray(keys[:, :-1])),
            layout=self._sent(keys[:, -1].astype(np.int64)),
            terminal=sent[:, 0],
            achieved=sent[:, 1 : 1 + slots],
            available=sent[:, 1 + slots :],
        )

    def state_dict(self) -> StateDict:
        """Everything, as a tree of tensors and integers.

        The tensors share the replay's memory, for there may be no room for a copy: write them
        before more is added.
        """
        filled, num_states = min(self._number, self.capacity), len(self._table)
        used = min(self._num_items, len(self._successors))
        return {
            "capacity": self.capacity,
            "number": self._number,
            "length": self._length,
            "columns": {
                name: torch.from_numpy(column[:filled]) for name, column in self._columns.items()
            },
            "pool": {
                "size": len(self._successors),
                "number": self._num_items,
                "states": torch.from_numpy(self._successors[:used]),
                "probs": torch.from_numpy(self._probs[:used]),
            },
            "states": {
                **self._table.state_dict(),
                "flags": torch.from_numpy(self._flags[:num_states]),
                "used": self._used_states,
                "renumberings": self.renumberings,
            },
            "sources": torch.from_numpy(
                np.empty(0, np.int64) if self._sources is None else self._sources.positions
            ),
        }

    def load_state_dict(self, tree: StateDict) -> None:
        """Restore what ``state_dict`` returned; everything goes on as it would have there.

        Raises:
            ConfigError: if the state comes from a replay of another shape.
            StorageError: if the flags of states do not fit the states.
        """
        self._check_shape(tree)
        self.clear()
        filled, pool, states = len(tree["columns"]["state"]), tree["pool"], tree["states"]
        for name, column in self._columns.items():
            column[:filled] = tree["columns"][name].numpy()
        if int(pool["size"]) != len(self._successors):
            self._successors = self._zeros((int(pool["size"]),), np.int32)
            self._probs = self._zeros((int(pool["size"]),), np.float32)
        self._successors[: len(pool["states"])] = pool["states"].numpy()
        self._probs[: len(pool["probs"])] = pool["probs"].numpy()
        self._num_items = whole_number(pool["number"])
        self._table.load_state_dict(states)
        flags, shape = states["flags"].numpy(), (len(self._table), self._flag_bytes)
        if flags.shape != shape:
            raise StorageError(f"states.flags has shape {flags.shape}, and should have {shape}")
        self._flags = self._longer(flags, 2 * len(self._table))
        self._used_states = whole_number(states["used"])
        self.renumberings = whole_number(states["renumberings"])
        self._number, self._length = whole_number(tree["number"]), whole_number(tree["length"])
        if len(tree["sources"]):
            self._sources = _NewestSources(self._columns)
            self._sources.add(tree["sources"].numpy())

    @property
    def _oldest(self) -> int:
        """Position of the oldest transition."""
        return (self._number - self._length) % self.capacity

    def _places(self, count: int) -> Int64[np.ndarray, " transition"]:
        """Positions of the oldest transitions."""
        return (self._oldest + np.arange(count)) % self.capacity

    def _oldest_item(self, skipped: int) -> int:
        """Number of the first successor of the oldest transition but some."""
        if skipped == self._length:
            return self._num_items
        return int(self._columns["first_item"][(self._oldest + skipped) % self.capacity])

    def _num_to_evict(self, count: int, num_items: int) -> int:
        """Number of transitions that must go for so many more, and so many more successors."""
        number = max(0, self._length + count - self.capacity)
        excess = self._num_items + num_items - self._limit
        while number < self._length and self._oldest_item(number) < excess:
            number += 1
        return number

    def _evict(self, count: int) -> None:
        """Drop the oldest transitions."""
        if count:
            if self._sources is not None:
                self._sources.evict(self._places(count))
            self._length -= count

    def _make_room(self, more: int) -> None:
        """Enlarge the ring of successors by half, up to its limit, where more do not fit."""
        first, size = self._oldest_item(0), len(self._successors)
        total = self._num_items - first + more
        if total <= size:
            return
        larger = min(self._limit, max(total, size + size // 2))
        numbers = np.arange(first, self._num_items)
        for name in ("_successors", "_probs"):
            before = getattr(self, name)
            after = self._zeros((larger,), before.dtype)
            after[numbers % larger] = before[numbers % size]
            setattr(self, name, after)

    def _renumber(self) -> None:
        """Drop the states that no transition refers to any more; the others get new ids."""
        positions = self._places(self._length)
        items = np.arange(self._oldest_item(0), self._num_items) % len(self._successors)
        is_used = np.zeros(len(self._table), np.bool_)
        parts = ((self._columns["state"], positions), (self._successors, items))
        for ids, places in parts:
            is_used[ids[places]] = True
        new_id = (is_used.cumsum() - 1).astype(np.int32)
        for ids, places in parts:
            ids[places] = new_id[ids[places]]
        table, used = self._empty_table(), np.flatnonzero(is_used)
        for first in range(0, len(used), AT_ONCE):
            table.number(self._table.rows(used[first : first + AT_ONCE]))
        flags = self._flags[used]
        self._table = table
        self._flags[: len(flags)] = flags
        self._used_states = len(flags)
        self.renumberings += 1
        if self._sources is not None:
            positions = self._sources.positions
            self._sources = _NewestSources(self._columns)
            self._sources.add(positions)

    def _checked_counts(self, block: Block) -> Int64[np.ndarray, "transition pair"]:
        """Number of successors of each pair of a block, after checking it."""
        new, count = block.transitions, len(block.transitions)
        if count > self.capacity:
            raise ConfigError(
                f"replay.capacity: {self.capacity} transitions are fewer than the {count} that "
                "arrive at once; raise it"
            )
        for name, probs in (
            ("successors", new.prob),
            ("the humans' policies", new.human_policy),
            ("the behaviour policy", new.behaviour),
        ):
            # Any of them that is not finite makes the sum so.
            if not torch.isfinite(probs.sum()):
                raise NonFiniteError(f"a probability of {name} in a block is infinite or NaN")
        counts: Int64[np.ndarray, "transition pair"]
        counts = np.diff(new.offsets.numpy()).reshape(count, -1)
        if len(new.successor) > self._limit:
            raise ConfigError(
                f"replay: {len(new.successor)} successors arrive at once and it holds "
                f"{self._limit}; raise replay.capacity, or lower targets.max_pairs so that fewer "
                "are recorded"
            )
        if counts.max(initial=0) > MOST_PER_PAIR:
            raise ConfigError(
                f"replay: a pair has {counts.max()} successors; it holds at most {MOST_PER_PAIR:,}"
            )
        return counts

    def _packed(self, states: States) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Rows with the layout behind them, and flags in bits, as they are stored."""
        rows, layout = states.rows.numpy(), states.layout.numpy()
        largest = np.iinfo(self._dtype).max
        if len(layout) and not 0 <= layout.min() <= layout.max() <= largest:
            raise ConfigError(
                f"replay: layouts from {layout.min()} to {layout.max()}; it tells layouts from 0 "
                f"to {largest} apart"
            )
        keys = np.concatenate([rows, layout[:, None].astype(self._dtype)], 1)
        terminal = states.terminal.numpy()[:, None]
        flags = np.concatenate([terminal, states.achieved.numpy(), states.available.numpy()], 1)
        return keys, np.packbits(flags, 1, "little")

    def _check_shape(self, tree: StateDict) -> None:
        """Compare the shape of a saved replay with this one's.

        Raises:
            ConfigError: if the shapes differ.
        """
        now, saved = (
            {"capacity": part["capacity"], "row": part["states"]["rows"].shape[1]}
            | {name: tuple(column.shape[1:]) for name, column in part["columns"].items()}
            for part in (self.state_dict(), tree)
        )
        for name, size in now.items():
            if saved[name] != size:
                raise ConfigError(
                    f"the saved replay has {name} {saved[name]} where this one has {size}; resume "
                    "with the world and the replay parameters of the run that saved it"
                )

    def _longer(self, before: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
        """A copy with zeros behind it."""
        longer = self._zeros((length, *before.shape[1:]), before.dtype)
        longer[: len(before)] = before
        return longer

    def _empty_table(self) -> _StateTable:
        return _StateTable(self._shape.words + 1, self._dtype, self._zeros)

    def _sent(self, array: Shaped[np.ndarray, "*shape"]) -> Shaped[Tensor, "*shape"]:
        """An array as a tensor on the replay's device."""
        tensor = torch.from_numpy(array)
        if self._pinned:
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor if self.device.type == "cpu" else tensor.to(self.device)


class _StateTable:
    """Distinct rows, numbered in order of discovery, long ones as numbers of their pieces."""

    def __init__(
        self, words: int, dtype: np.dtype[Any], zeros: Callable[..., NDArray[Any]]
    ) -> None:
        self._words, self._dtype = words, dtype
        self._length = max(PIECE_BYTES // dtype.itemsize, 1)
        self._pieces: RowTable | None = None
        if words >= 2 * self._length:
            self._pieces = RowTable(self._length, dtype, zeros)
            words, dtype = -(-words // self._length), np.dtype(np.int32)
        self._table = RowTable(words, dtype, zeros)

    def __len__(self) -> int:
        """Number of rows."""
        return self._table.count

    @property
    def memory_bytes(self) -> int:
        """Bytes taken, spare room included."""
        return self._table.memory_bytes + (self._pieces.memory_bytes if self._pieces else 0)

    @property
    def row_bytes(self) -> float:
        """Bytes per row, its share of the hash table included, but not of the pieces."""
        return _row_bytes(self._table)

    @property
    def used_bytes(self) -> float:
        """Bytes of all rows and pieces, without spare room."""
        pieces = self._pieces.count * _row_bytes(self._pieces) if self._pieces else 0
        return len(self) * self.row_bytes + pieces

    def number(self, rows: Shaped[np.ndarray, "state word"]) -> NDArray[np.int32]:
        """The number of each row; new ones get the next numbers."""
        if self._pieces is None:
            return self._table.number(rows)
        size = -self._words % self._length
        padded = np.pad(rows, ((0, 0), (0, size))).reshape(-1, self._length)
        return self._table.number(self._pieces.number(padded).reshape(len(rows), -1))

    def rows(self, numbers: NDArray[np.int64]) -> Shaped[np.ndarray, "state word"]:
        """The rows of some numbers."""
        rows = self._table.rows[numbers]
        if self._pieces is None:
            return rows
        whole = self._pieces.rows[rows.ravel()].reshape(len(rows), rows.shape[1] * self._length)
        return whole[:, : self._words]

    def state_dict(self) -> StateDict:
        """Rows, or numbers of their pieces, and the pieces."""
        pieces = np.empty((0, self._length), self._dtype)
        if self._pieces is not None:
            pieces = self._pieces.rows
        return {"rows": torch.from_numpy(self._table.rows), "pieces": torch.from_numpy(pieces)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned, in an empty table."""
        if self._pieces is not None:
            self._pieces.number(state_dict["pieces"].numpy())
        self._table.number(state_dict["rows"].numpy())


def _row_bytes(table: RowTable) -> float:
    """Bytes of a row of a table, and of its share of the slots."""
    rows, slots = table.arrays
    return float(rows.itemsize * rows.shape[1] + slots.nbytes / len(rows))


class _NewestSources:
    """Position of the newest transition from each distinct (state, steps left).

    They lie in one list for each number of steps left, so that a draw takes no longer where there
    are more. The order in the lists decides what is drawn, and is part of a run's state.
    """

    def __init__(self, columns: dict[str, NDArray[Any]]) -> None:
        self._columns = columns
        self._lists: dict[int, array[int]] = {}
        self._place: dict[tuple[int, int], int] = {}

    @property
    def positions(self) -> Int64[np.ndarray, " transition"]:
        """All of them, list by list."""
        lists = [np.frombuffer(self._lists[left], np.int64) for left in sorted(self._lists)]
        return np.concatenate([np.empty(0, np.int64), *lists])

    def add(self, positions: Int64[np.ndarray, " transition"]) -> None:
        """Take in transitions at some positions, the oldest first."""
        for position, key in self._keyed(positions):
            members = self._lists.setdefault(key[1], array("q"))
            place = self._place.setdefault(key, len(members))
            if place == len(members):
                members.append(position)
            else:
                members[place] = position

    def evict(self, positions: Int64[np.ndarray, " transition"]) -> None:
        """Leave out transitions at some positions, unless there is a newer one."""
        for position, key in self._keyed(positions):
            members, place = self._lists[key[1]], self._place[key]
            if members[place] != position:
                continue
            last = members.pop()
            del self._place[key]
            if last != position:
                members[place] = last
                ((_, moved_key),) = self._keyed(np.array([last]))
                self._place[moved_key] = place
            if not members:
                del self._lists[key[1]]

    def draw(
        self, count: int, generator: torch.Generator, oldest: int | None
    ) -> Int[Tensor, " transition"]:
        """Positions, half evenly from the timed states, half so that all times count alike.

        Args:
            count: How many to draw.
            generator: Source of the randomness.
            oldest: Draw only what was added at this training step or later, if that is enough.
        """
        drawn = self._drawn(count, generator)
        if oldest is None:
            return torch.from_numpy(drawn)
        young = drawn[:0]
        for _ in range(ROUNDS):
            young = np.concatenate([young, drawn[self._columns["inserted"][drawn] >= oldest]])
            if len(young) >= count:
                return torch.from_numpy(young[:count])
            drawn = self._drawn(count, generator)
        return torch.from_numpy(drawn)

    def _drawn(self, count: int, generator: torch.Generator) -> Int64[np.ndarray, " drawn"]:
        lists = [self._lists[left] for left in sorted(self._lists)]
        sizes = np.array([len(members) for members in lists])
        below = (sizes / sizes.sum() + 1 / len(sizes)).cumsum()
        chance = torch.rand(2, count, dtype=torch.float64, generator=generator).numpy()
        chosen = np.searchsorted(below, chance[0] * below[-1], side="right").clip(
            max=len(sizes) - 1
        )
        place = (chance[1] * sizes[chosen]).astype(np.int64)
        return np.array(
            [lists[i][j] for i, j in zip(chosen.tolist(), place.tolist(), strict=True)], np.int64
        )

    def _keyed(
        self, positions: Int64[np.ndarray, " transition"]
    ) -> list[tuple[int, tuple[int, int]]]:
        """Some positions, each with the state id and steps left where its transition starts."""
        state, left = self._columns["state"][positions], self._columns["steps_left"][positions]
        keys = zip(state.tolist(), left.tolist(), strict=True)
        return list(zip(positions.tolist(), keys, strict=True))


def zeros(
    shape: Sequence[int], dtype: DTypeLike, directory: Path | None = None
) -> Shaped[np.ndarray, "*shape"]:
    """A new array of zeros, in RAM that is only taken where it is written to, or in a directory.

    Mapped arrays lie in files that have no name any more, so that they vanish with the
    process, however it ends. Their disk space is reserved, because running out of it later
    would kill the process.

    Raises:
        ConfigError: if the array is larger than this machine's RAM.
        StorageError: if the disk has no room for it.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(shape, dtype)
    if directory is None:
        if size > machine_bytes():
            raise ConfigError(
                f"replay: one of its arrays takes {size / GIB:.1f} GiB and this machine has "
                f"{machine_bytes() / GIB:.1f} GiB; lower replay.capacity or use storage: mapped"
            )
        # Mapped on its own: the heap of a learner writes the zeros, and keeps what is freed.
        return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)
    refuse_gone(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Asked first, because some file systems reserve space by filling it.
        if size > shutil.disk_usage(directory).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with tempfile.TemporaryFile(dir=directory) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            return np.asarray(np.memmap(file, dtype, mode="r+", shape=tuple(shape)))
    except OSError as error:
        raise StorageError(
            f"{directory}: {size / GIB:.1f} GiB of the replay do not fit: "
            f"{error.strerror}; lower replay.capacity or use another disk"
        ) from error


def machine_bytes() -> int:
    """Bytes of RAM of this machine or container."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # A container may allow less than the machine has; "max" means that it does not.
    with contextlib.suppress(OSError, ValueError):
        size = min(size, int(CGROUP_LIMIT.read_text()))
    return size
