# mypy: disable-error-code="no-any-return"
"""Rows of goal values: the row that each joint action leads to, and combinations of rows; compiled.

The rows are long and found through indices, so most of the sweep's time goes into reading
them: 8 or 4 goals at a time, and four rows at a time where the robots have as many joint actions.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Int32

from empo_exact.game import Floats, Game, GoalPayoffs, Scratch
from empo_exact.simd import (
    FOUR,
    Lanes,
    entry,
    four,
    larger,
    load,
    over_goals,
    smaller,
    store,
    where_less,
)
from empo_worlds.compilation import inlined

TERMINAL, SOME, PLAIN = 0, 1, 2
"""A state without joint actions; any other; one where each has exactly one successor."""


FourRows: TypeAlias = tuple[np.int32, np.int32, np.int32, np.int32]


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


class Successors(NamedTuple):
    """The row of goal values that each joint action of a state leads to.

    Attributes:
        rows: Row numbers.
        first: Where those of the state begin, in the order of joint actions.
    """

    rows: Int32[np.ndarray, " item"]
    first: np.int64


@inlined
def row_of(assumed: Floats, state: int) -> int:
    """The row of a state in an array of ``Humans``, whose only row holds for all states."""
    return state if assumed.shape[0] > 1 else 0


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
def reply_row(game: Game, successors: Successors, profile: int, robot: int) -> np.int32:
    """The row that a profile and a joint robot action lead to."""
    joint = entry(game.profile_joint, (profile,)) + entry(game.robot_joint, (robot,))
    return entry(successors.rows, (successors.first + joint,))


@inlined
def four_replies(game: Game, successors: Successors, profile: int, robot: int) -> FourRows:
    """The rows that a profile and four joint robot actions in a row lead to."""
    return (
        reply_row(game, successors, profile, robot),
        reply_row(game, successors, profile, robot + 1),
        reply_row(game, successors, profile, robot + 2),
        reply_row(game, successors, profile, robot + 3),
    )


@inlined
def blend_four(
    goal: int,
    zero: Lanes,
    table: Floats,
    rows: FourRows,
    weights: Floats,
    out: Floats,
    row: int,
) -> None:
    """Write the sum of four rows by the first four weights to a row of ``out``, for a few goals."""
    total = zero + entry(weights, (0,)) * load(table, (rows[0], goal), zero)
    total += entry(weights, (1,)) * load(table, (rows[1], goal), zero)
    total += entry(weights, (2,)) * load(table, (rows[2], goal), zero)
    total += entry(weights, (3,)) * load(table, (rows[3], goal), zero)
    store(out, (row, goal), total)


@inlined
def blend_replies(
    game: Game, table: Floats, successors: Successors, profile: int, weights: Floats, out: Floats
) -> None:
    """Write the values of a profile, with weights of the robot's replies, to its row of ``out``."""
    end, robots, done = table.shape[1], game.num_robot_actions, 0
    if robots >= 4:
        rows = four_replies(game, successors, profile, 0)
        over_goals(blend_four, 0, end, table, rows, weights, out, profile)
        done = 4
    for robot in range(done, robots):
        row, weight = reply_row(game, successors, profile, robot), entry(weights, (robot,))
        for column in range(0, end, FOUR):
            total = four(0.0) if robot == 0 else load(out, (profile, column), four(0.0))
            store(out, (profile, column), total + weight * load(table, (row, column), total))


@inlined
def further(a: Lanes, b: Lanes, is_max: bool) -> Lanes:
    """The larger of two numbers in each lane; or the smaller."""
    return larger(a, b) if is_max else smaller(a, b)


@inlined
def extreme_of_four(
    goal: int, like: Lanes, table: Floats, rows: FourRows, is_max: bool, out: Floats, row: int
) -> None:
    """Write the largest (or smallest) of four rows to a row of ``out``, for a few goals."""
    a, b = load(table, (rows[0], goal), like), load(table, (rows[1], goal), like)
    c, d = load(table, (rows[2], goal), like), load(table, (rows[3], goal), like)
    best = further(further(a, b, is_max), further(c, d, is_max), is_max)
    store(out, (row, goal), best)


