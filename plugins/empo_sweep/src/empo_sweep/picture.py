"""Values of swept keys against the results: a panel per quantity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from empo_compare.run_table import short_names, value_text
from empo_core.trees import Json
from empo_pictures.figures import COLOURS, LINE_STYLES, in_words, literal, new_figure
from empo_sweep.arms import Arm
from empo_sweep.results import ArmResult, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_COLUMNS = 3
_LOG_RATIO = 20.0
"""Ratio of the greatest value to the least from which on an axis is logarithmic."""


def picture(results: Results) -> Figure:
    """Means with intervals and the points of all seeds, one panel per quantity.

    The axis is the swept key with most values, and arms that agree in all other keys have one
    colour and one line. Where those would be too many, as in a search, there is a panel per key.
    """
    further = [other for other in results.further if any(arm.mean for arm in other.arms)]
    quantities = [results, *further]
    arms = [arm.arm for arm in results.arms]
    keys = list(arms[0]) or [""]
    widest = max(keys, key=lambda key: len({value_text(arm.get(key)) for arm in arms}))
    has_lines = len({_others(arm, widest) for arm in arms}) <= len(COLOURS)
    pairs = [
        (quantity, key) for quantity in quantities for key in ([widest] if has_lines else keys)
    ]
    columns = min(_MOST_COLUMNS, len(pairs))
    rows = math.ceil(len(pairs) / columns)
    figure, panels = new_figure(rows, columns, width=1 + 4 * columns, height=0.6 + 3 * rows)
    names = short_names(keys)
    for axes, (quantity, key) in zip(panels, pairs, strict=False):
        _panel(axes, [arm for arm in quantity.arms if arm.mean is not None], key, has_lines)
        axes.set_xlabel(in_words(names[key]) or "all trials")
        axes.set_ylabel(in_words(quantity.objective.key))
    for axes in panels[len(pairs) :]:
        axes.set_visible(False)
    return figure


def _panel(axes: Axes, arms: Sequence[ArmResult], key: str, has_lines: bool) -> None:
    """Means over the values of a key; intervals where there are seeds for them."""
    places = _places([arm.arm.get(key) for arm in arms], axes)
    groups: dict[str, list[tuple[float, ArmResult]]] = {}
    for place, arm in zip(places, arms, strict=True):
        groups.setdefault(_others(arm.arm, key) if has_lines else "", []).append((place, arm))
    for index, (label, group) in enumerate(groups.items()):
        colour = COLOURS[index]
        group.sort(key=lambda pair: pair[0])
        means = [(place, arm.mean) for place, arm in group if arm.mean is not None]
        axes.plot(
            [place for place, _ in means], [mean.mean for _, mean in means], color=colour,
            marker="o", linestyle=LINE_STYLES[index] if has_lines else "none", label=label,
        )  # fmt: skip
        for place, mean in means:
            if mean.half_width is not None:
                axes.errorbar(place, mean.mean, mean.half_width, color=colour, capsize=3)
        for place, arm in group:
            values = [arm.values[seed] for seed in sorted(arm.values)]
            if len(values) > 1:
                axes.plot([place] * len(values), values, ".", color=colour, alpha=0.4, markersize=4)
    if all(value in (0, 1) for arm in arms for value in arm.values.values()):
        axes.set_ylim(-0.05, 1.05)  # A flag, of which the mean is a share.
    if len(groups) > 1:
        axes.legend(fontsize="small", framealpha=0.9)


def _others(arm: Arm, key: str) -> str:
    """The values of an arm but one, in words."""
    names = short_names(arm)
    values = ((names[k], value_text(value)) for k, value in arm.items() if k != key)
    return ", ".join(f"{in_words(name)} = {literal(value)}" for name, value in values)


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
