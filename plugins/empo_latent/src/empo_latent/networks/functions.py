"""Functions without weights that the latent model is made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import BackwardCFunction, FunctionCtx

from empo_latent.params import BinsParams


def symlog(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``sign(x) log(1 + |x|)`` (Hafner et al. 2023, eq. 9): large numbers made small."""
    return x.sign() * x.abs().log1p()


def symexp(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``sign(x) (exp(|x|) - 1)``, the inverse of `symlog`."""
    return x.sign() * x.abs().expm1()


def by_hand(x: Float[Tensor, "*shape"]) -> bool:
    """True where the variants for CPU caches are faster: on CPUs, outside of compilation."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


class _SimNorm(Function):
    """Softmax over the last axis; torch's own is an order slower where that axis is short."""

    @staticmethod
    def forward(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        e = (x - x.amax(-1, keepdim=True)).exp_()
        return e.div_(e.sum(-1, keepdim=True))

    @staticmethod
    def setup_context(
        ctx: FunctionCtx, inputs: tuple[Tensor], output: Float[Tensor, "*shape"]
    ) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(
        ctx: BackwardCFunction, *grads: Float[Tensor, "*shape"]
    ) -> Float[Tensor, "*shape"]:
        (y,) = ctx.saved_tensors
        weighted = grads[0] * y
        return torch.addcmul(weighted, y, weighted.sum(-1, keepdim=True), value=-1)


def simnorm(x: Float[Tensor, "*batch latent"], group: int) -> Float[Tensor, "*batch latent"]:
    """A softmax in each group of ``group`` numbers (SimNorm, Hansen et al. 2024, eq. 5)."""
    precise = x.to(torch.promote_types(x.dtype, torch.float32))
    groups = precise.reshape(*x.shape[:-1], -1, group)
    apply: Callable[[Tensor], Tensor] = _SimNorm.apply
    softmax = apply if by_hand(x) else partial(F.softmax, dim=-1)
    return softmax(groups).flatten(-2)


class _Mish(Function):
    """``mish`` and its slope, so that going back costs one product."""

    @staticmethod
    def forward(
        x: Float[Tensor, "*shape"],
    ) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
        # h = n / 2, share = h / (h + 1) = tanh(softplus(x)), dh/dx = e + e^2.
        e = x.clamp(max=20).exp_()
        h = torch.addcmul(e, e, e, value=0.5)
        above = h + 1
        share = h.div_(above)
        y = share * x
        slope = e.addcmul_(e, e).div_(above).div_(above)
        return y, torch.addcmul(share, slope, x, out=share)

    @staticmethod
    def setup_context(
        ctx: FunctionCtx,
        inputs: tuple[Tensor],
        output: tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]],
    ) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(
        ctx: BackwardCFunction, *grads: Float[Tensor, "*shape"] | None
    ) -> Float[Tensor, "*shape"] | None:
        (slope,) = ctx.saved_tensors
        return None if grads[0] is None else grads[0] * slope


def mish(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``x tanh(softplus(x))`` (Misra 2019) as ``x n / (n + 2)``, ``n = e^x (e^x + 2)``.

    Beyond 20, where it equals ``x`` in every precision used, ``e^x`` is not computed.
    """
    if by_hand(x):
        if torch.is_grad_enabled() and x.requires_grad:
            apply: Callable[[Tensor], tuple[Tensor, Tensor]] = _Mish.apply
            return apply(x)[0]
        e = x.clamp(max=20).exp_()
        h = e.addcmul_(e, e, value=0.5)
        return h.div_(h + 1).mul_(x)
    if torch.compiler.is_compiling():
        e = x.clamp(max=20).exp()
        h = e + 0.5 * e * e
        return x * (h / (h + 1))
    return F.mish(x)


class TwoHot(nn.Module):
    """Numbers as distributions over bins that are evenly spaced in symlog space.

    The expectation is taken in symlog space: a mixture of encodings decodes to the symexp of the
    mean symlog, not to the mean.
    """

    _places: Tensor

    def __init__(self, params: BinsParams) -> None:
        super().__init__()
        self.number, self.low, self.high = params.number, params.low, params.high
        self._width = (params.high - params.low) / (params.number - 1)
        # Counted from the middle, in bins: these numbers are exact in every precision.
        places = torch.arange(params.number) - 0.5 * (params.number - 1)
        self.register_buffer("_places", places, persistent=False)

    @property
    def centres(self) -> Float[Tensor, " bin"]:
        """The symlog that each bin stands for."""
        return self._symlog(self._places)

    def encode(self, y: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch bin"]:
        """The weights of all bins: all is on the two next to ``symlog(y)``."""
        index, weight = self._neighbours(y)
        empty = weight.new_zeros(*y.shape[:-1], self.number)
        return empty.scatter(-1, index, weight)

    def decode(self, logits: Float[Tensor, "*batch bin"]) -> Float[Tensor, "*batch 1"]:
        """``symexp`` of the expected symlog."""
        # Never in half precision, whatever networks compute in: of an exponent, it is too coarse.
        with torch.autocast(logits.device.type, enabled=False):
            expected = F.softmax(logits.to(self._places.dtype), -1) @ self._places
        return symexp(self._symlog(expected)).unsqueeze(-1)

    def cross_entropy(
        self, logits: Float[Tensor, "*#batch bin"], y: Float[Tensor, "*#batch 1"]
    ) -> Float[Tensor, "*batch"]:
        """``-sum_k encode(y)_k log softmax(logits)_k``; the arguments broadcast."""
        index, weight = self._neighbours(y)
        shape = (logits[..., :1] + y).shape[:-1]
        logits = logits.to(self._places.dtype)
        near = logits.expand(*shape, self.number).gather(-1, index.expand(*shape, 2))
        # The weights add up to 1, so the normaliser comes in once.
        return logits.logsumexp(-1) - (near * weight).sum(-1)

    def _symlog(self, place: Tensor) -> Tensor:
        return 0.5 * (self.low + self.high) + self._width * place

    def _neighbours(
        self, y: Float[Tensor, "*batch 1"]
    ) -> tuple[Int[Tensor, "*batch 2"], Float[Tensor, "*batch 2"]]:
        """The two bins next to ``symlog(y)``, and their weights."""
        place = (symlog(y).clamp(self.low, self.high) - self.low) / self._width
        # The last bin has no upper neighbour: it is the upper one of the pair below. Clamped as
        # an integer, NaN finds a bin, too, so that it comes out as NaN and not as a crash.
        lower = place.long().clamp(0, self.number - 2)
        above = place - lower
        return torch.cat([lower, lower + 1], -1), torch.cat([1 - above, above], -1)
