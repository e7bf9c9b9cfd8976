"""Many equal networks as one: their weights lie in common tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from empo_latent.networks.functions import by_hand, mish
from empo_latent.params import Heads

WEIGHT_STD = 0.02
"""Standard deviation of weights at first."""
BLOCK = 1024
"""Rows that CPUs take through all layers at once."""


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
        dropout: float = 0.0,
        zero_output: bool = False,
        generator: torch.Generator,
    ) -> None:
        """Make ``heads`` networks.

        ``final`` is done to the output, after LayerNorm; ``dropout`` is the share
        of the first layer that is left out in training; with ``zero_output`` the weights of the
        last layer are 0 at first.
        """
        super().__init__()
        self.heads, self.outputs = heads, outputs
        self.final, self.dropout = final, dropout
        sizes = [inputs, *hidden, outputs]
        # As nn.Linear has them, output first: so all heads together are one nn.Linear too.
        self.weights = nn.ParameterList(
            torch.empty(heads, after, before) for before, after in itertools.pairwise(sizes)
        )
        self.biases = nn.ParameterList(torch.zeros(heads, size) for size in sizes[1:])
        for weight in self.weights:
            nn.init.trunc_normal_(weight, std=WEIGHT_STD, generator=generator)
        if zero_output:
            nn.init.zeros_(self.weights[-1])
        normed = [*hidden, outputs] if final is not None else hidden
        self.scales = nn.ParameterList(torch.ones(heads, size) for size in normed)
        self.shifts = nn.ParameterList(torch.zeros(heads, size) for size in normed)

    def forward(
        self,
        x: Float[Tensor, "*_batch input"],
        *,
        split: bool = False,
        training: bool = False,
        heads: Int[Tensor, " chosen"] | None = None,
    ) -> Float[Tensor, "head *_batches output"]:
        """Outputs of all networks, or of those in ``heads`` alone, heads first.

        All have one input, or with ``split`` each head that is evaluated has its own, heads first.
        """
        batch = x.shape[1:-1] if split else x.shape[:-1]
        rows = x.reshape(x.shape[0], -1, x.shape[-1]) if split else x.reshape(-1, x.shape[-1])
        dropout = self.dropout if training else 0.0
        if by_hand(x):
            results = self._one_by_one(rows, dropout, heads)
        else:
            results = self._through(rows, self._parameters_of(heads), dropout)
        return results.reshape(results.shape[0], *batch, self.outputs)

    def _one_by_one(self, x: Tensor, dropout: float, heads: Tensor | None) -> Tensor:
        """Heads one after the other, on blocks of rows: what a layer makes stays in the cache.

        On one core up to twice as fast as all at once: that moves more than caches hold.
        """
        # Taken apart once: indexing would make gradients of all heads for each.
        stores = [[tensor.unbind() for tensor in store] for store in self._parameters_of(None)]
        results = []
        for place, head in enumerate(range(self.heads) if heads is None else heads.tolist()):
            chosen = [[tensors[head] for tensors in store] for store in stores]
            rows = x if x.ndim == 2 else x[place]
            blocks = torch.split(rows, BLOCK)
            outputs = [self._through(block, chosen, dropout) for block in blocks]
            results.append(outputs[0] if len(outputs) == 1 else torch.cat(outputs))
        return results[0][None] if len(results) == 1 else torch.stack(results)

    def _parameters_of(self, heads: Tensor | None) -> list[list[Tensor]]:
        stores = (self.weights, self.biases, self.scales, self.shifts)
        if heads is None:
            return [list(store) for store in stores]
        return [[tensor.index_select(0, heads) for tensor in store] for store in stores]

    def _through(self, h: Tensor, parameters: list[list[Tensor]], dropout: float) -> Tensor:
        """One network, or several where parameters have heads, on their first axis."""
        weights, biases, scales, shifts = parameters
        last = len(weights) - 1
        for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            h = linear(h, weight, bias)
            if index == 0 and dropout:
                h = F.dropout(h, dropout)
            if index < len(scales):
                h = normalised(h, scales[index], shifts[index])
            if index < last:
                h = mish(h)
            elif self.final is not None:
                h = self.final(h)
        return h


def linear(
    h: Float[Tensor, "*some input"],
    weight: Float[Tensor, "*batch output input"],
    bias: Float[Tensor, "*batch output"],
) -> Float[Tensor, "*batch row output"]:
    """A linear layer of one network, or of several (``batch``), which may share their input."""
    if weight.ndim == 2:
        return F.linear(h, weight, bias)
    if h.ndim == 3:
        return torch.baddbmm(bias[:, None], h, weight.transpose(1, 2))
    joint = F.linear(h, weight.flatten(0, 1), bias.flatten())
    return joint.view(len(h), *bias.shape).transpose(0, 1)


def normalised(
    h: Float[Tensor, "*batch row output"],
    scale: Float[Tensor, "*batch output"],
    shift: Float[Tensor, "*batch output"],
) -> Float[Tensor, "*batch row output"]:
    """LayerNorm of one network, or of several."""
    if scale.ndim == 1:
        return F.layer_norm(h, h.shape[-1:], scale, shift)
    return torch.addcmul(shift[:, None], F.layer_norm(h, h.shape[-1:]), scale[:, None])


def drawn_heads(
    heads: int, chosen: int, device: torch.device, generator: torch.Generator | None = None
) -> Int[Tensor, " chosen"]:
    """So many different heads of an ensemble at random, the same for a whole batch."""
    # Not randperm(heads)[:chosen]: compilers of some versions of torch fail on that.
    return torch.rand(heads, generator=generator, device=device).topk(chosen).indices


def reduced(
    x: Float[Tensor, "*axes"], mode: Heads, dims: tuple[int, ...]
) -> Float[Tensor, "*rest"]:
    """Mean, least or greatest over some axes."""
    if mode == "mean":
        return x.mean(dims)
    return x.amin(dims) if mode == "min" else x.amax(dims)
