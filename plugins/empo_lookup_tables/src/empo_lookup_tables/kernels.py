# mypy: disable-error-code="no-any-return"
"""Fitting a table in compiled loops; the equations are those of ``regression`` and ``rules``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_core.compilation import compiled

Floats = NDArray[Any]
Lines = NDArray[np.int64]


class Questions(NamedTuple):
    """The line of each question (negative: none), its targets and their weights."""

    line: Lines
    target: Floats
    weight: Floats


class Rates(NamedTuple):
    """Share of the way to new targets.

    It is ``share``, or where that is negative the weight of the new ones among all, at least
    ``least``; ``decay`` is the share of the way back to ``default``. Answers lie from ``low`` to
    ``high``.
    """

    share: float
    least: float
    decay: float
    default: float
    low: float
    high: float


@compiled
def errors(asked: Questions, values: Floats, default: float) -> tuple[float, float, bool]:
    """The total weight, the weighted mean of the squared errors, and whether all lines exist."""
    total, loss, are_known = 0.0, 0.0, True
    for q in range(len(asked.line)):
        line = asked.line[q]
        are_known &= line >= 0
        for output in range(values.shape[1]):
            weight = asked.weight[q, output]
            total += weight
            if weight > 0:
                value = values[line, output] if line >= 0 else default
                loss += weight * (value - asked.target[q, output]) ** 2
    return total, loss / total, are_known


@compiled
def move(
    asked: Questions,
    position: NDArray[np.int32],
    sums: NDArray[np.float64],
    values: Floats,
    counts: Floats,
    total: float,
    rates: Rates,
) -> float:
    """Move values towards their targets, unless the gradient is not finite; returns its norm.

    Args:
        asked: The questions, each with a line.
        position: The position in ``sums`` of each question's line.
        sums: Zeros; gets weights and weighted targets of each line.
        values: The table.
        counts: Its total weights.
        total: The total weight of all questions.
        rates: Parameters of the rule.
    """
    for q in range(len(asked.line)):
        for output in range(values.shape[1]):
            weight = asked.weight[q, output]
            if weight > 0:
                sums[0, position[q], output] += weight
                sums[1, position[q], output] += weight * float(asked.target[q, output])
    square, done = 0.0, 0
    for q in range(len(asked.line)):
        if position[q] == done:  # The first question about this line.
            done += 1
            for output in range(values.shape[1]):
                weight = sums[0, position[q], output]
                error = weight * values[asked.line[q], output] - sums[1, position[q], output]
                square += (error * 2 / total) ** 2
    if not np.isfinite(square):
        return square
    done = 0
    for q in range(len(asked.line)):
        if position[q] == done:
            done += 1
            line = asked.line[q]
            for output in range(values.shape[1]):
                weight = sums[0, position[q], output]
                if weight > 0:
                    value = float(values[line, output])
                    mean = sums[1, position[q], output] / weight
                    counts[line, output] += weight
                    share = rates.share
                    if share < 0:
                        share = max(weight / counts[line, output], rates.least)
                    # Exact at both ends: a share of 1 gives the target itself.
                    new = value + share * (mean - value)
                    if share >= 0.5:
                        new = mean - (mean - value) * (1 - share)
                    new -= rates.decay * (value - rates.default)
                    values[line, output] = min(max(new, rates.low), rates.high)
    return np.sqrt(square)
