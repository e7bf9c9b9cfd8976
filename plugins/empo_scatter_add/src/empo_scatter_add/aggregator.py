"""Aggregation in one pass: no Python loop over segments, no padding."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.types import Reduction, Segments
from empo_scatter_add.checks import accumulation_dtype, check_inputs
from empo_scatter_add.plugin import ScatterAddParams


class ScatterAdd:
    """Sum or mean of each segment's items, on any device."""

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

        Sums of dtypes below 32 bits are taken in float32.
        """
        check_inputs(values, segments, reduction, weight)
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
        if self._params.deterministic and values.is_cuda:  # Atomics add in a random order there.
            return torch.segment_reduce(values, "sum", offsets=segments.offsets, axis=0)
        zeros = values.new_zeros((segments.num_segments, *values.shape[1:]))
        if values.numel() == values.shape[0]:  # One column: 1.5 times as fast as index_add.
            return zeros.scatter_add(0, segments.index.long().reshape(values.shape), values)
        return zeros.index_add(0, segments.index, values)


def _as_column(vector: Tensor, ndim: int) -> Tensor:
    """A vector shaped to broadcast over the trailing axes of a tensor with ``ndim`` axes."""
    return vector.reshape(-1, *[1] * (ndim - 1))


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient, 0 where the denominator is 0; no NaN in the gradient either."""
    nothing = denominator == 0
    safe = denominator.masked_fill(nothing, 1)
    return (numerator / safe).masked_fill(nothing, 0)
