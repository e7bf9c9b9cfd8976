"""Backward induction over what was expanded: bounds of V_h^e, X_h, U_r and V_r at every pair.

For given policies equations (4), (6) and (9) are linear with coefficients that are not negative, so
bounds of what comes later give bounds of what comes before; (7) and (8) are monotone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int32, Int64

from empo_bounds.assumptions import (
    ACCRUAL,
    Assumptions,
    FrontierBounds,
    frontier_bounds,
    proved_pairs,
    refuse_early_ends,
)
from empo_bounds.kernels import Bounds, Pairs, attain, expect
from empo_bounds.power import accrual_bounds, discounts, lack_bounds, power_bounds
from empo_bounds.rounding import down, up
from empo_bounds.unrolled import Unrolled


@dataclass(frozen=True)
class PairBounds:
    """Bounds at pairs of one time.

    Attributes:
        v_e: Of V_h^e, goals human by human [pair goal].
        x_h: Of X_h; not known where a pair was not expanded [pair human].
        lack: Of -U_r; likewise [pair].
        loss: Of -V_r [pair].
    """

    v_e: Bounds
    x_h: Bounds
    lack: Bounds
    loss: Bounds


@dataclass(frozen=True)
class Induced:
    """Outcome of an induction.

    Attributes:
        start: Bounds at the start, the only pair of its time.
        proved: Expanded pairs in which the assumed least power is proved; None where none is
            assumed.
        times: Bounds of X_h, -U_r and -V_r at every time, where they were asked for.
    """

    start: PairBounds
    proved: int | None
    times: list[PairBounds]


def induce(unrolled: Unrolled, assumed: Assumptions, *, keep: bool = False) -> Induced:
    """Bounds that follow from what was expanded.

    Args:
        unrolled: Pairs, transitions and policies.
        assumed: Claims about the frontier, which are tested here wherever that can be done.
        keep: Whether the bounds of all times are wanted, those of V_h^e apart.

    Raises:
        SolveError: A claim is wrong.
    """
    if assumed.never_ends_early:
        refuse_early_ends(unrolled)
    frontier = frontier_bounds(
        unrolled.question, assumed, len(unrolled.layers), is_timed=unrolled.is_timed
    )
    later: PairBounds | None = None
    proved, kept = 0, []
    for time in range(len(unrolled.layers) - 1, -1, -1):
        found = _unexpanded(unrolled, time, frontier)
        expanded = unrolled.layers[time].expanded
        if later is not None and expanded.any():
            _value(unrolled, time, later, assumed, found)
            if assumed.min_power is not None:
                tested = Bounds(*(each[expanded] for each in found.x_h))
                state = unrolled.state(time)[expanded]
                proved += proved_pairs(unrolled, assumed.min_power, state, time, tested)
        later = found
        if keep:
            kept.append(PairBounds(_nothing(found.v_e), found.x_h, found.lack, found.loss))
    assert later is not None
    return Induced(later, None if assumed.min_power is None else proved, kept[::-1])


def _nothing(bounds: Bounds) -> Bounds:
    """The bounds of no goals, for pairs whose V_h^e is not kept."""
    return Bounds(*(np.zeros((len(each), 0)) for each in bounds))


def _unexpanded(unrolled: Unrolled, time: int, frontier: FrontierBounds) -> PairBounds:
    """Bounds of all pairs of a time, as if none had been expanded."""
    question = unrolled.question
    alive, end = unrolled.alive(time), -question.theory.terminal_value
    count, humans = len(alive), len(question.spec.humans)

    def chances(bound: float) -> Float64[np.ndarray, "pair goal"]:
        found: Float64[np.ndarray, "pair goal"] = np.zeros((count, len(question.order)))
        found[alive] = bound
        return found

    return PairBounds(
        Bounds(chances(frontier.v_e.low[time]), chances(frontier.v_e.high[time])),
        Bounds(np.zeros((count, humans)), np.full((count, humans), np.inf)),
        Bounds(np.zeros(count), np.full(count, np.inf)),
        Bounds(
            np.where(alive, frontier.loss.low[time], end),
            np.where(alive, frontier.loss.high[time], end),
        ),
    )


def _value(
    unrolled: Unrolled, time: int, later: PairBounds, assumed: Assumptions, found: PairBounds
) -> None:
    """Replace the bounds of pairs that were expanded by those that follow from what comes later."""
    question, tables, moments = unrolled.question, unrolled.policies, unrolled.moments
    worth, payoff = _arrivals(unrolled, time + 1, later)
    pairs = Pairs(unrolled.layers[time].moment, unrolled.position(time + 1))
    for human, first in enumerate(question.first_goal[:-1]):
        attain(moments.steps(human), tables.human(human), first, pairs, worth, found.v_e)
    expected = np.zeros((len(pairs.moment), payoff.shape[1]))
    expect(moments.steps(0), tables.marginal(0), pairs, payoff, expected)
    chosen = np.flatnonzero(pairs.moment >= 0)
    expected = expected[chosen]
    operations = operations_of(unrolled, pairs.moment[chosen])
    v_e = Bounds(
        down(found.v_e.low[chosen], operations[:, None]),
        up(found.v_e.high[chosen], operations[:, None]),
    )
    x_h = power_bounds(question, v_e)
    least = 0.0 if assumed.min_power is None else assumed.min_power
    lack = lack_bounds(question, Bounds(np.maximum(x_h.low, least), x_h.high))
    counts = expected[:, 2] if question.accrual == "continuous" else 1.0
    loss = Bounds(
        down(counts * lack.low + expected[:, 0], operations),
        up(counts * lack.high + expected[:, 1], operations),
    )
    news = ((found.v_e, v_e), (found.x_h, x_h), (found.lack, lack), (found.loss, loss))
    for old, new in news:
        old.low[chosen], old.high[chosen] = new.low, new.high


def _arrivals(
    unrolled: Unrolled, time: int, found: PairBounds
) -> tuple[Bounds, Float64[np.ndarray, "pair 3"]]:
    """What it is worth to reach each pair of a time.

    Returns:
        1 where it attains a goal, else discounted V_h^e [pair goal]; and discounted -V_r from
        below and from above, and how much U_r counts on the way [pair 3].
    """
    theory = unrolled.question.theory
    duration = unrolled.landings.duration(unrolled.layers[time].landing)
    achieved = unrolled.states.achieved[unrolled.state(time)].astype(np.bool_)
    of_human = discounts(theory.gamma_h, duration)[:, None]
    of_robot = discounts(theory.gamma_r, duration)
    worth = Bounds(*(np.where(achieved, 1.0, of_human * each) for each in found.v_e))
    losses = [of_robot * each for each in found.loss]
    return worth, np.stack([*losses, accrual_bounds(unrolled.question, duration)], 1)


def operations_of(
    unrolled: Unrolled, moment: Int32[np.ndarray, " pair"]
) -> Int64[np.ndarray, " pair"]:
    """Operations behind each computed sum of some pairs, generously."""
    question, moments = unrolled.question, unrolled.moments
    fixed = question.sum_operations + question.num_actions + ACCRUAL + len(question.order)
    found: Int64[np.ndarray, " pair"] = moments.items[moment] + moments.entries(moment) + fixed
    return found
