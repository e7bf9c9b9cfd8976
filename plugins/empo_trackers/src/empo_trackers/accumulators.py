"""A base of modules whose buffers are counts and sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Shaped
from torch import Tensor


class Accumulators(torch.nn.Module):
    """A module whose buffers move with a model, but keep their dtypes.

    ``.half()`` is meant for a model that the module may be a part of: sums of thousands of
    rewards are useless in half precision, and counts are integers.
    """

    def zero_if_missing(self, names: Sequence[str]) -> None:
        """Have ``load_state_dict`` take 0 for these buffers where a state lacks them.

        States of the classes that the trackers are specified by lack some counts.
        """

        def add_zeros(
            module: torch.nn.Module, state_dict: dict[str, Tensor], prefix: str, *_: object
        ) -> None:
            for name in names:
                state_dict.setdefault(prefix + name, torch.zeros_like(module.get_buffer(name)))

        self.register_load_state_dict_pre_hook(add_zeros)  # type: ignore[no-untyped-call]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Accumulators:
        def convert(tensor: Shaped[Tensor, " *axes"]) -> Shaped[Tensor, " *axes"]:
            result = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        module: Accumulators = super()._apply(convert, recurse)  # type: ignore[no-untyped-call]
        return module
