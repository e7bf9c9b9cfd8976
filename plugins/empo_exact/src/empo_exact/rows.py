"""Rows of goal values: the row that each joint action leads to, and combinations of rows; compiled.

The rows are long and found through indices, so most of the sweep's time goes into reading
them. Each function here takes as many goals at a time as a row still has: 16, 8 or 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int32

from empo_core.compilation import inlined
from empo_exact.kernel_data import Floats, Game, GoalPayoffs, Scratch
from empo_exact.simd import (
    EIGHT,
    FOUR,
    SIXTEEN,
    Lanes,
    eight,
    entry,
    four,
    larger,
    load,
    sixteen,
    smaller,
    store,
)

TERMINAL, SOME, PLAIN = 0, 1, 2
"""A state without joint actions; any other; one where each has exactly one successor."""


class Mixture(NamedTuple):
    """Rows of a table and their weights in a sum.

    Attributes:
        rows: Row numbers.
        first_row: Where to begin in ``rows``.
        weights: Weights.
        first_weight: Where to begin in ``weights``.
        size: Number of rows to sum.
    """

    rows: Int32[np.ndarray, " item"]
    first_row: int
    weights: Floats
    first_weight: int
    size: int


@inlined
def blend_some(table: Floats, mixture: Mixture, column: int, zero: Lanes) -> Lanes:
    """Weighted sum of rows of a table, in a few columns."""
    total = zero
    for k in range(mixture.size):
        row = entry(mixture.rows, (mixture.first_row + k,))
        weight = entry(mixture.weights, (mixture.first_weight + k,))
        total += weight * load(table, (row, column), zero)
    return total


@inlined
def blend(table: Floats, mixture: Mixture, out: Floats, out_row: int, begin: int, end: int) -> None:
    """Write a weighted sum of rows of ``table`` to a row of ``out``, between two columns."""
    c = begin
    while c + SIXTEEN <= end:
        store(out, (out_row, c), blend_some(table, mixture, c, sixteen(0.0)))
        c += SIXTEEN
    while c + EIGHT <= end:
        store(out, (out_row, c), blend_some(table, mixture, c, eight(0.0)))
        c += EIGHT
    while c < end:
        store(out, (out_row, c), blend_some(table, mixture, c, four(0.0)))
        c += FOUR


@inlined
def extreme_some(
    table: Float64[np.ndarray, "row column"],
    rows: Int32[np.ndarray, " item"],
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
    table: Float64[np.ndarray, "row column"],
    rows: Int32[np.ndarray, " item"],
    first: int,
    last: int,
    most: bool,
    out: Float64[np.ndarray, "out_row column"],
    out_row: int,
) -> None:
    """Write the smallest (or largest) entries among rows of ``table`` to a row of ``out``."""
    c, end = 0, table.shape[1]
    while c + SIXTEEN <= end:
        store(out, (out_row, c), extreme_some(table, rows, first, last, most, c, sixteen(0.0)))
        c += SIXTEEN
    while c + EIGHT <= end:
        store(out, (out_row, c), extreme_some(table, rows, first, last, most, c, eight(0.0)))
        c += EIGHT
    while c < end:
        store(out, (out_row, c), extreme_some(table, rows, first, last, most, c, four(0.0)))
        c += FOUR


@inlined
def find_rows(game: Game, state: int, worth: GoalPayoffs, nothing: float, s: Scratch) -> int:
    """Fill in the row of ``worth.table`` that each joint action leads to, and what is available.

    Scratch rows receive expectations over several successors, and ``nothing``, which stands for
    unavailable joint actions so that combining rows need not look out for them.

    Returns:
        TERMINAL, SOME or PLAIN.
    """
    joint, profiles, robots = game.num_joint, game.num_profiles, game.num_robot_actions
    table, spare, is_timed = worth.table, worth.spare, worth.is_timed
    base = np.int64(state) * joint
    begin = np.int64(entry(game.offsets, (base,)))
    wrong = np.int64(0)
    for j in range(joint):
        wrong |= (np.int64(entry(game.offsets, (base + j + 1,))) - begin) ^ (j + 1)
    if wrong == 0 and not is_timed:
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
                for goal in range(table.shape[1]):
                    table[blank, goal] = nothing
                spare += 1
            s.at[slot] = blank
            continue
        s.seen[slot // robots] = 1
        s.free[slot % robots] = 1
        if last == first + 1 and not is_timed:
            s.at[slot] = game.successor[first]
            continue
        s.at[slot] = spare
        expect(game, table, first, last, spare, is_timed)
        spare += 1
    return SOME


@inlined
def expect_some(
    game: Game, table: Floats, first: np.int64, last: np.int64, column: int, zero: Lanes
) -> Lanes:
    """Expectation over several successors, in a few columns."""
    total = zero
    for item in range(first, last):
        p = entry(game.prob, (entry(game.code, (item,)),))
        total += p * load(table, (entry(game.successor, (item,)), column), zero)
    return total


@inlined
def expect(
    game: Game, table: Floats, first: np.int64, last: np.int64, spare: int, is_timed: bool
) -> None:
    """Write the expectation over a joint action's successors to row ``spare`` of ``table``."""
    c, end = 0, table.shape[1]
    if is_timed:
        for goal in range(end):
            table[spare, goal] = 0.0
        for item in range(first, last):
            after, code = np.uint32(game.successor[item]), np.int64(game.code[item])
            p, discounted = game.prob[code], game.discounted_h[code]
            for goal in range(end):
                gain = p * game.achieved[after, goal] + discounted * table[after, goal]
                table[spare, goal] += gain
        return
    while c + EIGHT <= end:
        store(table, (spare, c), expect_some(game, table, first, last, c, eight(0.0)))
        c += EIGHT
    while c < end:
        store(table, (spare, c), expect_some(game, table, first, last, c, four(0.0)))
        c += FOUR
