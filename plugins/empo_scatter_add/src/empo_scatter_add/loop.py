"""Aggregation by a loop over segments: plain, and slow."""

from __future__ import annotations

from itertools import pairwise

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
        bounds = segments.offsets.tolist()
        rows = []
        for start, end in pairwise(bounds):
            members = values[start:end]
            share = torch.ones(end - start) if weight is None else weight[start:end]
            rows.append(_weighted(members, share.to(values.device), reduction))
        return torch.stack(rows) if rows else values.new_zeros((0, *values.shape[1:]))


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
