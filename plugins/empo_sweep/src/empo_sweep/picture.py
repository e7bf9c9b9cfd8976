"""Values of swept keys against the result: a panel for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from empo_compare.curves import literal
from empo_compare.run_table import short_names, value_text
from empo_core.trees import Json
from empo_pictures.figures import COLOURS, new_figure
from empo_sweep.arms import arm_text
from empo_sweep.results import ArmResult, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_COLUMNS = 3
_LOG_RATIO = 20.0
"""Ratio of the greatest value to the least from which on an axis is logarithmic."""


def picture(results: Results) -> Figure:
    """Means with intervals and the points of all seeds, one panel per swept key."""
    keys = list(results.arms[0].arm) or [""]
    columns = min(_MOST_COLUMNS, len(keys))
    rows = math.ceil(len(keys) / columns)
    figure, panels = new_figure(rows, columns, width=1 + 4 * columns, height=0.6 + 3 * rows)
    names = short_names(keys)
    arms = [arm for arm in results.arms if arm.mean is not None]
    for axes, key in zip(panels, keys, strict=False):
        _panel(axes, arms, key)
        axes.set_xlabel(literal(names[key]) or "all trials")
        axes.set_ylabel(literal(results.objective.key))
    for axes in panels[len(keys) :]:
        axes.set_visible(False)
    return figure


def _panel(axes: Axes, arms: Sequence[ArmResult], key: str) -> None:
    """Arms that agree in all other keys have one colour and one line."""
    places = _places([arm.arm.get(key) for arm in arms], axes)
    groups: dict[str, list[tuple[float, ArmResult]]] = {}
    for place, arm in zip(places, arms, strict=True):
        other_values = {name: value for name, value in arm.arm.items() if name != key}
        groups.setdefault(arm_text(other_values), []).append((place, arm))
    for index, (label, group) in enumerate(groups.items()):
        colour = COLOURS[index % len(COLOURS)]
        group.sort(key=lambda pair: pair[0])
        means = [arm.mean.mean for _, arm in group if arm.mean is not None]
        halves = [(arm.mean.half_width or 0.0) if arm.mean else 0.0 for _, arm in group]
        xs = [place for place, _ in group]
        axes.errorbar(
            xs, means, halves, color=colour, marker="o", linestyle="-", capsize=3,
            label=literal(label),
        )  # fmt: skip
        for place, arm in group:
            values = [arm.values[seed] for seed in sorted(arm.values)]
            axes.plot([place] * len(values), values, ".", color=colour, alpha=0.4, markersize=4)
    if 1 < len(groups) <= len(COLOURS):
        axes.legend(fontsize="small", frameon=False)


def _places(values: Sequence[Json], axes: Axes) -> list[float]:
    """Where values stand on an axis: numbers as they are, others side by side."""
    numbers = [
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if len(numbers) == len(values):
        if numbers and min(numbers) > 0 and max(numbers) / min(numbers) >= _LOG_RATIO:
            axes.set_xscale("log")
        return numbers
    texts = list(dict.fromkeys(value_text(value) for value in values))
    axes.set_xticks(range(len(texts)), [literal(text) for text in texts])
    return [float(texts.index(value_text(value))) for value in values]
