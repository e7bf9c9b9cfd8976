"""One-hot features of the states of an explicit game."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.features import Features, FeatureShape, Featurizer


@dataclass(frozen=True, slots=True)
class OneHotFeatures(Featurizer):
    """One-hot encoding of the state's number."""

    num_states: int

    @property
    def shape(self) -> FeatureShape:
        """One global number per state of the game."""
        return FeatureShape(globals=self.num_states)

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``.

        Raises:
            WorldError: if the rows have more than one word.
        """
        if states.ndim != 2 or states.shape[1] != 1:
            raise WorldError(f"states must have shape [state, 1]; got {list(states.shape)}")
        count = len(states)
        one_hot = torch.zeros((count, self.num_states), device=states.device)
        return Features(
            one_hot.new_zeros(count, 0, 0, 0),
            one_hot.scatter_(1, states.long(), 1.0),
            one_hot.new_zeros(count, 0, 0),
            one_hot.new_zeros(count, 0, 0),
        )