@inlined
def extreme_replies(
    game: Game, table: Floats, successors: Successors, profile: int, is_max: bool, out: Floats
) -> None:
    """Write the largest (or smallest) values among the robot's replies to a profile's row."""
    end, robots, done = table.shape[1], game.num_robot_actions, 0
    if robots >= 4:
        rows = four_replies(game, successors, profile, 0)
        over_goals(extreme_of_four, 0, end, table, rows, is_max, out, profile)
        done = 4
    for robot in range(done, robots):
        row = reply_row(game, successors, profile, robot)
        for column in range(0, end, FOUR):
            value = load(table, (row, column), four(0.0))
            if robot > 0:
                value = further(load(out, (profile, column), value), value, is_max)
            store(out, (profile, column), value)


@inlined
def kind_of(game: Game, state: int) -> int:
    """Kind of a state: TERMINAL, SOME or PLAIN."""
    if entry(game.is_plain, (state,)) != 0:
        return PLAIN
    base = np.int64(state) * game.num_joint
    first, end = entry(game.offsets, (base,)), entry(game.offsets, (base + game.num_joint,))
    return TERMINAL if first == end else SOME


@inlined
def expect_successors(
    game: Game, state: int, kind: int, payoffs: GoalPayoffs, unavailable: float, s: Scratch
) -> Successors:
    """The row of ``payoffs.table`` with E over s' of each joint action; notes what is available.

    Rows have the numbers of states, so that a single successor is its own row. Scratch rows
    receive expectations over several successors, and ``unavailable``, which stands for unavailable
    joint actions so that combining rows need not look out for them. What is available is a product
    over agents, so no available profile meets ``unavailable`` under an available robot action.
    """
    joint, profiles, robots = game.num_joint, game.num_profiles, game.num_robot_actions
    table, spare, is_timed = payoffs.table, payoffs.spare, payoffs.is_timed
    base = np.int64(state) * joint
    available = np.uint8(kind == PLAIN)
    for profile in range(profiles):
        s.is_available[profile] = available
    for robot in range(robots):
        s.is_robot_available[robot] = available
    if kind == PLAIN:
        return Successors(game.successor, np.int64(entry(game.offsets, (base,))))
    unavailable_row = -1
    for profile in range(profiles):
        for robot in range(robots):
            action = entry(game.profile_joint, (profile,)) + entry(game.robot_joint, (robot,))
            first = np.int64(entry(game.offsets, (base + action,)))
            last = np.int64(entry(game.offsets, (base + action + 1,)))
            if first == last:
                if unavailable_row < 0:
                    unavailable_row = spare
                    for goal in range(table.shape[1]):
                        table[unavailable_row, goal] = unavailable
                    spare += 1
                s.leads_to[action] = unavailable_row
                continue
            s.is_available[profile] = 1
            s.is_robot_available[robot] = 1
            if last == first + 1 and not is_timed:
                s.leads_to[action] = game.successor[first]
                continue
            s.leads_to[action] = spare
            over_goals(expect, 0, table.shape[1], game, payoffs, first, last, spare)
            spare += 1
    return Successors(s.leads_to, np.int64(0))


@inlined
def payoff(achieved: Lanes, value: Lanes, arrived: float, discounted: float) -> Lanes:
    """The bracket of equations (1) and (6) for a few goals, times a weight.

    It is U_h(s', g) + (1 - U_h(s', g)) gamma_h V_h(s', g), for the next state s'; where presence
    counts, gamma_h is before U_h, too.

    Args:
        achieved: U_h, 1 where the next state achieves the goal and 0 elsewhere.
        value: V_h of the next state.
        arrived: The weight times what entering a goal counts.
        discounted: The weight times gamma_h, to the power of the duration.
    """
    return where_less(0.0, achieved, arrived, discounted * value)


@inlined
def expect(
    goal: int,
    zero: Lanes,
    game: Game,
    payoffs: GoalPayoffs,
    first: np.int64,
    last: np.int64,
    row: int,
) -> None:
    """Write E over s' of the bracket in (1) and (6) to a scratch row, for a few goals.

    The successors are those of the transitions ``first`` to ``last``.
    """
    total = zero
    for item in range(first, last):
        code, after = entry(game.code, (item,)), entry(game.successor, (item,))
        p, value = entry(game.prob, (code,)), load(payoffs.table, (after, goal), zero)
        if payoffs.is_timed:
            achieved, arrived = (
                load(game.achieved, (after, goal), zero),
                entry(game.arrived, (code,)),
            )
            total += payoff(achieved, value, arrived, entry(game.discounted_h, (code,)))
        else:
            total += p * value  # Already the bracket, see ``payoffs.write_payoffs``.
    store(payoffs.table, (row, goal), total)
