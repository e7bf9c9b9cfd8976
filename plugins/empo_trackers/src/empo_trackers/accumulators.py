"""A base of modules whose buffers are counts and sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
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

    def __init__(self) -> None:
        super().__init__()
        self._arrays: dict[str, tuple[Tensor, np.ndarray]] = {}

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *further: object
    ) -> None:
        for name in self._additions:
            if (count := self._buffers.get(name)) is not None:
                state_dict.setdefault(prefix + name, torch.zeros_like(count))
        super()._load_from_state_dict(state_dict, prefix, *further)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Accumulators:
        def convert(tensor: Shaped[Tensor, " *axes"]) -> Shaped[Tensor, " *axes"]:
            result = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        self._arrays.clear()  # Buffers may have other memory from now on.
        module: Accumulators = super()._apply(convert, recurse)  # type: ignore[no-untyped-call]
        return module

    def __getstate__(self) -> dict[str, Any]:
        """The state without the arrays, which a copy would not share with its buffers."""
        return {**self.__dict__, "_arrays": {}}

    def _array(self, name: str) -> Shaped[np.ndarray, "*axes"]:
        """The memory of a buffer on the CPU; torch takes ten times as long to say where it is."""
        entry = self._arrays.get(name)
        if entry is None or entry[0] is not self._buffers.get(name):
            buffer = self._stored(name)
            entry = self._arrays[name] = buffer, buffer.numpy()
        return entry[1]

    def _stored(self, name: str) -> Tensor:
        """A buffer as it is stored, in a tenth of the time that an attribute of a module takes."""
        buffer = self._buffers.get(name)
        if buffer is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return buffer
