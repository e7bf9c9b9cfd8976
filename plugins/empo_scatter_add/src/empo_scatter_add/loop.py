"""Aggregation by a loop over segments: plain, and slow."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.types import Reduction, Segments
from empo_scatter_add.checks import accumulation_dtype, check_inputs
from empo_scatter_add.plugin import LoopParams


class Loop:
    """Reduces one segment after another in Python; the reference for every fast path."""

    def __init__(self, params: LoopParams) -> None:
        self._params = params

    def __call__(
        self,
        values: Float[Tensor, " item *trailing"],
        segments: Segments,
        *,
        reduction: Reduction = "sum",
        weight: Float[Tensor, " item"] | None = None,
    ) -> Float[Tensor, " segment *trailing"]:
        """Combine the items of each segment; see ``empo_core.protocols.Aggregator``."""
        check_inputs(values, segments, reduction, weight)
        members: list[list[int]] = [[] for _ in range(segments.num_segments)]
        for item, segment in enumerate(segments.index.tolist()):
            members[segment].append(item)
        if not members:
            return values.new_zeros((0, *values.shape[1:]))
        if weight is None:
            rows = [_reduced(values[items], reduction) for items in members]
        else:
            rows = [_weighted(values[items], weight[items], reduction) for items in members]
        return torch.stack(rows)


def _reduced(
    values: Float[Tensor, " member *trailing"], reduction: Reduction
) -> Float[Tensor, "*trailing"]:
    """One segment without weights."""
    if len(values) == 0:
        neutral = {"sum": 0.0, "mean": 0.0, "min": torch.inf, "max": -torch.inf}[reduction]
        return values.new_full(values.shape[1:], neutral)
    if reduction == "min":
        return values.amin(0)
    if reduction == "max":
        return values.amax(0)
    return values.sum(0) if reduction == "sum" else values.mean(0)


def _weighted(
    values: Float[Tensor, " member *trailing"],
    weight: Float[Tensor, " member"],
    reduction: Reduction,
) -> Float[Tensor, "*trailing"]:
    """One segment, each item counted as often as its weight says."""
    wide = accumulation_dtype(values.dtype)
    weight = weight.to(wide)
    column = weight.reshape(-1, *[1] * (values.ndim - 1))
    combined = (column * values.to(wide)).sum(0)
    if reduction == "mean":
        total = weight.sum()
        combined = torch.zeros_like(combined) if total == 0 else combined / total
    return combined.to(values.dtype)
