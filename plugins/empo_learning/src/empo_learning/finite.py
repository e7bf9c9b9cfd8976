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
                f"{what} is not finite: {name} has {len(bad):,} of {tensor.numel():,} numbers "
                f"that are infinite or NaN, the first is {bad[0].item()}"
            )
