"""Sizes of the errors of learned values, counted by powers of ten."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float64

from empo_inspector.container import Histogram
from empo_theory.inspection import Inspection, InspectionScope

BOUNDS = 10.0 ** np.arange(-8, 1)
"""Greatest size that each count but the last covers."""

Of = Literal["errors_of_v_r", "errors_of_v_e"]
Errors = Float64[np.ndarray, "..."]


def histograms(inspection: Inspection, scope: InspectionScope) -> list[Histogram]:
    """Relative errors of V_r and errors of V_h^e, at the times that are kept.

    Args:
        inspection: Learned values; there is nothing to count without exact ones beside them.
        scope: Times.
    """
    right = inspection.right
    if right is None:
        return []
    times = scope.kept_times(inspection.spec.horizon)
    positions = [time - inspection.first_time for time in times]
    v_r, v_e = (
        np.stack([values[position] for position in positions])
        for values in (inspection.v_r, inspection.v_e)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = v_r / right.v_r[positions] - 1
    candidates = (
        _histogram("errors_of_v_r", relative),
        _histogram("errors_of_v_e", v_e - right.v_e[positions]),
    )
    return [histogram for histogram in candidates if histogram is not None]


def _histogram(of: Of, errors: Errors) -> Histogram | None:
    """Counts of sizes; None where no error is known."""
    sizes = np.abs(errors[np.isfinite(errors)])
    if not len(sizes):
        return None
    counts = np.bincount(BOUNDS.searchsorted(sizes), minlength=len(BOUNDS) + 1)
    return Histogram(
        of=of, mean=float(sizes.mean()), worst=float(sizes.max()), counts=counts.tolist()
    )
