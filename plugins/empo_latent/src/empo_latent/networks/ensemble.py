"""Many equal networks as one: their weights lie in common tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import BackwardCFunction, FunctionCtx

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
        self.heads = heads
        self.final, self.dropout = final, dropout
        sizes = [inputs, *hidden, outputs]
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
        # Taken apart once: indexing would make gradients of all heads for each.
        stores = [
            [
                (tensor if heads is None else tensor.index_select(0, heads)).unbind()
                for tensor in store
            ]
            for store in (self.weights, self.biases, self.scales, self.shifts)
        ]
        batch = x.shape[1:-1] if split else x.shape[:-1]
        is_traced = torch.onnx.is_in_onnx_export()  # Then no number of rows may be a constant.
        rows = x.reshape(len(x) if split else 1, -1 if is_traced else batch.numel(), x.shape[-1])
        caches = x.device.type == "cpu" and not (torch.compiler.is_compiling() or is_traced)
        outputs = []
        # One after the other, which on CPUs is faster than all at once: more stays in the cache.
        for place in range(len(stores[0][0])):
            parameters = [[tensors[place] for tensors in store] for store in stores]
            part = rows[place if split else 0]
            blocks = torch.split(part, BLOCK) if caches else [part]
            results = [self._network(block, parameters, training) for block in blocks]
            outputs.append(results[0] if len(results) == 1 else torch.cat(results))
        output = outputs[0][None] if len(outputs) == 1 else torch.stack(outputs)
        return output.view(len(outputs), *batch, output.shape[-1])

    def _network(
        self, h: Float[Tensor, "*batch input"], parameters: list[list[Tensor]], training: bool
    ) -> Float[Tensor, "*batch output"]:
        """The output of one network."""
        weights, biases, scales, shifts = parameters
        last = len(weights) - 1
        for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            h = F.linear(h, weight, bias)
            if index == 0 and training and self.dropout:
                h = F.dropout(h, self.dropout)
            if index < len(scales):
                width = int(h.shape[-1])  # A constant, also for exports.
                h = F.layer_norm(h, (width,), scales[index], shifts[index])
            if index < last:
                h = mish(h)
            elif self.final is not None:
                h = self.final(h)
        return h


def simnorm(x: Float[Tensor, "*batch latent"], group: int) -> Float[Tensor, "*batch latent"]:
    """A softmax in each group of ``group`` numbers (SimNorm, Hansen et al. 2024, eq. 5)."""
    # Of so few numbers, torch's own softmax takes longer.
    groups = x.reshape(*x.shape[:-1], -1, group)
    e = (groups - groups.detach().amax(-1, keepdim=True)).exp()
    softmax: Tensor = e / e.sum(-1, keepdim=True)
    return softmax.flatten(-2)


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
    if torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export():
        e = x.clamp(max=20).exp()
        h = e + 0.5 * e * e
        return x * (h / (h + 1))
    if x.device.type != "cpu":
        return F.mish(x)
    # On CPUs torch's own takes an update up to a third longer.
    if torch.is_grad_enabled() and x.requires_grad:
        apply: Callable[[Tensor], tuple[Tensor, Tensor]] = _Mish.apply
        return apply(x)[0]
    e = x.clamp(max=20).exp_()
    h = e.addcmul_(e, e, value=0.5)
    return h.div_(h + 1).mul_(x)


def drawn_heads(
    heads: int, chosen: int, device: torch.device, generator: torch.Generator | None = None
) -> Int[Tensor, " chosen"]:
    """So many different heads of an ensemble at random, the same for a whole batch."""
    # Not randperm(heads)[:chosen]: compilers of some versions of torch fail on that.
    return torch.rand(heads, generator=generator, device=device).topk(chosen).indices
