"""Backward induction over what was expanded: bounds of V_h^e, X_h, U_r and V_r at every pair.

For given policies equations (4), (6) and (9) are linear with coefficients that are not negative, so
bounds of what comes later give bounds of what comes before; (7) and (8) are monotone.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64

from empo_bounds.assumptions import (
    ACCRUAL,
    Assumptions,
    FrontierBounds,
    Proved,
    frontier_bounds,
    proved_pairs,
    refuse_early_ends,
)
from empo_bounds.power import accrual_bounds, discounts, lack_bounds
from empo_bounds.round_off import Bounds, down, lower_factor, up, upper_factor
from empo_bounds.unrolled import Unrolled
from empo_bounds.value_kernels import Human, Pairs, attain, discount, expect

MOST_THREADS, PAIRS_PER_THREAD = 8, 2048
"""Threads at most, and pairs of a time below which one does it alone."""


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
        times: Bounds at every time, where they were asked for; those of V_h^e are left out.
    """

    start: PairBounds
    proved: Proved | None
    times: list[PairBounds]


def induce(unrolled: Unrolled, assumed: Assumptions, *, keep: bool = False) -> Induced:
    """Bounds that follow from what was expanded.

    Args:
        unrolled: Pairs, transitions and policies.
        assumed: Claims about the frontier, which are tested here wherever that can be done.
        keep: Whether the bounds of all times are wanted, those of V_h^e apart.

    Raises:
        SolveError: if a claim is wrong.
    """
    if assumed.never_ends_early:
        refuse_early_ends(unrolled)
    frontier = frontier_bounds(
        unrolled.question, assumed, len(unrolled.layers), is_timed=unrolled.is_timed
    )
    later: PairBounds | None = None
    proved, times = Proved(0, 0), []
    for time in range(len(unrolled.layers) - 1, -1, -1):
        bounds = _unexpanded(unrolled, time, frontier)
        expanded = unrolled.layers[time].expanded
        if later is not None and expanded.any():
            _value(unrolled, time, later, assumed, bounds)
            if assumed.min_power is not None:
                tested = Bounds(*(side[expanded] for side in bounds.x_h))
                state = unrolled.state(time)[expanded]
                more = proved_pairs(unrolled, assumed.min_power, state, time, tested)
                proved = Proved(proved.exactly + more.exactly, proved.nearly + more.nearly)
        later = bounds
        if keep:
            nothing = np.zeros((len(bounds.loss.low), 0))
            times.append(replace(bounds, v_e=Bounds(nothing, nothing)))
    assert later is not None
    return Induced(later, None if assumed.min_power is None else proved, times[::-1])


def _unexpanded(unrolled: Unrolled, time: int, frontier: FrontierBounds) -> PairBounds:
    """Bounds of all pairs of a time, as if none had been expanded."""
    question = unrolled.question
    alive, end = unrolled.alive(time), -question.theory.terminal_value
    count, humans = len(alive), len(question.spec.humans)
    v_e, x_h = np.zeros((count, len(question.order), 2)), np.zeros((count, humans, 2))
    v_e[alive] = [side[time] for side in frontier.v_e]
    x_h[:, :, 1] = np.inf
    return PairBounds(
        Bounds(v_e[:, :, 0], v_e[:, :, 1]),
        Bounds(x_h[:, :, 0], x_h[:, :, 1]),
        Bounds(np.zeros(count), np.full(count, np.inf)),
        Bounds(*(np.where(alive, side[time], end) for side in frontier.loss)),
    )


