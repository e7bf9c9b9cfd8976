"""Many equal networks as one: their weights lie in common tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from empo_latent.networks.functions import mish

WEIGHT_STD = 0.02
"""Standard deviation of weights at first."""


class MlpEnsemble(nn.Module):
    """Multilayer perceptrons of equal shape, evaluated together.

    Hidden layers are linear, then (the first, in training) dropout, then LayerNorm, then Mish;
    the output is linear, and then optionally LayerNorm and a function (Hansen et al. 2024).
    Every tensor of parameters has the heads on its first axis, however many there are, and is
    initialised the same way.
    """

    def __init__(
        self,
        heads: int,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        final: Callable[[Tensor], Tensor] | None = None,
        final_norm: bool = True,
        dropout: float = 0.0,
        zero_output: bool = False,
        generator: torch.Generator,
    ) -> None:
        """Make the networks.

        Args:
            heads: How many there are.
            inputs: Numbers they take.
            hidden: Units of each hidden layer.
            outputs: Numbers they give.
            final: What is done to the output; None: nothing.
            final_norm: Whether LayerNorm comes before that.
            dropout: Share of the first layer that is left out in training.
            zero_output: Whether the weights of the last layer are 0 at first.
            generator: What weights are drawn with.
        """
        super().__init__()
        self.heads, self.outputs = heads, outputs
        self._final, self._dropout = final, dropout
        sizes = [inputs, *hidden, outputs]
        # As nn.Linear has them, output first: so all heads together are one nn.Linear too.
        self.weights = nn.ParameterList(
            torch.empty(heads, after, before) for before, after in itertools.pairwise(sizes)
        )
        self.biases = nn.ParameterList(torch.zeros(heads, 1, size) for size in sizes[1:])
        for weight in self.weights:
            nn.init.trunc_normal_(weight, std=WEIGHT_STD, generator=generator)
        if zero_output:
            nn.init.zeros_(self.weights[-1])
        normed = [*hidden, outputs] if final is not None and final_norm else hidden
        self.scales = nn.ParameterList(torch.ones(heads, 1, size) for size in normed)
        self.shifts = nn.ParameterList(torch.zeros(heads, 1, size) for size in normed)

    def forward(
        self,
        x: Float[Tensor, "*_batch input"],
        *,
        split: bool = False,
        training: bool = False,
        heads: Int[Tensor, " chosen"] | None = None,
    ) -> Float[Tensor, "head *_batch output"]:
        """What every network makes of its input.

        Args:
            x: One input for all, or with ``split`` one for each, heads first.
            split: Whether each head has an input of its own.
            training: Whether there is dropout.
            heads: Which of them to evaluate; None: all. Others cost nothing.
        """
        batch = x.shape[1:-1] if split else x.shape[:-1]
        h = x.reshape(x.shape[0], -1, x.shape[-1]) if split else x.reshape(-1, x.shape[-1])
        last = len(self.weights) - 1
        for index in range(last + 1):
            h = self._linear(index, h, heads)
            if index == 0 and training and self._dropout:
                h = F.dropout(h, self._dropout)
            if index < len(self.scales):
                h = F.layer_norm(h, h.shape[-1:])
                scale, shift = (
                    self._of(store, index, heads) for store in (self.scales, self.shifts)
                )
                h = torch.addcmul(shift, h, scale)
            if index < last:
                h = mish(h)
            elif self._final is not None:
                h = self._final(h)
        return h.reshape(h.shape[0], *batch, self.outputs)

    def _linear(self, index: int, h: Tensor, heads: Tensor | None) -> Tensor:
        weight, bias = self._of(self.weights, index, heads), self._of(self.biases, index, heads)
        if h.ndim == 3:
            return torch.baddbmm(bias, h, weight.transpose(1, 2))
        joint = F.linear(h, weight.flatten(0, 1), bias.flatten())
        return joint.view(len(h), *weight.shape[:2]).transpose(0, 1)

    @staticmethod
    def _of(store: nn.ParameterList, index: int, heads: Tensor | None) -> Tensor:
        tensor: Tensor = store[index]
        return tensor if heads is None else tensor.index_select(0, heads)
