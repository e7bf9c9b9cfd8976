"""Aggregation in one pass: no Python loop over segments, no padding.

Two families of kernels do the work. *Scatter* adds every item to its segment's row and takes
items in any order. *Segment* walks consecutive items and needs them sorted by segment.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import BackwardCFunction, FunctionCtx

from empo_core.types import Reduction, Segments
from empo_scatter_add.checks import accumulation_dtype, check_inputs
from empo_scatter_add.plugin import ScatterAddParams

_WIDE_ROW = 16
"""From this many trailing columns on, torch's CPU scatter kernels handle whole rows at once."""


class ScatterAdd:
    """Sum, mean, minimum or maximum of each segment's items, on any device."""

    def __init__(self, params: ScatterAddParams) -> None:
        self._params = params

    def __call__(
        self,
        values: Float[Tensor, " item *trailing"],
        segments: Segments,
        *,
        reduction: Reduction = "sum",
        weight: Float[Tensor, " item"] | None = None,
    ) -> Float[Tensor, " segment *trailing"]:
        """Combine the items of each segment; see ``empo_core.protocols.Aggregator``.

        Sums of dtypes below 32 bits are taken in float32. Items that share a minimum or
        maximum share its gradient equally.
        """
        check_inputs(values, segments, reduction, weight)
        if reduction == "min" or reduction == "max":
            return self._extreme(values, segments, reduction)
        wide = accumulation_dtype(values.dtype)
        summands = values.to(wide)
        if weight is not None:
            weight = weight.to(wide)
            summands = summands * _as_column(weight, values.ndim)
        result = self._sum(summands, segments)
        if reduction == "mean":
            count = segments.counts.to(wide) if weight is None else self._sum(weight, segments)
            result = _ratio(result, _as_column(count, result.ndim))
        return result.to(values.dtype)

    def _sum(
        self, values: Float[Tensor, " item *trailing"], segments: Segments
    ) -> Float[Tensor, " segment *trailing"]:
        # Sums are the one thing whose rounding depends on the order of atomics.
        ordered = self._params.deterministic and values.is_cuda
        if ordered or self._walks_segments(values, segments, "sum"):
            values, offsets, index = _sorted(values, segments)
            total: Tensor = _SegmentSum.apply(values, offsets, index)  # type: ignore[no-untyped-call]
            return total
        zeros = values.new_zeros((segments.num_segments, *values.shape[1:]))
        if values.numel() == values.shape[0]:  # One column: 1.5 times as fast as index_add.
            return zeros.scatter_add(0, segments.index.long().reshape(values.shape), values)
        return zeros.index_add(0, segments.index, values)

    def _extreme(
        self, values: Float[Tensor, " item *trailing"], segments: Segments, reduction: Reduction
    ) -> Float[Tensor, " segment *trailing"]:
        if self._walks_segments(values, segments, reduction):
            values, offsets, _ = _sorted(values, segments)
            return torch.segment_reduce(values, reduction, offsets=offsets, axis=0, unsafe=True)
        neutral = torch.inf if reduction == "min" else -torch.inf
        start = values.new_full((segments.num_segments, *values.shape[1:]), neutral)
        index = _as_column(segments.index.long(), values.ndim).expand_as(values)
        return start.scatter_reduce(0, index, values, "amin" if reduction == "min" else "amax")

    def _walks_segments(self, values: Tensor, segments: Segments, reduction: Reduction) -> bool:
        if self._params.method == "auto":
            return _segments_are_faster(values, segments, reduction)
        return self._params.method == "segment"


class _SegmentSum(torch.autograd.Function):
    """Sums of consecutive items, with a gradient that can itself be differentiated."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        values: Float[Tensor, " item *trailing"],
        offsets: Int[Tensor, " offset"],
        index: Int[Tensor, " item"],
    ) -> Float[Tensor, " segment *trailing"]:
        ctx.save_for_backward(index)
        items = values.shape[0]
        if values.numel() <= items:
            return torch.segment_reduce(values, "sum", offsets=offsets, axis=0, unsafe=True)
        # Whole rows are added fastest as bags of embeddings: up to ten times segment_reduce.
        row = torch.arange(items, dtype=offsets.dtype, device=offsets.device)
        sums = torch.nn.functional.embedding_bag(
            row, values.reshape(items, -1), offsets, mode="sum", include_last_offset=True
        )
        return sums.reshape(-1, *values.shape[1:])

    @staticmethod
    def backward(
        ctx: BackwardCFunction, *grads: Float[Tensor, " segment *trailing"]
    ) -> tuple[Float[Tensor, " item *trailing"], None, None]:
        (index,) = ctx.saved_tensors
        return grads[0].index_select(0, index), None, None


def _sorted(
    values: Float[Tensor, " item *trailing"], segments: Segments
) -> tuple[Float[Tensor, " item *trailing"], Int[Tensor, " offset"], Int[Tensor, " item"]]:
    """The values in segment order, where each segment starts, and each item's segment."""
    if segments.offsets is not None:
        return values, segments.offsets, segments.index
    index, order = torch.sort(segments.index, stable=True)
    offsets = torch.nn.functional.pad(segments.counts.cumsum(0), (1, 0))
    return values.index_select(0, order), offsets, index


def _segments_are_faster(values: Tensor, segments: Segments, reduction: Reduction) -> bool:
    """True where walking the segments beats scattering, as measured with torch 2.13 on a CPU.

    Elsewhere nothing was measured. Sorting first costs up to 18 times what it saves and pays,
    by a factor of 2 at most, only for millions of items in 8 to 15 columns. A segment of a
    single column has a cost of its own, so short ones are better scattered.
    """
    if segments.offsets is None or values.device.type != "cpu":
        return False
    columns = values.numel() // max(1, values.shape[0])
    mean_length = values.shape[0] / max(1, segments.num_segments)
    if reduction == "sum":
        return columns > 1 or mean_length >= 32
    return columns < _WIDE_ROW and 2 <= mean_length <= 32


def _as_column(vector: Tensor, ndim: int) -> Tensor:
    """A vector shaped to broadcast over the trailing axes of a tensor with ``ndim`` axes."""
    return vector.reshape(-1, *[1] * (ndim - 1))


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient, 0 where the denominator is 0; no NaN in the gradient either."""
    nothing = denominator == 0
    safe = denominator.masked_fill(nothing, 1)
    return (numerator / safe).masked_fill(nothing, 0)
