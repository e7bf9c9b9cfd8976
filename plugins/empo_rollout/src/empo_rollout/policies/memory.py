"""The recurrent layer: one step, or whole segments with episodes that begin inside."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

_Weights: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
"""Weights of inputs and of the state, biases of inputs and of the state."""


class Recurrent(nn.Module):
    """An LSTM or GRU whose state is one row per slot; the LSTM's h and c lie side by side."""

    def __init__(self, kind: Literal["lstm", "gru"], inputs: int, size: int) -> None:
        super().__init__()
        self._is_lstm = kind == "lstm"
        self.layer = (nn.LSTM if self._is_lstm else nn.GRU)(inputs, size)
        self.features = size
        self.units = 2 * size if self._is_lstm else size

    def step(
        self, features: Float[Tensor, "slot word"], memory: Float[Tensor, "slot unit"]
    ) -> tuple[Float[Tensor, "slot feature"], Float[Tensor, "slot unit"]]:
        """What is made of one step's features, and the next memory."""
        weights = cast(_Weights, self.layer._flat_weights)
        if not self._is_lstm:
            hidden = torch.gru_cell(features, memory, *weights)
            return hidden, hidden.float()
        hidden, cell = torch.lstm_cell(features, memory.chunk(2, 1), *weights)
        return hidden, torch.cat([hidden, cell], 1).float()

    def unroll(
        self,
        features: Float[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
    ) -> Float[Tensor, "time segment feature"]:
        """What ``step`` would make of each, were memory forgotten where episodes begin."""
        memory = forgotten(memory, starts[0])
        if not starts[1:].any():
            return self._fused(features, memory)
        steps = []
        for feature, start in zip(features.unbind(0), starts.unbind(0), strict=True):
            hidden, memory = self.step(feature, forgotten(memory, start))
            steps.append(hidden)
        return torch.stack(steps)

    def _fused(
        self, features: Float[Tensor, "time segment word"], memory: Float[Tensor, "segment unit"]
    ) -> Float[Tensor, "time segment feature"]:
        state = [part[None].contiguous() for part in memory.chunk(2 if self._is_lstm else 1, 1)]
        hidden: Tensor = self.layer(features, tuple(state) if self._is_lstm else state[0])[0]
        return hidden


def forgotten(
    memory: Float[Tensor, "slot unit"], starts: Bool[Tensor, " slot"]
) -> Float[Tensor, "slot unit"]:
    """The memory, zero where an episode begins, whatever it was."""
    return memory.masked_fill(starts.unsqueeze(1), 0.0)
