"""Occupancy: the chance that an episode is in a pair, as far as pairs were expanded.

**Without a horizon** an episode may go on for ever, so chances alone would never get small: there,
occupancy is discounted, by the larger one of ``gamma_h`` and ``gamma_r`` to the power of the time
that has passed. It falls below any limit after ``log(epsilon) / log(gamma)`` unit steps at most.

**Claim.** The discounted occupancy of the frontier bounds how wide an interval is.

**Proof.** Let ``d(s, t)`` be the occupancy of a pair, discounted by ``gamma_r``, and the width of a
pair be that of its bounds of -V_r. Equation (9) is linear in what comes later, with the same
coefficients at both ends, so the width of an expanded pair is that of its -U_r plus the expected
discounted width one step later. Unrolled from the start on, the width there is the sum of ``d``
times the width over all pairs of the frontier, plus the sum of ``d`` times the width of -U_r over
all pairs that were expanded. Likewise, the width of a V_h^e at the start is the sum over the
frontier of the occupancy under that goal, discounted by ``gamma_h``, times widths of at most 1, and
that of -U_r follows from those by equations (7) and (8), which are continuous where X_h is
positive. A pair that can be met at all under a goal of positive weight has a positive occupancy
under the average of goals, so it is expanded once epsilon is small enough; and all pairs after t
steps together count for at most ``gamma ^ t``. Both sums so tend to 0 with epsilon where the
frontier's -V_r is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Shaped

from empo_bounds.kernels import follow_average
from empo_bounds.power import discounts
from empo_bounds.question import Question
from empo_bounds.unrolled import Goes, Unrolled
from empo_theory.solved_world import SolvedWorld
from empo_worlds.row_table import RowTable

FINEST = 1e-9
"""Least occupancy before everything is expanded, where that is asked for."""
FEWEST_STEPS, MOST_STEPS = 1000, 20_000
"""Steps after which a world without a horizon is followed no further: where nothing is discounted,
and at most."""


class KnownOccupancy:
    """Occupancy that a solution knows for every pair, with humans who act by their average.

    Attributes:
        right: V_r at the start by the solution.
    """

    def __init__(self, loop: SolvedWorld, horizon: int) -> None:
        self.right = float(loop.robot_values(loop.reachable_states(horizon), horizon)[0])
        self._times: dict[int, tuple[RowTable, Float64[np.ndarray, " state"]]] = {}
        occupancy = loop.occupancy()
        assert occupancy is not None
        for left, states, visits in occupancy:
            self._times[horizon - left] = (RowTable.of(states.numpy()), visits.numpy())

    def at(
        self, time: int, rows: Shaped[np.ndarray, "state word"]
    ) -> Float64[np.ndarray, " state"]:
        """The occupancy of some states at a time; 0 where it is not known."""
        if time not in self._times:
            return np.zeros(len(rows))
        table, visits = self._times[time]
        row = table.find(rows)
        occupancy: Float64[np.ndarray, " state"] = np.where(row < 0, 0.0, visits[row])
        return occupancy


@dataclass(frozen=True)
class Frontier:
    """What was not expanded.

    Attributes:
        outside: Its occupancy at each time.
        is_cut: Whether pairs were left out only because they are so many steps away.
    """

    outside: Float64[np.ndarray, " time"]
    is_cut: bool


def most_steps(question: Question, epsilon: float) -> float:
    """Steps after which nothing is expanded any more.

    With a discount, unit steps have come to the end of pairs with such an occupancy by then.
    """
    gamma = question.occupancy_discount
    if question.spec.horizon is not None:
        return math.inf
    if gamma == 1.0:
        return FEWEST_STEPS
    ended = math.ceil(math.log(epsilon or FINEST) / math.log(gamma)) + 1
    return min(MOST_STEPS, max(FEWEST_STEPS, ended))


def deepen(
    unrolled: Unrolled,
    epsilon: float,
    goes_on: Goes,
    report: Callable[[int], object],
    known_occupancy: KnownOccupancy | None = None,
) -> Frontier:
    """Expand all pairs with an occupancy of at least ``epsilon``, from the start on.

    Args:
        unrolled: What was expanded so far.
        epsilon: The least occupancy; at 0 everything is expanded that can be reached.
        goes_on: False ends the expansion; occupancies are still followed to the end.
        report: Is told of every time before its pairs are expanded.
        known_occupancy: Occupancy by which pairs are expanded, too.

    Raises:
        SolveError: as for ``Unrolled.expand``.
    """
    here, outside, time, is_cut = np.ones(1), [], 0, False
    max_steps = most_steps(unrolled.question, epsilon)
    while time < len(unrolled.layers):
        report(time)
        layer, alive = unrolled.layers[time], unrolled.alive(time)
        if goes_on():
            largest = here
            if known_occupancy is not None:
                rows = np.ascontiguousarray(unrolled.states.rows[unrolled.state(time)])
                largest = np.maximum(largest, known_occupancy.at(time, rows))
            chosen = np.flatnonzero(alive & ~layer.expanded & (largest >= epsilon))
            if len(chosen) and time >= max_steps:
                is_cut = True
            elif len(chosen):
                order = np.argsort(-largest[chosen], kind="stable")
                unrolled.expand(time, chosen[order], goes_on)
        outside.append(float(here[alive & ~layer.expanded].sum()))
        time += 1
        if time < len(unrolled.layers):
            here = next_occupancy(unrolled, time, here)
    return Frontier(np.array(outside), is_cut)


def next_occupancy(
    unrolled: Unrolled, time: int, here: Float64[np.ndarray, " pair"]
) -> Float64[np.ndarray, " later_pair"]:
    """Occupancy of the pairs of a time, from that of the time before."""
    moment, position = unrolled.layers[time - 1].moment, unrolled.position(time)
    there = np.zeros(len(unrolled.layers[time].moment))
    steps, marginal = unrolled.moments.steps(0), unrolled.policies.marginal(0)
    duration = unrolled.landings.duration(np.arange(unrolled.landings.count, dtype=np.int32))
    discount = discounts(unrolled.question.occupancy_discount, duration)
    follow_average(steps, marginal, moment, here, position, discount, there)
    return there
