"""Curves of runs that differ in the seed alone: their mean, and the band in which it lies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64

from empo_core.runs.metrics import Curve
from empo_learning.statistics import interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS_TO_GO = "exact/v_r"
"""The metric whose steps are those that are left."""


@dataclass(frozen=True)
class Band:
    """Means over seeds, with 95 % intervals.

    Attributes:
        steps: Steps at which all curves have a value [point].
        mean: Mean over the curves [point].
        half_width: The true mean lies that near with 95 % confidence; NaN for one curve [point].
        number: Number of curves.
    """

    steps: Int64[np.ndarray, " point"]
    mean: Float64[np.ndarray, " point"]
    half_width: Float64[np.ndarray, " point"]
    number: int


def band_of(curves: Sequence[Curve]) -> Band | None:
    """The band at the steps of the curve with fewest, as far as all curves go.

    Others are interpolated linearly. None where there is no common step.
    """
    curves = [curve for curve in curves if len(curve.steps)]
    if not curves:
        return None
    first = max(curve.steps[0] for curve in curves)
    last = min(curve.steps[-1] for curve in curves)
    inside = [curve.steps[(curve.steps >= first) & (curve.steps <= last)] for curve in curves]
    steps = min(inside, key=len)
    if not len(steps):
        return None
    values = np.array([np.interp(steps, curve.steps, curve.values) for curve in curves])
    mean, half_width = interval(values)
    return Band(steps, mean, half_width, len(curves))


def picture(bands: Mapping[str, Mapping[str, Band]], labels: Mapping[str, str]) -> Figure:
    """A panel per metric with a line per group, and a band around it where there are seeds.

    Args:
        bands: By metric and group.
        labels: Of the groups.
    """
    from empo_pictures.figures import COLOURS, LINE_STYLES, in_words, literal, new_figure

    columns = min(2, len(bands))
    rows = math.ceil(len(bands) / columns)
    figure, panels = new_figure(rows, columns, width=1 + 4.5 * columns, height=1 + 3 * rows)
    lines = {}
    for axes, (metric, by_group) in zip(panels, bands.items(), strict=False):
        for index, (group, label) in enumerate(labels.items()):
            if group not in by_group:
                continue
            band = by_group[group]
            colour, style = COLOURS[index % len(COLOURS)], LINE_STYLES[index % len(LINE_STYLES)]
            single = "o" if len(band.steps) == 1 else None
            (lines[label],) = axes.plot(
                band.steps, band.mean, color=colour, linestyle=style, marker=single
            )
            low, high = band.mean - band.half_width, band.mean + band.half_width
            axes.fill_between(band.steps, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set_title(in_words(metric), fontsize="medium")
        axes.set_xlabel("steps to go" if metric == STEPS_TO_GO else "step")
    for axes in panels[len(bands) :]:
        axes.set_visible(False)
    names = [literal(label) for label in lines]
    figure.legend(list(lines.values()), names, loc="outside lower center", frameon=False)
    return figure
