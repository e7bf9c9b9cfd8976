"""Values of timed states by target networks, each computed once until these networks change."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.trees import StateDict
from empo_phase2.experience import TimedStates

MOST_NUMBERS = 2**22
"""At most about so many values are kept."""

Values = dict[str, Tensor]
"""Values of timed states by name, ``[distinct ...]``."""


class TargetCache:
    """Values of timed states that were needed before.

    They are part of the state of a run: the last digits of a network's answers depend on what
    else it was asked at the same time, so that answers to new questions would be others.
    """

    def __init__(self) -> None:
        self._freed_states = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._key, self._values = torch.zeros(0, dtype=torch.int64), Values()
        self._asked, self._expected = 0, self._key

    def refresh(self) -> None:
        """Forget all values, as networks have changed.

        Where most were needed several times, all are computed anew with the next ones: together,
        which is quicker than a few in each step.
        """
        expected = self._key if self._asked > 2 * len(self) else self._key[:0]
        self.clear()
        self._expected = expected

    def check(self, freed_states: int) -> None:
        """Forget all values where ids of states may mean others than before.

        Args:
            freed_states: Number of ids that were given back so far.
        """
        if freed_states != self._freed_states:
            self._freed_states = freed_states
            self.clear()

    def __len__(self) -> int:
        """Number of timed states."""
        return self._key.shape[0]

    def __call__(
        self,
        key: Int[Tensor, " distinct"],
        states: Callable[[Tensor], TimedStates],
        value: Callable[[TimedStates], Values],
    ) -> Values:
        """Values of timed states, computed where they are not known.

        Args:
            key: A number for each timed state, in rising order.
            states: The timed states of such numbers.
            value: Computes values.
        """
        self._asked += len(key)
        if not len(self):
            self._key = torch.unique(torch.cat([self._expected, key]))
            self._values = value(states(self._key))
        place = torch.searchsorted(self._key, key).clamp_(max=len(self) - 1)
        new = key[self._key[place] != key]
        if len(new):
            if self._is_full(len(new)):
                self.clear()
                return self(key, states, value)
            self._add(new, value(states(new)))
            place = torch.searchsorted(self._key, key)
        return {name: known[place] for name, known in self._values.items()}

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly."""
        return {
            "freed_states": self._freed_states,
            "key": self._key,
            "values": dict(self._values),
            "asked": self._asked,
            "expected": self._expected,
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._freed_states = state_dict["freed_states"]
        self._key, self._values = state_dict["key"], dict(state_dict["values"])
        self._asked, self._expected = state_dict["asked"], state_dict["expected"]

    def _is_full(self, more: int) -> bool:
        columns = sum(known[0].numel() for known in self._values.values())
        return (len(self) + more) * columns > MOST_NUMBERS

    def _add(self, key: Int[Tensor, " distinct"], values: Values) -> None:
        self._key, order = torch.cat([self._key, key]).sort()
        for name, known in self._values.items():
            self._values[name] = torch.cat([known, values[name]])[order]
