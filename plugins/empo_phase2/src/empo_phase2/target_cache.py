"""Values of timed states by target networks, each computed once until these networks change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.trees import StateDict, whole_number
from empo_phase2.quantities import Values
from empo_worlds.row_table import RowTable

MOST_NUMBERS = 2**21
"""At most about so many numbers are kept."""


class TargetCache:
    """Values of timed states that were needed before.

    They are part of the state of a run: the last digits of a network's answers depend on what
    else it was asked at the same time, so that answers to new questions would be others.

    Attributes:
        values: Those of all timed states so far, in order of first need.
    """

    def __init__(self) -> None:
        self._renumberings = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything, as networks have changed."""
        self._keys, self.values = RowTable(1, np.dtype(np.int64)), Values()

    def check(self, renumberings: int) -> None:
        """Forget everything where the replay has given new ids, so that keys mean others."""
        if renumberings != self._renumberings:
            self._renumberings = renumberings
            self.clear()

    def __len__(self) -> int:
        """Number of timed states."""
        return self._keys.count

    def read(
        self, key: Int[Tensor, " distinct"], forward: Callable[[Int[Tensor, " new"]], Values]
    ) -> Values:
        """The values of timed states, those without any so far being computed.

        Args:
            key: A number for each timed state, every one once.
            forward: From positions in ``key`` to the values of the timed states there.
        """
        keys = key.cpu().numpy()[:, None]
        place = self._keys.find(keys)
        new = np.flatnonzero(place < 0)
        if len(new):
            columns = sum(values[0].numel() for values in self.values.values())
            if (len(self) + len(new)) * columns > MOST_NUMBERS:
                self.clear()
                new = np.arange(len(keys))
            values = forward(torch.from_numpy(new).to(key.device))
            if len(self):
                values = {name: torch.cat([self.values[name], values[name]]) for name in values}
            place[new], self.values = self._keys.number(keys[new]), values
        position = torch.from_numpy(place).to(key)
        return {name: values[position] for name, values in self.values.items()}

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly."""
        key = torch.from_numpy(self._keys.rows[:, 0].copy())
        return {"renumberings": self._renumberings, "key": key, "values": dict(self.values)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        self._renumberings = whole_number(state_dict["renumberings"])
        self._keys.number(state_dict["key"].cpu().numpy()[:, None])
        self.values = dict(state_dict["values"])
