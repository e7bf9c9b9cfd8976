"""Checks of inputs, and the dtype of sums, shared by both aggregators."""

from __future__ import annotations

from typing import get_args

import torch
from jaxtyping import Shaped
from torch import Tensor

from empo_core.types import Reduction, Segments


def check_inputs(
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


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums of ``dtype`` are taken: at least 32 bits.

    In bfloat16 a running sum of ones stops growing at 256.
    """
    return torch.float32 if dtype.itemsize < 4 else dtype
