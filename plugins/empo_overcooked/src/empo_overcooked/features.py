"""State rows as numbers that a network reads; needs no world."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.features import Features, FeatureShape


@dataclass(frozen=True, slots=True)
class KitchenFeatures:
    """A 1 for the value that each word has, and 0 for those that it does not have.

    Attributes:
        values: How many values each word has.
    """

    values: tuple[int, ...]

    @property
    def shape(self) -> FeatureShape:
        """Numbers about the kitchen as a whole, and no others."""
        return FeatureShape(globals=sum(self.values))

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``.

        Raises:
            WorldError: The rows have another length.
        """
        if states.ndim != 2 or states.shape[1] != len(self.values):
            raise WorldError(
                f"states must have shape [state, {len(self.values)}]; got {list(states.shape)}"
            )
        first = torch.tensor([0, *accumulate(self.values[:-1])], device=states.device)
        found = torch.zeros((len(states), sum(self.values)), device=states.device)
        found.scatter_(1, states.long() + first, 1.0)
        empty = found.new_zeros
        return Features(
            empty(len(states), 0, 0, 0), found, empty(len(states), 0, 0), empty(len(states), 0, 0)
        )
