"""Values of timed states by target networks, each computed once until these networks change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch import Tensor

from empo_core.trees import StateDict, whole_number
from empo_learning.saved_state import tensor_like
from empo_phase2.experience import TimedStates
from empo_worlds.row_table import RowTable

MOST_NUMBERS = 2**21
"""At most about so many numbers are kept."""

Values = dict[str, Tensor]
"""Values of timed states by name, ``[distinct ...]``."""


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
        """Forget everything."""
        self._keys, self.values = RowTable(1, np.dtype(np.int64)), Values()
        self._num_queries, self._expected = 0, np.zeros(0, np.int64)

    def refresh(self) -> None:
        """Forget all values, as networks have changed.

        Where most were needed several times, all are computed anew with the next ones: together,
        which is quicker than a few in each step.
        """
        expected = self._key if self._num_queries > 2 * len(self) else self._key[:0]
        self.clear()
        self._expected = expected

    def check(self, renumberings: int) -> None:
        """Forget all values where ids of states mean others than before.

        Args:
            renumberings: How often the replay gave new ids so far.
        """
        if renumberings != self._renumberings:
            self._renumberings = renumberings
            self.clear()

    def __len__(self) -> int:
        """Number of timed states."""
        return self._keys.count

    def __call__(
        self,
        key: Int[Tensor, " distinct"],
        states: Callable[[Tensor], TimedStates],
        value: Callable[[TimedStates], Values],
    ) -> Int[Tensor, " distinct"]:
        """Positions of timed states in ``values``, which are computed where they are not known.

        Args:
            key: A number for each timed state, every one once.
            states: The timed states of such numbers.
            value: Computes values.
        """
        keys = key.cpu().numpy()
        self._num_queries += len(keys)
        place = self._keys.find(keys[:, None])
        if len(place) and place.min() < 0:
            new = keys[place < 0]
            if not len(self) and len(self._expected):
                new = np.unique(np.concatenate([self._expected, new]))
            elif self._is_full(len(new)):
                self.clear()
                return self(key, states, value)
            self._add(new, value(states(torch.from_numpy(new).to(key.device))))
            place = self._keys.find(keys[:, None])
        return torch.from_numpy(place).to(key)

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly."""
        return {
            "renumberings": self._renumberings,
            "key": torch.from_numpy(self._key),
            "values": dict(self.values),
            "asked": self._num_queries,
            "expected": torch.from_numpy(self._expected),
        }

    def load_state_dict(self, state_dict: StateDict, columns: Values) -> None:
        """Restore what ``state_dict`` returned.

        Args:
            state_dict: The state.
            columns: Values of no timed state, by name.

        Raises:
            ValueError: if the state has values of another shape or type.
        """
        self.clear()
        self._renumberings = whole_number(state_dict["renumberings"])
        no_key = torch.zeros(0, dtype=torch.int64)
        key, expected = state_dict["key"], state_dict["expected"]
        key, expected = (
            tensor_like(tensor, no_key.new_zeros(len(tensor))) for tensor in (key, expected)
        )
        values, like = state_dict["values"], {}
        if len(key):
            for name, column in columns.items():
                shape = (len(key), *column.shape[1:])
                like[name] = tensor_like(values[name], column.new_zeros(()).expand(shape))
        self._add(key.numpy(), like)
        self._num_queries, self._expected = whole_number(state_dict["asked"]), expected.numpy()

    @property
    def _key(self) -> Int64[np.ndarray, " distinct"]:
        return self._keys.rows[:, 0].copy()

    def _is_full(self, more: int) -> bool:
        columns = sum(arrays[0].numel() for arrays in self.values.values())
        return len(self) > 0 and (len(self) + more) * columns > MOST_NUMBERS

    def _add(self, key: Int64[np.ndarray, " distinct"], values: Values) -> None:
        if len(self):
            values = {name: torch.cat([self.values[name], new]) for name, new in values.items()}
        self._keys.number(key[:, None])
        self.values = values
