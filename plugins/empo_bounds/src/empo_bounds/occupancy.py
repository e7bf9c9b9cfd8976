"""Occupancy: the chance that an episode is in a pair, as far as pairs were expanded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64, Shaped

from empo_bounds.kernels import Pursuit, follow_average, follow_goals
from empo_bounds.unrolled import Goes, Unrolled
from empo_core.protocols import ClosedLoop
from empo_core.worlds.row_table import RowTable

Follow = Literal["average", "goals"]
"""Whom to follow: humans who act by their average over goals; or also each in pursuit of one."""


class KnownOccupancy:
    """Occupancy that a solution knows for every pair, with humans who act by their average.

    Attributes:
        right: V_r at the start by the solution.
    """

    def __init__(self, loop: ClosedLoop, horizon: int) -> None:
        self.right = float(loop.robot_values(loop.reachable_states(horizon), horizon)[0])
        self._times: dict[int, tuple[RowTable, Float64[np.ndarray, " state"]]] = {}
        for left, states, visits in loop.occupancy():
            self._times[horizon - left] = (RowTable.of(states.numpy()), visits.numpy())

    def at(
        self, time: int, rows: Shaped[np.ndarray, "state word"]
    ) -> Float64[np.ndarray, " state"]:
        """The occupancy of some states at a time; 0 where it is not known."""
        if time not in self._times:
            return np.zeros(len(rows))
        table, visits = self._times[time]
        found = table.find(rows)
        occupancy: Float64[np.ndarray, " state"] = np.where(found < 0, 0.0, visits[found])
        return occupancy


@dataclass
class Masses:
    """Occupancy of the pairs of a time.

    Attributes:
        average: With humans who act by their average over goals [pair].
        goals: With one human who pursues a goal until it is attained [pair goal].
    """

    average: Float64[np.ndarray, " pair"]
    goals: Float64[np.ndarray, "pair goal"] | None

    @property
    def largest(self) -> Float64[np.ndarray, " pair"]:
        """The largest of each pair [pair]."""
        if self.goals is None:
            return self.average
        largest: Float64[np.ndarray, " pair"] = np.maximum(self.average, self.goals.max(1))
        return largest


def deepen(
    unrolled: Unrolled,
    epsilon: float,
    follow: Follow,
    goes_on: Goes,
    told: Callable[[int], object],
    known: KnownOccupancy | None = None,
) -> tuple[bool, Float64[np.ndarray, " time"]]:
    """Expand all pairs with an occupancy of at least ``epsilon``, from the start on.

    Args:
        unrolled: What was expanded so far.
        epsilon: The least occupancy; at 0 everything is expanded that can be reached.
        follow: Whose occupancy.
        goes_on: False ends the expansion; occupancies are still followed to the end.
        told: Is told of every time before its pairs are expanded.
        known: Occupancy by which pairs are expanded, too.

    Returns:
        False where it was ended; and the average occupancy of the frontier at each time.
    """
    goals = len(unrolled.question.order)
    here = Masses(np.ones(1), np.ones((1, goals)) if follow == "goals" else None)
    outside, goes, time = [], True, 0
    while time < len(unrolled.layers):
        told(time)
        layer, alive = unrolled.layers[time], unrolled.alive(time)
        if goes:
            largest = here.largest
            if known is not None:
                rows = np.ascontiguousarray(unrolled.states.rows[unrolled.state(time)])
                largest = np.maximum(largest, known.at(time, rows))
            wanted = np.flatnonzero(alive & ~layer.expanded & (largest >= epsilon))
            if len(wanted):
                order = np.argsort(-largest[wanted], kind="stable")
                goes = unrolled.expand(time, wanted[order], goes_on)
        outside.append(float(here.average[alive & ~layer.expanded].sum()))
        time += 1
        if time < len(unrolled.layers):
            here = _followed(unrolled, time, here)
    return goes, np.array(outside)


def _followed(unrolled: Unrolled, time: int, here: Masses) -> Masses:
    """Occupancy of the pairs of a time, from that of the time before."""
    tables, moments, question = unrolled.policies, unrolled.moments, unrolled.question
    moment, position = unrolled.layers[time - 1].moment, unrolled.position(time)
    there = Masses(np.zeros(len(unrolled.layers[time].moment)), None)
    marginal = tables.marginal(0)
    follow_average(moments.steps(0), marginal, moment, here.average, position, there.average)
    if here.goals is None:
        return there
    there.goals = np.zeros((len(there.average), here.goals.shape[1]))
    achieved = unrolled.states.achieved[unrolled.state(time)]
    for human, first in enumerate(question.first_goal[:-1]):
        pursuit = Pursuit(tables.human(human), first, here.goals, there.goals, achieved)
        follow_goals(moments.steps(human), moment, position, pursuit)
    return there
