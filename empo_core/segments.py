"""Segments of items, which aggregators reduce to one number each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Segments:
    """Consecutive items (CSR): segment ``i`` has those from ``offsets[i]`` to ``offsets[i + 1]``.

    Attributes:
        offsets: Start of each segment's items, and the number of all items.
        index: The segment of each item, which follows from the offsets.
    """

    offsets: Int[Tensor, " segment_plus_1"]
    index: Int[Tensor, " item"]

    @classmethod
    def from_offsets(cls, offsets: Int[Tensor, " segment_plus_1"]) -> Segments:
        """Segments of items that lie in segment order.

        Raises:
            IndexError: if the offsets do not start at 0 or decrease somewhere.
        """
        counts = offsets.diff()
        if int(offsets[0]) != 0 or bool((counts < 0).any()):
            raise IndexError("offsets must start at 0 and never decrease")
        number = torch.arange(len(counts), device=offsets.device)
        return cls(offsets, torch.repeat_interleave(number, counts))

    @property
    def num_segments(self) -> int:
        """Number of segments, empty ones included."""
        return self.offsets.shape[0] - 1

    @property
    def counts(self) -> Int[Tensor, " segment"]:
        """Number of items of each segment."""
        return self.offsets.diff()
