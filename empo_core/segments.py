"""Segments of items, which aggregators reduce to one number each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Segments:
    """Which segment each item belongs to. Build it with one of the constructors.

    Attributes:
        index: The segment of each item, in ``[0, num_segments)``.
        num_segments: How many segments there are, empty ones included.
        offsets: Start of each segment's items where the items are sorted by segment,
            ``[segment + 1]``; None where they are not known to be.
    """

    index: Int[Tensor, " item"]
    num_segments: int
    offsets: Int[Tensor, " segment_plus_1"] | None = None

    @classmethod
    def from_index(cls, index: Int[Tensor, " item"], num_segments: int) -> Segments:
        """Segments of unsorted items.

        Raises:
            IndexError: An index lies outside ``[0, num_segments)``.
        """
        if index.numel():
            low, high = (int(bound) for bound in torch.aminmax(index))
            if low < 0 or high >= num_segments:
                wrong = low if low < 0 else high
                advice = "" if low < 0 else f"pass num_segments={high + 1} or "
                raise IndexError(
                    f"segment index {wrong} is outside [0, {num_segments}): "
                    f"{advice}correct the index"
                )
        return cls(index, num_segments)

    @classmethod
    def from_offsets(cls, offsets: Int[Tensor, " segment_plus_1"]) -> Segments:
        """Segments of items that already lie in segment order (CSR).

        Raises:
            IndexError: The offsets do not start at 0 or decrease somewhere.
        """
        counts = offsets.diff()
        if int(offsets[0]) != 0 or bool((counts < 0).any()):
            raise IndexError("offsets must start at 0 and never decrease")
        number = offsets.shape[0] - 1
        index = torch.repeat_interleave(torch.arange(number, device=offsets.device), counts)
        return cls(index, number, offsets)

    @cached_property
    def counts(self) -> Int[Tensor, " segment"]:
        """Number of items each segment has."""
        if self.offsets is not None:
            return self.offsets.diff()
        return torch.bincount(self.index, minlength=self.num_segments)
