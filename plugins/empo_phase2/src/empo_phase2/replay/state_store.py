"""The distinct states of a replay: each once, counted references, ids used again."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.trees import StateDict
from empo_phase2.experience import States
from empo_phase2.replay.kernels import hold, intern, rebuild, release, unpack
from empo_phase2.replay.row_differences import EXPECTED, RowDifferences, pays
from empo_phase2.replay.shape import ReplayShape
from empo_phase2.replay.storage import ArrayStorage

Ids = NDArray[np.int32]
MAX_LAYOUTS = 2**15


class StateStore:
    """Numbers distinct states for as long as their reference count is positive.

    Equal rows of the same layout have the same id while they are held. A state takes
    its row and two bytes, rounded up to eight, or where that is long eight bytes and eight for each
    word that differs from another row of the layout; a bit per goal slot and robot action, four
    bytes for references, and between 8 and 16 in the hash table.

    Args:
        storage: Allocates the arrays.
        shape: Sizes of a state.

    Attributes:
        freed: How many ids were given back so far, and may mean other states now.
    """

    def __init__(self, storage: ArrayStorage, shape: ReplayShape) -> None:
        words, dtype = shape.words, torch.empty(0, dtype=shape.dtype).numpy().dtype
        slots, robot_actions = shape.slots, shape.robot_actions
        self._storage, self._words, self._dtype = storage, words, dtype
        self._torch_dtype = shape.dtype
        self._slots, self._robot_actions = slots, robot_actions
        self._row_bytes = words * dtype.itemsize
        # A key is the row, the layout as int16 at an even place, and zeros; or its differences.
        self._differences: RowDifferences | None = None
        self._pieces = -(-(2 * self._layout_at + 2) // 8)
        if pays(words, dtype):
            self._be_sparse()
        # Packed flags: terminal, then achieved, then available.
        self._flag_bytes = -(-(1 + slots + robot_actions) // 8)
        self._keys = storage.zeros((1024, self._pieces), np.uint64)
        self._bits = storage.zeros((1024, self._flag_bytes), np.uint8)
        self._references = storage.zeros((1024,), np.int32)
        self._table = storage.zeros((2048,), np.int32)
        self._used, self._free, self._count, self.freed = 0, -1, 0, 0

    def __len__(self) -> int:
        """Number of distinct states held."""
        return self._count

    @property
    def _layout_at(self) -> int:
        """Place of the layout in a key, in words of two bytes."""
        return 0 if self._differences is not None else -(-self._row_bytes // 2)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for states."""
        arrays = (self._keys, self._bits, self._references, self._table)
        return sum(array.nbytes for array in arrays)

    @property
    def bytes_per_state(self) -> float:
        """Bytes that one state takes, with its share of the hash table."""
        share = self._table.nbytes / len(self._keys)
        return 8 * self._pieces + self._flag_bytes + self._references.itemsize + share

    def intern(self, states: States) -> Ids:
        """The id of each state, which is now held once more.

        Raises:
            ConfigError: if the states do not look as the store expects, or have too many layouts.
        """
        keys, bits = self._packed(states)
        self._widen(keys.shape[1])
        self._reserve(len(keys))
        ids = np.empty(len(keys), np.int32)
        self._used, self._free, added = intern(
            keys, bits, self._keys, self._bits, self._references, self._table,
            self._used, self._free, ids,
        )  # fmt: skip
        self._count += added
        return ids

    def hold(self, ids: Ids) -> None:
        """Hold states once more; they must be held already."""
        hold(ids, self._references)

    def release(self, ids: Ids) -> None:
        """Hold states once less; those that are not held any more give their ids back."""
        self._free, freed = release(ids, self._keys, self._references, self._table, self._free)
        self._count -= freed
        self.freed += freed

    def take(self, ids: Int[Tensor, " distinct"], device: torch.device) -> States:
        """States by id.

        Raises:
            IndexError: if an id is not in use.
        """
        positions = ids.to("cpu", torch.int64).numpy()
        count, send = len(positions), self._storage.send
        rows, rows_to_send = self._storage.room((count, self._words), self._dtype)
        flags, flags_to_send = self._storage.room(
            (count, 1 + self._slots + self._robot_actions), np.bool_
        )
        layout, layout_to_send = self._storage.room((count,), np.int64)
        words = self._keys.view(self._dtype)
        layouts = self._keys.view(np.int16)[:, self._layout_at]
        wrong = unpack(
            positions, words, layouts, self._bits, self._references, self._used,
            rows if self._differences is None else np.empty((count, 0), self._dtype), layout, flags,
        )  # fmt: skip
        if wrong >= 0:
            raise IndexError(
                f"state id {positions[wrong]} is not in use: {self._count} states are held, and "
                "ids are valid until the next transitions are added"
            )
        if self._differences is not None:
            self._differences.unpack(self._keys, positions, layout, rows)
        state_flags = send(flags_to_send, device)
        return States(
            rows=send(rows_to_send, device),
            layout=send(layout_to_send, device),
            terminal=state_flags[:, 0],
            achieved=state_flags[:, 1 : 1 + self._slots],
            available=state_flags[:, 1 + self._slots :],
        )

    def clear(self) -> None:
        """Forget all states."""
        self._table[:] = 0
        self._used, self._free, self._count = 0, -1, 0

    def state_dict(self) -> StateDict:
        """Everything, in tensors that share the store's memory."""
        differences = self._differences
        whole = differences and {
            "rows": torch.from_numpy(differences.bases),
            "layouts": torch.from_numpy(differences.layouts),
        }
        return {
            "whole": whole,
            "keys": torch.from_numpy(self._keys[: self._used].view(np.int64)),
            "bits": torch.from_numpy(self._bits[: self._used]),
            "references": torch.from_numpy(self._references[: self._used]),
            "free": self._free,
            "count": self._count,
            "freed": self.freed,
        }

    def load_state_dict(self, tree: StateDict) -> None:
        """Take over what ``state_dict`` returned; ids stay as they were."""
        self.clear()
        whole, used = tree.get("whole"), len(tree["keys"])
        self._differences = None  # Older checkpoints have whole rows only.
        if whole is not None:
            differences = self._be_sparse()
            differences.bases, differences.layouts = whole["rows"].numpy(), whole["layouts"].numpy()
        self._widen(tree["keys"].shape[1])
        self._reserve(used)
        self._keys[:used] = tree["keys"].numpy().view(np.uint64)
        self._bits[:used] = tree["bits"].numpy()
        self._references[:used] = tree["references"].numpy()
        self._used, self._free, self._count = used, int(tree["free"]), int(tree["count"])
        self.freed = int(tree["freed"])
        rebuild(self._keys, self._references, used, self._table)

    def _packed(self, states: States) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """Keys and flags of states as they are stored."""
        count = len(states.rows)
        rows = states.rows.numpy()
        expected = (self._words, self._torch_dtype, self._slots, self._robot_actions)
        got = (rows.shape[1], states.rows.dtype, states.achieved.shape[1])
        if (*got, states.available.shape[1]) != expected:
            raise ConfigError(
                f"replay: states have {got[0]} words of {got[1]}, {got[2]} goals and "
                f"{states.available.shape[1]} robot actions where it was built for {expected[0]} "
                f"of {expected[1]}, {expected[2]} and {expected[3]}"
            )
        layout = states.layout.numpy()
        if count and not 0 <= layout.min() <= layout.max() < MAX_LAYOUTS:
            raise ConfigError(
                f"replay: layouts from {layout.min()} to {layout.max()}; it tells layouts from 0 "
                f"to {MAX_LAYOUTS - 1} apart"
            )
        if self._differences is None:
            keys = np.zeros((count, self._pieces), np.uint64)
            keys.view(rows.dtype)[:, : self._words] = rows
            keys.view(np.int16)[:, self._layout_at] = layout
        else:
            keys = self._differences.packed(rows, layout, self._pieces)
        flags = np.empty((count, 1 + self._slots + self._robot_actions), np.bool_)
        flags[:, 0] = states.terminal.numpy()
        flags[:, 1 : 1 + self._slots] = states.achieved.numpy()
        flags[:, 1 + self._slots :] = states.available.numpy()
        return keys, np.packbits(flags, 1, "little")

    def _be_sparse(self) -> RowDifferences:
        """Keep rows as differences from now on."""
        self._differences = RowDifferences(self._words, self._dtype)
        self._pieces = EXPECTED
        return self._differences

    def _widen(self, pieces: int) -> None:
        """Make room for more pieces of each state."""
        self._pieces = pieces
        before = self._keys
        if before.shape[1] == pieces:
            return
        self._keys = self._storage.zeros((len(before), pieces), np.uint64)
        if before.shape[1] < pieces:  # Else there are no states.
            self._keys[: self._used, : before.shape[1]] = before[: self._used]
        self._table[:] = 0
        rebuild(self._keys, self._references, self._used, self._table)

    def _reserve(self, more: int) -> None:
        """Make room for more states."""
        length = len(self._keys)
        while length < self._count + more:
            length *= 2
        if length == len(self._keys):
            return
        self._keys = self._storage.enlarged(self._keys, length)
        self._bits = self._storage.enlarged(self._bits, length)
        self._references = self._storage.enlarged(self._references, length)
        self._table = self._storage.zeros((2 * length,), np.int32)
        rebuild(self._keys, self._references, self._used, self._table)
