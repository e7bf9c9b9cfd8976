"""Counts of values in bins."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_trackers.accumulators import Accumulators
from empo_trackers.checks import Reals, checked_choice, tensor_of

Closed = Literal["left", "right"]


class FastVectorizedHistogram(Accumulators):
    """Counts of values in bins whose edges are given.

    Bins are ``[low, high)`` and the last one is ``[low, high]``, as ``numpy.histogram`` has it;
    with ``closed="right"`` they are ``(low, high]`` and the first one is ``[low, high]``. Unlike
    numpy's, the bins at both ends also count what lies beyond them. ``underflow`` and
    ``overflow`` say how much that is, and ``nan`` counts what lies nowhere.

    Attributes:
        bin_edges: The edges, float32.
        bins: The counts, int64, one fewer than edges.
        outside: How many values were below the first edge, above the last one, and NaN.
    """

    bin_edges: Float[Tensor, " edge"]
    bins: Int[Tensor, " bin"]
    outside: Int[Tensor, " 3"]

    def __init__(
        self, bin_edges: Reals, device: torch.device | str | None = None, *, closed: Closed = "left"
    ) -> None:
        """Begin with empty bins.

        Args:
            bin_edges: At least two numbers that increase, also as float32.
            device: Where to count; the CPU by default.
            closed: Which edge belongs to a bin.

        Raises:
            ValueError: if the edges do not ascend or are fewer than two, or ``closed`` is no side.
        """
        super().__init__()
        self.closed = checked_choice("closed", closed, get_args(Closed))
        edges = tensor_of(bin_edges, "bin_edges").to("cpu", torch.float32)
        if edges.ndim != 1 or len(edges) < 2:
            raise ValueError(f"bin_edges must be two or more numbers, got {edges.tolist()}")
        wrong = (~(edges[1:] > edges[:-1])).nonzero()  # Also where one is NaN.
        if len(wrong):
            at = int(wrong[0])
            low, high = edges[at : at + 2].tolist()
            raise ValueError(
                f"bin_edges must increase, also as float32: edge {at + 1} is {high:.9g} and "
                f"comes after {low:.9g}"
            )
        self.register_buffer("bin_edges", edges.to(device or "cpu", copy=True))
        counts = torch.zeros(len(edges) - 1, dtype=torch.int64, device=device)
        self.register_buffer("bins", counts)
        self.register_buffer("outside", torch.zeros(3, dtype=torch.int64, device=device))
        self.zero_if_missing(["outside"])

    @property
    def underflow(self) -> int:
        """Number of values below the first edge; the first bin counts them, too."""
        return int(self.outside[0])

    @property
    def overflow(self) -> int:
        """Number of values above the last edge; the last bin counts them, too."""
        return int(self.outside[1])

    @property
    def nan(self) -> int:
        """Number of values that are NaN; no bin counts them."""
        return int(self.outside[2])

    def update_batch(self, values: object, mask: Bool[Tensor, " *batch"] | None = None) -> None:
        """Count values.

        Args:
            values: Numbers in any shape; they are compared as float32.
            mask: Which of them count; all by default. Nothing waits for the device either way.
        """
        edges = self.bin_edges
        numbers = tensor_of(values, "values").to(edges).flatten()
        outside = torch.stack([numbers < edges[0], numbers > edges[-1], numbers.isnan()])
        counted = ~outside[2]
        if mask is not None:
            flags = mask.to(edges.device).flatten()
            outside, counted = outside & flags, counted & flags
        # Without the outer edges every value has a bin, also one that lies beyond them.
        index = torch.searchsorted(edges[1:-1], numbers, right=self.closed == "left")
        self.bins.index_add_(0, index, counted.to(torch.int64))
        self.outside.add_(outside.sum(1))

    def get_probabilities(self) -> Float[Tensor, " bin"]:
        """The share of each bin; zeros as long as nothing was counted."""
        return (self.bins / self.bins.sum().clamp(min=1)).to(torch.float32)

    def get_counts(self) -> Int[Tensor, " bin"]:
        """A copy of the counts."""
        return self.bins.clone()

    def reset(self) -> None:
        """Begin anew with empty bins."""
        self.bins.zero_()
        self.outside.zero_()

    def extra_repr(self) -> str:
        """Number of bins, and the closed side of each, for debugging."""
        return f"bins={len(self.bins)}, closed={self.closed!r}"
