"""Checks of bin edges for programs that draw histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence


def finite_edges(edges: Sequence[float]) -> list[float]:
    """Edges that can be drawn: an unbounded bin is left without width at its finite edge."""
    finite = [float(edge) for edge in edges if math.isfinite(edge)] or [0.0]
    return [min(max(float(edge), finite[0]), finite[-1]) for edge in edges]
