"""The recurrent layer: one step, or whole segments with episodes that begin inside."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

_Weights: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
"""Weights of inputs and of the state, biases of inputs and of the state."""
CLASSES = 8
"""Pieces are divided into so many classes of length; fewer waste steps, more waste calls."""


class Recurrent(nn.Module):
    """An LSTM or GRU whose state is one row per agent; the LSTM's h and c lie side by side."""

    def __init__(self, kind: Literal["lstm", "gru"], inputs: int, size: int) -> None:
        super().__init__()
        self._is_lstm = kind == "lstm"
        self.layer = (nn.LSTM if self._is_lstm else nn.GRU)(inputs, size)
        self.features = size
        self.units = 2 * size if self._is_lstm else size

    def step(
        self, features: Float[Tensor, "agent word"], memory: Float[Tensor, "agent unit"]
    ) -> tuple[Float[Tensor, "agent feature"], Float[Tensor, "agent unit"]]:
        """Features after one step, and the next memory."""
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
        """The same as ``step`` step by step, with memory reset where episodes begin."""
        memory = forgotten(memory, starts[0])
        if not starts[1:].any():
            return self._fused(features, memory)
        # On a CPU there is no fused GRU, and pieces only add work.
        if self._is_lstm or features.is_cuda:
            return self._in_pieces(features, memory, starts)
        return self._by_steps(features, memory, starts)

    def _fused(
        self, features: Float[Tensor, "time segment word"], memory: Float[Tensor, "segment unit"]
    ) -> Float[Tensor, "time segment feature"]:
        """All steps of segments in which no episode begins."""
        state = [part[None].contiguous() for part in memory.chunk(1 + self._is_lstm, 1)]
        hidden: Tensor = self.layer(features, tuple(state) if self._is_lstm else state[0])[0]
        return hidden

    def _by_steps(
        self,
        features: Float[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
    ) -> Float[Tensor, "time segment feature"]:
        steps = []
        for feature, start in zip(features.unbind(0), starts.unbind(0), strict=True):
            hidden, memory = self.step(feature, forgotten(memory, start))
            steps.append(hidden)
        return torch.stack(steps)

    def _in_pieces(
        self,
        features: Float[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
    ) -> Float[Tensor, "time segment feature"]:
        """Cut segments where episodes begin, and run pieces of like length together.

        A piece runs on beyond its end, into whatever follows, up to the length of its class;
        what that gives is dropped.
        """
        times, segments = starts.shape
        rows = features.transpose(0, 1).flatten(0, 1)  # Segment by segment.
        begins = starts.clone()
        begins[0] = True
        first = begins.t().flatten().nonzero()[:, 0]
        length = torch.diff(first, append=first.new_tensor([len(rows)]))
        state = forgotten(memory[first // times], first % times > 0)
        grain = -(-times // CLASSES)
        class_length = ((length + grain - 1) // grain * grain).clamp(max=times)
        outputs, places = [], []
        for steps in torch.unique(class_length).tolist():
            chosen = (class_length == steps).nonzero()[:, 0]
            step = torch.arange(steps, device=rows.device).unsqueeze(1)
            place = (first[chosen] + step).flatten()
            inside = (step < length[chosen]).flatten().nonzero()[:, 0]
            read = rows.index_select(0, place.clamp(max=len(rows) - 1))
            hidden = self._fused(read.view(steps, len(chosen), -1), state[chosen])
            outputs.append(hidden.flatten(0, 1).index_select(0, inside))
            places.append(place[inside])
        place = torch.cat(places)
        back = torch.empty_like(place)
        back[place] = torch.arange(len(place), device=place.device)
        hidden = torch.cat(outputs).index_select(0, back)
        return hidden.view(segments, times, self.features).transpose(0, 1)


def forgotten(
    memory: Float[Tensor, "agent unit"], starts: Bool[Tensor, " agent"]
) -> Float[Tensor, "agent unit"]:
    """The memory, zero where an episode begins, whatever it was."""
    return memory.masked_fill(starts.unsqueeze(1), 0.0)