def _value(
    unrolled: Unrolled, time: int, later: PairBounds, assumed: Assumptions, bounds: PairBounds
) -> None:
    """Replace the bounds of pairs that were expanded by those that follow from what comes later.

    What comes later is overwritten.
    """
    question, tables, moments = unrolled.question, unrolled.policies, unrolled.moments
    theory = question.theory
    goal_value, payoff = _arrivals(unrolled, time + 1, later)
    moment, position = unrolled.layers[time].moment, unrolled.position(time + 1)
    operations = operations_of(unrolled)
    expected = np.zeros((len(moment), payoff.shape[1]))
    humans = [
        Human(
            np.ascontiguousarray(tables.human(index).transpose(0, 2, 1)),
            weights if theory.x_agg == "weighted" else np.ones(len(weights)),
            question.first_goal[index],
            index,
            theory.zeta,
        )
        for index, weights in enumerate(question.weights)
    ]
    steps = [moments.steps(index) for index in range(len(humans))]
    v_e, x_h, marginal = _base(bounds.v_e), _base(bounds.x_h), tables.marginal(0)

    def value(begin: int, end: int) -> None:
        pairs = Pairs(moment, begin, end, position, operations)
        for human_steps, human in zip(steps, humans, strict=True):
            attain(human_steps, human, pairs, goal_value, v_e, x_h)
        expect(steps[0], marginal, pairs, payoff, expected)

    in_threads(value, len(moment))
    chosen = np.flatnonzero(moment >= 0)
    expected, terms, columns = expected[chosen], operations[moment[chosen]], payoff.shape[1] // 2
    power = 0.0 if assumed.min_power is None else assumed.min_power
    low, high = (side[chosen] for side in bounds.x_h)
    lack = lack_bounds(question, Bounds(np.maximum(low, power), high))
    losses, counts = expected[:, ::columns], np.ones((len(chosen), 2))
    if question.accrual == "continuous":
        counts = np.stack([lower_factor(expected[:, 1]), upper_factor(expected[:, 3])], 1)
    loss = Bounds(
        down(counts[:, 0] * lack.low + losses[:, 0], terms),
        up(counts[:, 1] * lack.high + losses[:, 1], terms),
    )
    for old, new in ((bounds.lack, lack), (bounds.loss, loss)):
        old.low[chosen], old.high[chosen] = new.low, new.high


def _base(bounds: Bounds) -> Float64[np.ndarray, "pair column 2"]:
    """The array of which bounds from below and from above are the two sides."""
    base = bounds.low.base
    assert base is not None
    return base


def _arrivals(
    unrolled: Unrolled, time: int, bounds: PairBounds
) -> tuple[Float64[np.ndarray, "pair goal 2"], Float64[np.ndarray, "pair column"]]:
    """Bounds of what it is worth to reach each pair of a time; V_h^e in ``bounds`` is overwritten.

    Returns:
        1 where it attains a goal, else discounted V_h^e; and from below, then from above,
        discounted -V_r and, if it accrues, how much U_r counts on the way.
    """
    theory = unrolled.question.theory
    duration = unrolled.landings.duration(unrolled.layers[time].landing)
    goal_value = _base(bounds.v_e)
    achieved = unrolled.states.achieved[unrolled.state(time)]
    discount(goal_value, achieved, discounts(theory.gamma_h, duration))
    of_robot = discounts(theory.gamma_r, duration)
    payoff = [
        [lower_factor(of_robot) * bounds.loss.low],
        [upper_factor(of_robot) * bounds.loss.high],
    ]
    if unrolled.question.accrual == "continuous":
        for side in payoff:
            side.append(accrual_bounds(unrolled.question, duration))
    return goal_value, np.stack([*payoff[0], *payoff[1]], 1)


def operations_of(unrolled: Unrolled) -> Int64[np.ndarray, " moment"]:
    """Operations behind each computed sum of a moment, generously."""
    question, moments = unrolled.question, unrolled.moments
    fixed = question.sum_operations + question.num_actions + ACCRUAL + len(question.order)
    operations: Int64[np.ndarray, " moment"] = moments.items + moments.entries + fixed
    return operations


def in_threads(work: Callable[[int, int], None], count: int) -> None:
    """Do something with all of so many things, in as many threads as there are cores.

    Args:
        work: Does it from one to before another; what it does must not depend on where those are.
        count: How many there are.
    """
    workers = min(
        MOST_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    )
    if count < PAIRS_PER_THREAD * 2 or workers == 1:
        work(0, count)
        return
    edges = np.linspace(0, count, workers + 1).astype(int).tolist()
    with ThreadPoolExecutor(workers) as threads:
        for done in [threads.submit(work, *edge) for edge in itertools.pairwise(edges)]:
            done.result()
