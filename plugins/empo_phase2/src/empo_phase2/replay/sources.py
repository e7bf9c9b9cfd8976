"""The newest of the transitions that start in the same timed state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from empo_core.trees import StateDict
from empo_phase2.replay.records import TransitionRecords

Places = NDArray[np.int64]


class NewestSources:
    """Position of the newest transition from each distinct (state, steps left).

    They are kept from the first time that they are drawn from. State ids are given away again,
    but only after the last transition from a state is gone.
    """

    def __init__(self, records: TransitionRecords) -> None:
        self._records = records
        self.clear()

    def clear(self) -> None:
        """Drop everything."""
        self._positions: Places | None = None
        self._place: dict[tuple[int, int], int] = {}

    def add(self, new: Places) -> None:
        """Transitions were written at some positions, the oldest first."""
        if self._positions is None:
            return
        for position, key in zip(new.tolist(), self._keys(new), strict=True):
            place = self._place.setdefault(key, len(self._place))
            self._positions[place] = position

    def evict(self, places: Places) -> None:
        """The oldest transitions, at some positions, are about to go."""
        if self._positions is None:
            return
        for position, key in zip(places.tolist(), self._keys(places), strict=True):
            place = self._place[key]
            if self._positions[place] == position:  # None is newer.
                last = self._positions[len(self._place) - 1 :][:1]
                (last_key,) = self._keys(last)
                self._positions[place], self._place[last_key] = last[0], place
                del self._place[key]

    def drawn(
        self, count: int, generator: torch.Generator, all_places: Places, oldest: int | None
    ) -> Int[Tensor, " transition"]:
        """Positions drawn half evenly from the timed states, half so that all times count alike.

        Args:
            count: How many to draw.
            generator: Source of the randomness.
            all_places: Positions of all transitions, the oldest first.
            oldest: Draw only what was added at this training step or later, if that is enough.
        """
        if self._positions is None:
            self._start(all_places)
        positions = self._used_positions()
        if oldest is not None:
            young = positions[self._records.inserted[positions] >= oldest]
            positions = young if len(young) >= count else positions
        _, left = self._records.sources(positions)
        same_time = np.bincount(left)
        weight = 1 / len(left) + 1 / (same_time[left] * np.count_nonzero(same_time))
        below = np.cumsum(weight)
        chance = torch.rand(count, dtype=torch.float64, generator=generator).numpy() * below[-1]
        chosen = np.searchsorted(below, chance, side="right").clip(max=len(below) - 1)
        return torch.from_numpy(positions[chosen])

    def state_dict(self) -> StateDict:
        """The positions that are kept, in the order on which draws depend."""
        return {"sources": torch.from_numpy(self._used_positions())}

    def load_state_dict(self, tree: StateDict) -> None:
        """Restore what ``state_dict`` returned, once the records are restored."""
        if len(tree["sources"]):
            self._start(tree["sources"].numpy())

    def _start(self, all_places: Places) -> None:
        self._positions = np.zeros(len(self._records.inserted), np.int64)
        self.add(all_places)

    def _used_positions(self) -> Places:
        """One position per distinct timed state."""
        positions = np.empty(0, np.int64) if self._positions is None else self._positions
        return positions[: len(self._place)]

    def _keys(self, positions: Places) -> Iterator[tuple[int, int]]:
        """State id and steps left of some transitions."""
        state, steps_left = self._records.sources(positions)
        return zip(state.tolist(), steps_left.tolist(), strict=True)
