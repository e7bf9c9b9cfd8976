"""Pictures of how learning went: losses, and the gap to the right values where it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from empo_pictures.figures import COLOURS, in_words, new_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from empo_phase2.compare import Comparison
    from empo_phase2.estimates import ValueEstimates

Curve: TypeAlias = Sequence[tuple[int, Mapping[str, float]]]
"""Numbers by name, at some training steps."""

LEAST = 1e-12
"""Smaller numbers are drawn as this, and marked: a logarithmic axis has no 0."""

GAPS = (
    ("$V_r$, relative", ("V_r_root_rel", "V_r_mean_rel", "V_r_max_rel")),
    ("policy, total variation", ("pi_r_root_tv", "pi_r_mean_tv", "pi_r_max_tv")),
    ("$V_h^e$, absolute", ("V_h_e_root_abs", "V_h_e_mean_abs", "V_h_e_max_abs")),
)


def draw(
    losses: Curve, comparison: Comparison | None, assessed: ValueEstimates | None, directory: Path
) -> None:
    """Write ``losses``, and ``gap`` and ``values`` where values were compared, as PNG, SVG and PDF.

    Args:
        losses: The loss of each quantity over training steps.
        comparison: The exact values and the gap to them, if values were compared.
        assessed: The learned values of all timed states of ``comparison``.
        directory: Folder of the pictures.
    """
    figures = {}
    if losses:
        figures["losses"] = loss_curves(losses)
    if comparison is not None and comparison.history:
        figures["gap"] = gap(comparison)
        if assessed is not None:
            figures["values"] = values(comparison, assessed)
    for name, figure in figures.items():
        write_figure(figure, directory / f"{name}.png")


def loss_curves(curve: Curve) -> Figure:
    """The loss of each quantity over training steps."""
    figure, (axes,) = new_figure()
    for name in dict.fromkeys(name for _, numbers in curve for name in numbers):
        points = [(step, numbers[name]) for step, numbers in curve if name in numbers]
        _draw_log(axes, points, in_words(name))
    axes.set(title="Loss of each quantity", xlabel="training steps", ylabel="loss")
    axes.legend()
    return figure


def gap(comparison: Comparison) -> Figure:
    """Errors of learned values over training steps."""
    figure, plots = new_figure(columns=len(GAPS), width=4.8 * len(GAPS))
    for axes, (title, keys) in zip(plots, GAPS, strict=True):
        for key, label in zip(keys, ("start", "mean", "worst"), strict=True):
            points = [(step, metrics[f"Compare/{key}"]) for step, metrics in comparison.history]
            _draw_log(axes, points, label)
        axes.set(title=title, xlabel="training steps")
        axes.legend()
    plots[0].set_ylabel("gap to the right values")
    return figure


def values(comparison: Comparison, estimates: ValueEstimates) -> Figure:
    """Learned V_r over right V_r, one point per state and number of remaining steps."""
    figure, (axes,) = new_figure(width=4.8, height=4.2)
    right, is_visited = comparison.right.v_r, comparison.is_visited
    groups = (
        (~is_visited, "never visited", COLOURS[1], "x"),
        (is_visited, "visited", COLOURS[0], "o"),
    )
    for group, label, colour, marker in groups:
        if group.any():
            axes.plot(right[group], estimates.v_r[group], marker, ms=3, color=colour, label=label)
    low, high = float(right.min()), float(right.max())
    axes.plot([low, high], [low, high], "k-", linewidth=0.8, label="learned = right")
    axes.set(title="$V_r$ of each state and time", xlabel="right $V_r$", ylabel="learned $V_r$")
    axes.legend()
    return figure


def _draw_log(axes: Axes, points: Sequence[tuple[int, float]], label: str) -> None:
    """A curve on a logarithmic axis; what lies below ``LEAST`` is drawn there and marked."""
    steps, heights = np.array(points, dtype=float).T
    below = heights < LEAST
    if below.any():
        label += f" (▼ below {LEAST:g})"
    marker = "." if len(steps) < 50 else ""
    (line,) = axes.plot(steps, np.maximum(heights, LEAST), label=label, marker=marker)
    axes.plot(steps[below], np.full(below.sum(), LEAST), "v", color=line.get_color())
    axes.set_yscale("log")
