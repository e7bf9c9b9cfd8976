"""Noticing numbers that are infinite or NaN before they spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_learning.state_tree import flatten

LARGE = 1e6
"""Networks learn badly from observations and rewards beyond this size as they are."""


def check_finite(tensors: Mapping[str, Tensor], subject: str) -> None:
    """Refuse numbers that are infinite or NaN; tensors of integers always pass.

    All tensors of a device are checked at once, so that asking costs one synchronisation.

    Args:
        tensors: What to check, by name.
        subject: What they are, for the message, e.g. ``"a weight to be published"``.

    Raises:
        NonFiniteError: if a tensor is not finite; the message names the first, and how many
            numbers.
    """
    groups: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors.values():
        if tensor.is_floating_point():
            groups.setdefault(tensor.device, []).append(tensor.detach().sum())
    # Whatever is not finite makes the sum so. A sum may also overflow, hence the second look.
    if all(bool(torch.stack(sums).isfinite().all()) for sums in groups.values()):
        return
    for name, tensor in tensors.items():
        finite = tensor.isfinite()
        if not bool(finite.all()):
            bad = tensor[~finite]
            raise NonFiniteError(
                f"{subject} is not finite: {name} has {len(bad):,} of {tensor.numel():,} numbers "
                f"that are infinite or NaN, the first is {bad[0].item()}"
            )


def check_finite_state(state: Mapping[str, Any], subject: str) -> None:
    """Refuse a tree of tensors and plain data in which a number is infinite or NaN.

    Args:
        state: As checkpoints take it.
        subject: What it is, for the message.

    Raises:
        NonFiniteError: if a number is not finite; the message says where it is in the tree.
    """
    data, tensors = flatten(state)
    check_finite(tensors, subject)
    place = _first_non_finite(data, "")
    if place is not None:
        raise NonFiniteError(f"{subject} is not finite: {place[0]} is {place[1]}")


def _first_non_finite(data: Any, path: str) -> tuple[str, str] | None:
    """Path and value of a non-finite number in JSON data of ``flatten``."""
    if isinstance(data, dict):
        if set(data) == {"$float"}:
            return path, str(data["$float"])
        items = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    else:
        return None
    for key, value in items:
        if isinstance(value, dict | list) and (nested := _first_non_finite(value, f"{path}/{key}")):
            return nested
    return None
