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
"""Once more timed states than this are known, all are dropped."""


class Frontier:
    """Set of timed states that were seen as successors, each with a mark if it was entered.

    Random walks take very long to enter all reachable states; an actor, which knows all
    successors of its states, can do so in a few steps per timed state.
    """

    def __init__(self, spec: WorldSpec) -> None:
        self._words = spec.state_words
        self._entered: NDArray[np.bool_]
        self._state_dtype = spec.state_dtype
        self._dtype = torch.promote_types(spec.state_dtype, torch.int32)
        self._forget()

    def enter(self, rows: Int[Tensor, "env word"], steps_left: Int[Tensor, " env"]) -> None:
        """Mark the timed states that episodes are in."""
        number = self._number(rows, steps_left)  # First, for it may enlarge the marks.
        self._entered[number] = True

    def see(self, rows: Int[Tensor, "item word"], steps_left: Int[Tensor, " item"]) -> None:
        """Add timed states that are successors and not terminal."""
        if self._table.count > LIMIT:
            self._forget()
        self._number(rows, steps_left)

    def is_entered(
        self, rows: Int[Tensor, "env word"], steps_left: Int[Tensor, " env"]
    ) -> Bool[Tensor, " env"]:
        """True where an episode has been in a timed state."""
        number = self._number(rows, steps_left)
        return torch.from_numpy(self._entered[number])

    def draw(
        self, count: int, generator: torch.Generator
    ) -> tuple[Int[Tensor, "drawn word"], Int[Tensor, " drawn"]]:
        """Timed states that were never entered, drawn evenly; once there are too few, any known.

        Fewer than ``count`` only where nothing is known yet.
        """
        num_rows = self._table.count
        drawn = self._waiting(count, generator)
        if len(drawn) < count and num_rows:
            others = torch.randint(num_rows, (count - len(drawn),), generator=generator)
            drawn = np.concatenate([drawn, others.numpy()])
        return self._at(drawn)

    def draw_new(
        self, count: int, generator: torch.Generator
    ) -> tuple[Int[Tensor, "drawn word"], Int[Tensor, " drawn"]]:
        """At most so many timed states that were never entered, drawn evenly."""
        return self._at(self._waiting(count, generator))

    def state_dict(self) -> StateDict:
        """The timed states and their marks."""
        count = self._table.count
        return {
            "keys": torch.from_numpy(self._table.rows.copy()),
            "entered": torch.from_numpy(self._entered[:count].copy()),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._forget()
        self._table.number(state_dict["keys"].numpy())
        self._make_room()
        self._entered[: self._table.count] = state_dict["entered"].numpy()

    def _waiting(self, count: int, generator: torch.Generator) -> NDArray[np.int64]:
        waiting = np.flatnonzero(~self._entered[: self._table.count])
        drawn = torch.randperm(len(waiting), generator=generator)[:count].numpy()
        return np.take(waiting, drawn)

    def _at(
        self, numbers: NDArray[np.int64]
    ) -> tuple[Int[Tensor, "drawn word"], Int[Tensor, " drawn"]]:
        keys = torch.from_numpy(self._table.rows[numbers].copy())
        return keys[:, :-1].to(self._state_dtype), keys[:, -1].long()

    def _number(self, rows: Tensor, steps_left: Tensor) -> NDArray[np.int32]:
        keys = torch.cat([rows.to(self._dtype), steps_left[:, None].to(self._dtype)], 1)
        number = self._table.number(keys.numpy())
        self._make_room()
        return number

    def _make_room(self) -> None:
        if self._table.count > len(self._entered):
            larger = np.zeros(2 * self._table.count, np.bool_)
            larger[: len(self._entered)] = self._entered
            self._entered = larger

    def _forget(self) -> None:
        kind = torch.empty(0, dtype=self._dtype).numpy().dtype
        self._table = RowTable(self._words + 1, kind)
        self._entered = np.zeros(1024, np.bool_)
