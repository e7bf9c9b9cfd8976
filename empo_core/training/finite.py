"""Noticing numbers that are infinite or NaN before they spread."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from empo_core.errors import NonFiniteError


def check_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    """Refuse numbers that are infinite or NaN; tensors of integers always pass.

    All tensors of a device are checked at once, so that asking costs one synchronisation.

    Args:
        tensors: What to check, by name.
        what: What they are, for the message, e.g. ``"a weight to be published"``.

    Raises:
        NonFiniteError: One is not finite; the message names the first, and how many numbers.
    """
    groups: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors.values():
        if tensor.is_floating_point() and tensor.numel():
            groups.setdefault(tensor.device, []).append(tensor.detach())
    # The largest magnitude, unlike a sum, cannot overflow, and a NaN reaches it.
    largest = [torch.stack(_largest(group)) for group in groups.values()]
    if all(bool(each.isfinite().all()) for each in largest):
        return
    for name, tensor in tensors.items():
        finite = tensor.isfinite()
        if not bool(finite.all()):
            bad = tensor[~finite]
            raise NonFiniteError(
                f"{what} is not finite: {name} has {len(bad):,} of {tensor.numel():,} numbers "
                f"that are infinite or NaN, the first is {bad[0].item()}"
            )


def _largest(tensors: list[Tensor]) -> list[Tensor]:
    return list(torch._foreach_norm(tensors, float("inf")))
