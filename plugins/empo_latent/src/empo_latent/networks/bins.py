"""Numbers as distributions over bins, in which rewards and values are learned."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from empo_latent.params import BinsParams


def symlog(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``sign(x) log(1 + |x|)`` (Hafner et al. 2023, eq. 9): large numbers made small."""
    return x.sign() * x.abs().log1p()


def symexp(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``sign(x) (exp(|x|) - 1)``, the inverse of `symlog`."""
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """Numbers as distributions over bins that are evenly spaced in symlog space.

    The encoding of a number weighs the two bins next to its symlog, by how near they are.
    The expectation is taken in symlog space: a mixture of encodings decodes to the symexp of the
    mean symlog, not to the mean.
    """

    _places: Tensor

    def __init__(self, params: BinsParams) -> None:
        super().__init__()
        self.number, self.low, self.high = params.number, params.low, params.high
        self._middle = 0.5 * (params.low + params.high)
        self._width = (params.high - params.low) / (params.number - 1)
        # Counted from the middle, in bins: these numbers are exact in every precision.
        places = torch.arange(params.number) - 0.5 * (params.number - 1)
        self.register_buffer("_places", places, persistent=False)

    def decode(self, logits: Float[Tensor, "*batch bin"]) -> Float[Tensor, "*batch 1"]:
        """``symexp`` of the expected symlog."""
        place = F.softmax(logits, -1) @ self._places
        return symexp(self._middle + self._width * place).unsqueeze(-1)

    def cross_entropy(
        self, logits: Float[Tensor, "*#batch bin"], y: Float[Tensor, "*#batch 1"]
    ) -> Float[Tensor, "*batch"]:
        """``-sum_k encoding(y)_k log softmax(logits)_k``; the arguments broadcast."""
        place = (symlog(y).clamp(self.low, self.high) - self.low) / self._width
        # The last bin has no upper neighbour: it is the upper one of the pair below. Clamped as
        # an integer, NaN finds a bin, too, so that it comes out as NaN and not as a crash.
        lower = place.long().clamp(0, self.number - 2)
        above = place - lower
        index, weight = torch.cat([lower, lower + 1], -1), torch.cat([1 - above, above], -1)
        shape = (logits[..., :1] + y).shape[:-1]
        near = logits.expand(*shape, self.number).gather(-1, index.expand(*shape, 2))
        # The weights add up to 1, so the normaliser comes in once.
        return logits.logsumexp(-1) - (near * weight).sum(-1)
