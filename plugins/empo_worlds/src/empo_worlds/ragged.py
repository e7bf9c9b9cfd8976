"""Selection and concatenation of ragged successors (``empo_core.types.Successors``)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.types import Successors


def select_pairs(successors: Successors, pairs: Int[Tensor, " pair"]) -> Successors:
    """The successors of some pairs, in the given order."""
    start = successors.offsets[pairs]
    counts = successors.offsets[pairs + 1] - start
    offsets = torch.zeros(len(pairs) + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=offsets[1:])
    total = int(offsets[-1])
    shift = torch.repeat_interleave(start - offsets[:-1], counts, output_size=total)
    items = shift + torch.arange(total)
    duration = None if successors.duration is None else successors.duration[items]
    return Successors(offsets, successors.states[items], successors.prob[items], duration)


def concatenate(parts: Sequence[Successors]) -> Successors:
    """The pairs of all parts, one part after the other."""
    ends = torch.tensor([0] + [len(part.prob) for part in parts]).cumsum(0)
    offsets = [part.offsets[:-1] + end for part, end in zip(parts, ends[:-1], strict=True)]
    durations = [torch.ones_like(p.prob) if p.duration is None else p.duration for p in parts]
    return Successors(
        torch.cat([*offsets, ends[-1:]]),
        torch.cat([part.states for part in parts]),
        torch.cat([part.prob for part in parts]),
        None if all(part.duration is None for part in parts) else torch.cat(durations),
    )
