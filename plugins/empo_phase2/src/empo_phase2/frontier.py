"""Frontier of exploration: timed states seen as successors but never entered."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from empo_core.trees import StateDict
from empo_core.types import WorldSpec
from empo_worlds.row_table import RowTable

LIMIT = 1_000_000
"""Once more timed states than this are known, the older half is dropped."""
NOWHERE = -1


class Frontier:
    """Set of timed states that were seen as successors, those first that were never entered.

    Random walks take very long to enter all reachable states; an actor, which knows all
    successors of its states, can do so in a few steps per timed state. No operation takes longer
    where more timed states are known, but for dropping half of them.
    """

    def __init__(self, spec: WorldSpec) -> None:
        self._words = spec.state_words
        # Which timed states wait, and the place of each one among them.
        self._waiting: NDArray[np.int64]
        self._place: NDArray[np.int64]
        self._state_dtype = spec.state_dtype
        self._dtype = torch.promote_types(spec.state_dtype, torch.int32)
        self._forget()

    def enter(self, rows: Int[Tensor, "env word"], steps_left: Int[Tensor, " env"]) -> None:
        """Mark the timed states that episodes are in."""
        for number in self._number(rows, steps_left).tolist():
            place = int(self._place[number])
            if place != NOWHERE:
                self._num_waiting -= 1
                self._put(int(self._waiting[self._num_waiting]), place)
                self._place[number] = NOWHERE

    def see(self, rows: Int[Tensor, "item word"], steps_left: Int[Tensor, " item"]) -> None:
        """Add timed states that are successors and not terminal."""
        if self._table.count > LIMIT:
            self._drop_older_half()
        self._number(rows, steps_left)

    def is_entered(
        self, rows: Int[Tensor, "env word"], steps_left: Int[Tensor, " env"]
    ) -> Bool[Tensor, " env"]:
        """True where an episode has been in a timed state."""
        number = self._number(rows, steps_left)
        return torch.from_numpy(self._place[number] == NOWHERE)

    def draw(
        self, count: int, generator: torch.Generator
    ) -> tuple[Int[Tensor, "drawn word"], Int[Tensor, " drawn"]]:
        """Timed states that were never entered, drawn evenly; once there are too few, any known.

        Fewer than ``count`` only where nothing is known yet.
        """
        num_rows = self._table.count
        drawn = self._drawn(count, generator)
        if len(drawn) < count and num_rows:
            others = torch.randint(num_rows, (count - len(drawn),), generator=generator)
            drawn = np.concatenate([drawn, others.numpy()])
        return self._at(drawn)

    def draw_new(
        self, count: int, generator: torch.Generator
    ) -> tuple[Int[Tensor, "drawn word"], Int[Tensor, " drawn"]]:
        """At most so many timed states that were never entered, drawn evenly."""
        return self._at(self._drawn(count, generator))

    def state_dict(self) -> StateDict:
        """The timed states, and which of them wait, in the order on which draws depend."""
        return {
            "keys": torch.from_numpy(self._table.rows.copy()),
            "waiting": torch.from_numpy(self._waiting[: self._num_waiting].copy()),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._restore(state_dict["keys"].numpy(), state_dict["waiting"].numpy())

    def _drawn(self, count: int, generator: torch.Generator) -> NDArray[np.int64]:
        """Numbers of distinct timed states that wait: the first part of a shuffle."""
        count = min(count, self._num_waiting)
        chance = torch.rand(count, generator=generator, dtype=torch.float64).tolist()
        for i in range(count):
            j = i + int(chance[i] * (self._num_waiting - i))
            first, other = int(self._waiting[i]), int(self._waiting[j])
            self._put(other, i)
            self._put(first, j)
        return self._waiting[:count].copy()

    def _put(self, number: int, place: int) -> None:
        self._waiting[place], self._place[number] = number, place

    def _at(
        self, numbers: NDArray[np.int64]
    ) -> tuple[Int[Tensor, "drawn word"], Int[Tensor, " drawn"]]:
        keys = torch.from_numpy(self._table.rows[numbers].copy())
        return keys[:, :-1].to(self._state_dtype), keys[:, -1].long()

    def _number(self, rows: Tensor, steps_left: Tensor) -> NDArray[np.int32]:
        """Numbers of timed states; new ones wait."""
        before = self._table.count
        keys = torch.cat([rows.to(self._dtype), steps_left[:, None].to(self._dtype)], 1)
        number = self._table.number(keys.numpy())
        added = np.arange(before, self._table.count)
        self._make_room()
        places = self._num_waiting + np.arange(len(added))
        self._waiting[places], self._place[added] = added, places
        self._num_waiting += len(added)
        return number

    def _make_room(self) -> None:
        size, count = len(self._place), self._table.count
        if count > size:
            self._place = np.resize(self._place, 2 * count)
            self._waiting = np.resize(self._waiting, 2 * count)

    def _drop_older_half(self) -> None:
        first = self._table.count // 2
        waiting = self._waiting[: self._num_waiting] - first
        self._restore(self._table.rows[first:].copy(), waiting[waiting >= 0])

    def _forget(self) -> None:
        dtype = torch.empty(0, dtype=self._dtype).numpy().dtype
        self._table = RowTable(self._words + 1, dtype)
        self._num_waiting = 0
        self._waiting, self._place = np.zeros(1024, np.int64), np.zeros(1024, np.int64)

    def _restore(self, keys: NDArray[np.int64], waiting: NDArray[np.int64]) -> None:
        self._forget()
        self._table.number(keys)
        self._make_room()
        self._place[:] = NOWHERE
        self._place[waiting] = np.arange(len(waiting))
        self._waiting[: len(waiting)] = waiting
        self._num_waiting = len(waiting)
