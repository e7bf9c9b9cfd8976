"""Aggregation in one pass: no Python loop over segments, no padding."""

from __future__ import annotations

from typing import get_args

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from empo_core.types import Reduction, Segments
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
        _check_inputs(values, segments, reduction, weight)
        # In bfloat16 a running sum of ones stops growing at 256.
        wide = torch.float32 if values.dtype.itemsize < 4 else values.dtype
        summands, column = values.to(wide), (-1, *[1] * (values.ndim - 1))
        if weight is not None:
            weight = weight.to(wide)
            summands = summands * weight.reshape(column)
        result = self._sum(summands, segments)
        if reduction == "mean":
            count = segments.counts.to(wide) if weight is None else self._sum(weight, segments)
            result = _ratio(result, count.reshape(column))
        return result.to(values.dtype)

    def _sum(
        self, values: Float[Tensor, " item *trailing"], segments: Segments
    ) -> Float[Tensor, " segment *trailing"]:
        if self._params.deterministic and values.is_cuda:  # Atomics add in a random order there.
            return torch.segment_reduce(values, "sum", offsets=segments.offsets, axis=0)
        zeros = values.new_zeros((segments.offsets.shape[0] - 1, *values.shape[1:]))
        if values.numel() == values.shape[0]:  # One column: 1.5 times as fast as index_add.
            return zeros.scatter_add(0, segments.index.long().reshape(values.shape), values)
        return zeros.index_add(0, segments.index, values)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient, 0 where the denominator is 0; no NaN in the gradient either."""
    nothing = denominator == 0
    safe = denominator.masked_fill(nothing, 1)
    return (numerator / safe).masked_fill(nothing, 0)


def _check_inputs(
    values: Shaped[Tensor, "*item"],
    segments: Segments,
    reduction: Reduction,
    weight: Shaped[Tensor, "*weight"] | None,
) -> None:
    """Refuse inputs whose shapes, devices or dtypes disagree.

    Raises:
        ValueError: if shapes, devices or dtypes disagree, or the reduction is unknown.
    """
    if reduction not in get_args(Reduction):
        choices = ", ".join(get_args(Reduction))
        raise ValueError(f"there is no reduction {reduction!r}; choose one of {choices}")
    if not values.is_floating_point():
        raise ValueError(f"values are {values.dtype}; aggregate floats, e.g. values.double()")
    items = segments.index.shape[0]
    if values.ndim == 0 or values.shape[0] != items:
        raise ValueError(
            f"values have shape {list(values.shape)} but the segments have {items} items; "
            "the first axis of values is the item axis"
        )
    if values.device != segments.index.device:
        raise ValueError(
            f"values are on {values.device} but the segments on {segments.index.device}; "
            "move one of them"
        )
    if weight is None:
        return
    if weight.shape != (items,):
        raise ValueError(
            f"weight has shape {list(weight.shape)} but the segments have {items} items; "
            "give one number per item"
        )
    if weight.device != values.device:
        raise ValueError(f"weight is on {weight.device} but values on {values.device}; move one")
