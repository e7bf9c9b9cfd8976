"""Base of modules that only count and add up."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Shaped
from torch import Tensor


class Accumulators(torch.nn.Module):
    """A module whose buffers go where it is sent, but keep their dtypes.

    ``.half()`` is meant for a model that the module may be a part of: sums of thousands of
    rewards are useless in half precision, and counts are no numbers of that kind at all.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Accumulators:
        def moved(tensor: Shaped[Tensor, " *axes"]) -> Shaped[Tensor, " *axes"]:
            result = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        module: Accumulators = super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return module
