"""Occupancy: the chance that an episode is in a pair, as far as pairs were expanded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Shaped

from empo_bounds.kernels import follow_average
from empo_bounds.unrolled import Goes, Unrolled
from empo_core.errors import SolveError
from empo_core.protocols import ClosedLoop
from empo_core.worlds.row_table import RowTable

MOST_STEPS = 1000
"""Steps after which a world without a horizon is given up."""


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


def deepen(
    unrolled: Unrolled,
    epsilon: float,
    goes_on: Goes,
    told: Callable[[int], object],
    known: KnownOccupancy | None = None,
) -> Float64[np.ndarray, " time"]:
    """Expand all pairs with an occupancy of at least ``epsilon``, from the start on.

    Args:
        unrolled: What was expanded so far.
        epsilon: The least occupancy; at 0 everything is expanded that can be reached.
        goes_on: False ends the expansion; occupancies are still followed to the end.
        told: Is told of every time before its pairs are expanded.
        known: Occupancy by which pairs are expanded, too.

    Returns:
        Occupancy of the frontier at each time.

    Raises:
        SolveError: As for ``Unrolled.expand``; or episodes go on and on without a horizon.
    """
    here, outside, time = np.ones(1), [], 0
    while time < len(unrolled.layers):
        told(time)
        layer, alive = unrolled.layers[time], unrolled.alive(time)
        if goes_on():
            largest = here
            if known is not None:
                rows = np.ascontiguousarray(unrolled.states.rows[unrolled.state(time)])
                largest = np.maximum(largest, known.at(time, rows))
            wanted = np.flatnonzero(alive & ~layer.expanded & (largest >= epsilon))
            if len(wanted) and unrolled.question.spec.horizon is None and time >= MOST_STEPS:
                raise SolveError(
                    f"episodes of {unrolled.question.spec.name!r} may go on for more than "
                    f"{MOST_STEPS} steps, and it has no horizon, so there is no end of pairs to "
                    "expand. Give it a horizon (max_steps), or ask for less (--eps)."
                )
            if len(wanted):
                order = np.argsort(-largest[wanted], kind="stable")
                unrolled.expand(time, wanted[order], goes_on)
        outside.append(float(here[alive & ~layer.expanded].sum()))
        time += 1
        if time < len(unrolled.layers):
            here = followed(unrolled, time, here)
    return np.array(outside)


def followed(
    unrolled: Unrolled, time: int, here: Float64[np.ndarray, " pair"]
) -> Float64[np.ndarray, " later_pair"]:
    """Occupancy of the pairs of a time, from that of the time before."""
    moment, position = unrolled.layers[time - 1].moment, unrolled.position(time)
    there = np.zeros(len(unrolled.layers[time].moment))
    steps, marginal = unrolled.moments.steps(0), unrolled.policies.marginal(0)
    follow_average(steps, marginal, moment, here, position, there)
    return there
