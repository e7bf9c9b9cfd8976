"""Base of modules that only count and add up."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Shaped
from torch import Tensor


class Accumulators(torch.nn.Module):
    """A module whose buffers go where it is sent, but keep their dtypes.

    ``.half()`` is meant for a model that the module may be a part of: sums of thousands of
    rewards are useless in half precision, and counts are no numbers of that kind at all.
    """

    _additions: ClassVar[tuple[str, ...]] = ()
    """Counts that the specification's classes lack; they are 0 in a state that lacks them."""

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *rest: object
    ) -> None:
        for name in self._additions:
            if (count := self._buffers.get(name)) is not None:
                state_dict.setdefault(prefix + name, torch.zeros_like(count))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Accumulators:
        def moved(tensor: Shaped[Tensor, " *axes"]) -> Shaped[Tensor, " *axes"]:
            result = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        module: Accumulators = super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return module
