# mypy: disable-error-code="no-any-return"
"""Fitting a table in compiled loops; the equations are those of ``regression`` and ``rules``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_worlds.compilation import compiled, inlined, nested

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
    ``min_share``; ``decay`` is the share of the way back to ``default``. Answers lie from ``low``
    to ``high``.
    """

    share: float
    min_share: float
    decay: float
    default: float
    low: float
    high: float


class Outcome(NamedTuple):
    """Total weight; weighted mean of the squared errors; norm of the gradient; what was done."""

    total: float
    loss: float
    norm: float
    done: int


MOVED, REFUSED, UNKNOWN = range(3)
"""Values were moved; or nothing was, as a number is not finite or there is no weight; or as a line
is missing."""


@compiled
def lines_of(
    entry: Lines, state: Lines, column: Lines, of_column: Lines, columns: int, line: Lines
) -> int:
    """The line of each question, from the entry of its state; returns a question that is wrong.

    Args:
        entry: The entry of each state; negative where there is none.
        state: The state of each question.
        column: What each is about besides, e.g. a human.
        of_column: The column of each of these; negative where it has none.
        columns: Lines per entry.
        line: Gets the lines, negative for states without an entry.
    """
    for q in range(len(state)):
        if state[q] < 0 or state[q] >= len(entry):
            return q
        if column[q] < 0 or column[q] >= len(of_column) or of_column[column[q]] < 0:
            return q
        line[q] = entry[state[q]] * columns + of_column[column[q]]
    return -1


@inlined
def put_positions(line: Lines, slots: NDArray[np.int32], position: NDArray[np.int32]) -> None:
    """Number the distinct lines in order of first occurrence.

    ``slots`` are zeros, their number a power of 2 and at least twice that of questions.
    """
    mask = np.uint64(len(slots) - 1)
    count = 0
    for q in range(len(line)):
        slot = (np.uint64(line[q]) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) & mask
        while slots[slot] > 0 and line[slots[slot] - 1] != line[q]:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] == 0:
            slots[slot] = q + 1
            position[q] = count
            count += 1
        else:
            position[q] = position[slots[slot] - 1]


@nested
def move(
    questions: Questions,
    position: NDArray[np.int32],
    sums: NDArray[np.float64],
    values: Floats,
    counts: Floats,
    total: float,
    rates: Rates,
) -> float:
    """Move values towards their targets, unless the gradient is not finite; returns its norm.

    Args:
        questions: The questions, each with a line.
        position: The position in ``sums`` of each question's line.
        sums: Zeros; gets weights and weighted targets of each line.
        values: The table.
        counts: Its total weights.
        total: The total weight of all questions.
        rates: Parameters of the rule.
    """
    for q in range(len(questions.line)):
        for output in range(values.shape[1]):
            weight = questions.weight[q, output]
            if weight > 0:
                sums[0, position[q], output] += weight
                sums[1, position[q], output] += weight * float(questions.target[q, output])
    square, done = 0.0, 0
    for q in range(len(questions.line)):
        if position[q] == done:  # The first question about this line.
            done += 1
            for output in range(values.shape[1]):
                weight = sums[0, position[q], output]
                error = weight * values[questions.line[q], output] - sums[1, position[q], output]
                square += (error * 2 / total) ** 2
    if not np.isfinite(square):
        return square
    done = 0
    for q in range(len(questions.line)):
        if position[q] == done:
            done += 1
            line = questions.line[q]
            for output in range(values.shape[1]):
                weight = sums[0, position[q], output]
                if weight > 0:
                    value = float(values[line, output])
                    mean = sums[1, position[q], output] / weight
                    counts[line, output] += weight
                    share = rates.share
                    if share < 0:
                        share = max(weight / counts[line, output], rates.min_share)
                    # Exact at both ends: a share of 1 gives the target itself.
                    new = value + share * (mean - value)
                    if share >= 0.5:
                        new = mean - (mean - value) * (1 - share)
                    new -= rates.decay * (value - rates.default)
                    values[line, output] = min(max(new, rates.low), rates.high)
    return np.sqrt(square)


@compiled
def fit_lines(
    questions: Questions,
    slots: NDArray[np.int32],
    position: NDArray[np.int32],
    sums: NDArray[np.float64],
    values: Floats,
    counts: Floats,
    largest: float,
    rates: Rates,
) -> Outcome:
    """Move values towards their targets, where all lines are there and all is finite.

    Args:
        questions: The questions.
        slots: Zeros, at least twice as many as questions and a power of 2.
        position: Room for a number per question.
        sums: Zeros; gets weights and weighted targets of each distinct line.
        values: The table.
        counts: Its total weights.
        largest: Errors above this are refused.
        rates: Parameters of the rule.
    """
    total, loss, are_known = 0.0, 0.0, True
    for q in range(len(questions.line)):
        line = questions.line[q]
        are_known &= line >= 0
        for output in range(values.shape[1]):
            weight = questions.weight[q, output]
            total += weight
            if weight > 0:
                value = values[line, output] if line >= 0 else rates.default
                loss += weight * (value - questions.target[q, output]) ** 2
    loss /= total
    if not loss <= largest:
        return Outcome(total, loss, 0.0, REFUSED)
    if not are_known:
        return Outcome(total, loss, 0.0, UNKNOWN)
    put_positions(questions.line, slots, position)
    norm = move(questions, position, sums, values, counts, total, rates)
    return Outcome(total, loss, norm, MOVED if np.isfinite(norm) else REFUSED)
