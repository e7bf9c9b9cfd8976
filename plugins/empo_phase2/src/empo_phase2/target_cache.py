"""Values of timed states by target networks, each computed once until these networks change."""

from __future__ import annotations

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

    def missing(self, key: Int[Tensor, " distinct"]) -> Int[Tensor, " new"]:
        """The timed states without values; all of them where there is no room for more.

        Args:
            key: A number for each timed state, every one once.
        """
        keys = key.cpu().numpy()
        new = keys[self._keys.find(keys[:, None]) < 0]
        columns = sum(arrays[0].numel() for arrays in self.values.values())
        if len(new) and (len(self) + len(new)) * columns > MOST_NUMBERS:
            self.clear()
            new = keys
        return torch.from_numpy(new).to(key.device)

    def add(self, key: Int[Tensor, " new"], values: Values) -> None:
        """Keep values of timed states that have none yet."""
        if len(self):
            values = {name: torch.cat([self.values[name], new]) for name, new in values.items()}
        self._keys.number(key.cpu().numpy()[:, None])
        self.values = values

    def read(self, key: Int[Tensor, " distinct"]) -> Values:
        """The values of timed states that have some."""
        place = torch.from_numpy(self._keys.find(key.cpu().numpy()[:, None])).to(key)
        return {name: column[place] for name, column in self.values.items()}

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly."""
        key = torch.from_numpy(self._keys.rows[:, 0].copy())
        return {"renumberings": self._renumberings, "key": key, "values": dict(self.values)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        self._renumberings = whole_number(state_dict["renumberings"])
        if len(state_dict["key"]):
            self.add(state_dict["key"], dict(state_dict["values"]))
