"""What joint actions lead to, and combinations of rows of values; compiled.

The rows are long and found through indices, so most of the sweep's time goes into reading
them. Each function here takes as many goals at a time as a row still has: 16, 8 or 4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from empo_core.compilation import inlined
from empo_exact.kernel_data import Floats, Game, Scratch
from empo_exact.simd import Lanes, eight, entry, four, larger, load, sixteen, smaller, store

TERMINAL, SOME, PLAIN = 0, 1, 2
"""A state without joint actions; any other; one where each has exactly one successor."""


@inlined
def blend_some(
    table: Floats,
    rows: NDArray[np.int32],
    first_row: int,
    weights: Floats,
    first_weight: int,
    count: int,
    column: int,
    zero: Lanes,
) -> Lanes:
    """Weighted sum of rows of a table, in a few columns."""
    total = zero
    for k in range(count):
        row, weight = entry(rows, (first_row + k,)), entry(weights, (first_weight + k,))
        total += weight * load(table, (row, column), zero)
    return total


@inlined
def blend(
    table: Floats,
    rows: NDArray[np.int32],
    first_row: int,
    weights: Floats,
    first_weight: int,
    count: int,
    out: Floats,
    out_row: int,
    begin: int,
    end: int,
) -> None:
    """Write a weighted sum of rows of ``table`` to a row of ``out``.

    Args:
        table: What to sum [row column].
        rows: Row numbers.
        first_row: Where to begin in ``rows``.
        weights: Weights.
        first_weight: Where to begin in ``weights``.
        count: How many rows to sum.
        out: Receives the sum [row column].
        out_row: In this row.
        begin: First column.
        end: Behind the last column.
    """
    c, r, w = begin, first_row, first_weight
    while c + 16 <= end:
        total = blend_some(table, rows, r, weights, w, count, c, sixteen(0.0))
        store(out, (out_row, c), total)
        c += 16
    while c + 8 <= end:
        store(out, (out_row, c), blend_some(table, rows, r, weights, w, count, c, eight(0.0)))
        c += 8
    while c < end:
        store(out, (out_row, c), blend_some(table, rows, r, weights, w, count, c, four(0.0)))
        c += 4


@inlined
def extreme_some(
    table: Floats,
    rows: NDArray[np.int32],
    first: int,
    last: int,
    most: bool,
    column: int,
    like: Lanes,
) -> Lanes:
    """Smallest (or largest) entries among rows of a table, in a few columns."""
    found = load(table, (entry(rows, (first,)), column), like)
    if most:
        for k in range(first + 1, last):
            found = larger(found, load(table, (entry(rows, (k,)), column), like))
    else:
        for k in range(first + 1, last):
            found = smaller(found, load(table, (entry(rows, (k,)), column), like))
    return found


@inlined
def extreme(
    table: Floats,
    rows: NDArray[np.int32],
    first: int,
    last: int,
    most: bool,
    out: Floats,
    out_row: int,
) -> None:
    """Write the smallest (or largest) entries among rows of ``table`` to a row of ``out``."""
    c, end = 0, table.shape[1]
    while c + 16 <= end:
        store(out, (out_row, c), extreme_some(table, rows, first, last, most, c, sixteen(0.0)))
        c += 16
    while c + 8 <= end:
        store(out, (out_row, c), extreme_some(table, rows, first, last, most, c, eight(0.0)))
        c += 8
    while c < end:
        store(out, (out_row, c), extreme_some(table, rows, first, last, most, c, four(0.0)))
        c += 4


@inlined
def find_rows(
    game: Game,
    state: int,
    value: Floats,
    spare: int,
    longer: bool,
    nothing: float,
    s: Scratch,
) -> int:
    """Fill in which row of ``value`` each joint action leads to, and what is available.

    ``value`` is 1 where a goal is achieved and the discounted value elsewhere, or, where
    durations differ (``longer``), 0 and the undiscounted value. Rows from ``spare`` on receive
    expectations over several successors, and ``nothing``, which stands for unavailable joint
    actions so that combining rows need not look out for them.

    Returns:
        TERMINAL, SOME or PLAIN.
    """
    joint, profiles, robots = game.shape[0], game.shape[1], game.shape[2]
    base = np.int64(state) * joint
    begin = np.int64(entry(game.offsets, (base,)))
    wrong = np.int64(0)
    for j in range(joint):
        wrong |= (np.int64(entry(game.offsets, (base + j + 1,))) - begin) ^ (j + 1)
    if wrong == 0 and not longer:
        for slot in range(joint):
            s.at[slot] = entry(game.successor, (begin + entry(game.joint, (slot,)),))
        for profile in range(profiles):
            s.seen[profile] = 1
        for robot in range(robots):
            s.free[robot] = 1
        return PLAIN
    if np.int64(entry(game.offsets, (base + joint,))) == begin:
        return TERMINAL
    blank = -1
    for profile in range(profiles):
        s.seen[profile] = 0
    for robot in range(robots):
        s.free[robot] = 0
    for slot in range(joint):
        pair = base + entry(game.joint, (slot,))
        first = np.int64(entry(game.offsets, (pair,)))
        last = np.int64(entry(game.offsets, (pair + 1,)))
        if first == last:
            if blank < 0:
                blank = spare
                for goal in range(value.shape[1]):
                    value[blank, goal] = nothing
                spare += 1
            s.at[slot] = blank
            continue
        s.seen[slot // robots] = 1
        s.free[slot % robots] = 1
        if last == first + 1 and not longer:
            s.at[slot] = game.successor[first]
            continue
        s.at[slot] = spare
        expect(game, value, first, last, spare, longer)
        spare += 1
    return SOME


@inlined
def expect_some(
    game: Game, value: Floats, first: np.int64, last: np.int64, column: int, zero: Lanes
) -> Lanes:
    """Expectation over several successors, in a few columns."""
    total = zero
    for item in range(first, last):
        p = entry(game.prob, (entry(game.code, (item,)),))
        total += p * load(value, (entry(game.successor, (item,)), column), zero)
    return total


@inlined
def expect(
    game: Game, value: Floats, first: np.int64, last: np.int64, spare: int, longer: bool
) -> None:
    """Write what a joint action is worth on average over its successors to row ``spare``."""
    c, end = 0, value.shape[1]
    if longer:
        for goal in range(end):
            value[spare, goal] = 0.0
        for item in range(first, last):
            after, code = np.uint32(game.successor[item]), np.int64(game.code[item])
            p, discounted = game.prob[code], game.discounted_h[code]
            for goal in range(end):
                gain = p * game.achieved[after, goal] + discounted * value[after, goal]
                value[spare, goal] += gain
        return
    while c + 8 <= end:
        store(value, (spare, c), expect_some(game, value, first, last, c, eight(0.0)))
        c += 8
    while c < end:
        store(value, (spare, c), expect_some(game, value, first, last, c, four(0.0)))
        c += 4
