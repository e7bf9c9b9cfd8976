"""Pictures of how learning went: losses, and the gap to the right values where it is known.

They need matplotlib, which is imported on first use; without it there are no pictures.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from empo_core.pictures import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from empo_phase2.compare import Comparison
    from empo_phase2.values import ValueEstimates

Curve: TypeAlias = Sequence[tuple[int, Mapping[str, float]]]
"""Numbers by name, at some training steps."""

log = logging.getLogger(__name__)

LEAST = 1e-12
"""Smaller numbers are drawn as this: a logarithmic axis has no 0."""

GAPS = (
    ("V_r, relative", ("V_r_root_rel", "V_r_mean_rel", "V_r_max_rel")),
    ("policy, total variation", ("pi_r_root_tv", "pi_r_mean_tv", "pi_r_max_tv")),
    ("V_h^e, absolute", ("V_h_e_root_abs", "V_h_e_mean_abs", "V_h_e_max_abs")),
)


def draw(
    losses: Curve,
    comparison: Comparison | None,
    assessed: ValueEstimates | None,
    directory: Path,
) -> list[Path]:
    """Write ``losses.png``, and ``gap.png`` and ``values.png`` where values were compared.

    Args:
        losses: The loss of each quantity over training steps.
        comparison: The exact values and the gap to them, if values were compared.
        assessed: The learned values of all timed states of ``comparison``.
        directory: Folder of the pictures.
    """
    if find_spec("matplotlib") is None:
        log.info("there are no pictures: matplotlib is not installed")
        return []
    files = []
    if losses:
        files.append(_written(loss_curves(losses), directory / "losses.png"))
    if comparison is not None and comparison.history:
        files.append(_written(gap(comparison), directory / "gap.png"))
        if assessed is not None:
            figure = values(comparison, assessed)
            files.append(_written(figure, directory / "values.png"))
    return files


def loss_curves(curve: Curve) -> Figure:
    """The loss of each quantity over training steps."""
    figure, (axes,) = _figure(1)
    for name in dict.fromkeys(name for _, numbers in curve for name in numbers):
        points = [(step, numbers[name]) for step, numbers in curve if name in numbers]
        steps, heights = zip(*points, strict=True)
        axes.plot(steps, [max(LEAST, height) for height in heights], label=name)
    axes.set(xlabel="training steps", ylabel="loss", yscale="log")
    axes.legend()
    return figure


def gap(comparison: Comparison) -> Figure:
    """Errors of learned values over training steps."""
    figure, plots = _figure(len(GAPS))
    steps = [gap.step for gap in comparison.history]
    for axes, (title, keys) in zip(plots, GAPS, strict=True):
        for key, label in zip(keys, ("start", "mean", "worst"), strict=True):
            heights = [max(LEAST, gap.metrics[f"Compare/{key}"]) for gap in comparison.history]
            axes.plot(steps, heights, label=label, marker="." if len(steps) < 50 else "")
        axes.set(title=title, xlabel="training steps", yscale="log")
        axes.grid(alpha=0.3)
    plots[0].set_ylabel("gap to the right values")
    plots[0].legend()
    return figure


def values(comparison: Comparison, found: ValueEstimates) -> Figure:
    """Learned V_r over right V_r, one point per state and number of remaining steps."""
    figure, (axes,) = _figure(1)
    right, seen = comparison.right.v_r, comparison.seen
    groups = ((~seen, "never visited", "tab:orange"), (seen, "visited", "tab:blue"))
    for group, label, colour in groups:
        if group.any():
            axes.scatter(right[group], found.v_r[group], s=6, alpha=0.5, label=label, color=colour)
    low, high = float(right.min()), float(right.max())
    axes.plot([low, high], [low, high], color="black", linewidth=0.8)
    axes.set(xlabel="right V_r", ylabel="learned V_r")
    axes.legend()
    return figure


def _figure(columns: int) -> tuple[Figure, Sequence[Axes]]:
    """A figure of its own, with no state that others share."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8 * columns, 3.6), layout="constrained")
    return figure, [figure.add_subplot(1, columns, 1 + column) for column in range(columns)]


def _written(figure: Figure, path: Path) -> Path:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return replace_file(path, buffer.getvalue())
