"""What reaching each state pays, by the values there: the tables that equations (1) and (6) read.

Where all transitions take one unit of time, the bracket of these equations (``rows.payoff``)
depends on the next state alone, and is worked out once for each. Where durations d differ,
gamma_h^d belongs to the transition: rows then have V_h, and ``rows.expect`` forms the bracket.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from jaxtyping import Float64, Int, Int64, UInt8

from empo_exact.game import Floats, GoalPayoffs, Values, aligned
from empo_exact.problem import Problem
from empo_exact.rows import payoff
from empo_exact.simd import FOUR, four, kernel, load, store


@kernel
def write_payoffs(
    values: Float64[np.ndarray, "place padded_goal"],
    achieved: UInt8[np.ndarray, "row padded_goal"],
    arrived: float,
    gamma_h: float,
    is_timed: bool,
    places: Int64[np.ndarray, " chosen"],
    states: Int64[np.ndarray, " chosen"],
    table: Float64[np.ndarray, "row padded_goal"],
) -> None:
    """Write the rows of some states, whose values are at ``places`` of ``values``.

    ``arrived`` is what entering a goal counts.
    """
    for chosen in range(len(states)):
        place, state = places[chosen], states[chosen]
        for goal in range(0, values.shape[1], FOUR):
            value = load(values, (place, goal), four(0.0))
            if not is_timed:
                value = payoff(load(achieved, (state, goal), value), value, arrived, gamma_h)
            store(table, (state, goal), value)


class Payoffs:
    """What reaching each state pays one step later, in the rows that the kernels read.

    Rows are those of states, then those of images where a graph is reduced. Tables of goals go on
    with scratch rows: as many for each thread as there are joint actions.

    Attributes:
        problem: The problem.
        by_v_m: For equation (1), by V_h^m [row goal].
        by_v_e: For equation (6), by V_h^e; without rows where Phase 1 is all [row goal].
        v_r: For equation (4), V_r; NaN until it is written [row].
        norms: Norms of the robot's cost of all orders, where more than its mean counts; NaN until
            they are written [row order].
        failed: Values of the states where robots have failed, where they may; see ``defunct``.
    """

    def __init__(self, problem: Problem, size: int, failed: Values | None = None) -> None:
        """Rows for so many states, not written yet."""
        goals = len(problem.game.weight)
        rows, table_rows = _rows(problem, size)
        self.problem = problem
        self.failed = failed
        self.by_v_m = aligned((table_rows, goals))
        self.by_v_e = aligned((table_rows if problem.has_phase2 else 0, goals))
        self.v_r = np.full(rows if problem.has_phase2 else 0, np.nan)
        self.norms = np.full((len(self.v_r), problem.rho if problem.rho > 1 else 0), np.nan)

    @classmethod
    def of(cls, problem: Problem, values: Values, failed: Values | None = None) -> Payoffs:
        """The payoffs by the values of the first states."""
        payoffs = cls(problem, len(values.v_m), failed)
        payoffs.renew(values, np.arange(len(values.v_m)))
        return payoffs

    def reused(self, problem: Problem, size: int) -> Payoffs:
        """Rows for at most as many states of another problem, in the same memory."""
        rows, table_rows = _rows(problem, size)
        other = copy(self)
        other.problem = problem
        other.by_v_m, other.by_v_e = self.by_v_m[:table_rows], self.by_v_e[:table_rows]
        other.v_r = self.v_r[:rows]
        other.v_r[:] = np.nan
        other.norms = self.norms[:rows]
        other.norms[:] = np.nan
        return other

    def renew(
        self,
        values: Values,
        states: Int[np.ndarray, " chosen"],
        places: Int64[np.ndarray, " chosen"] | None = None,
    ) -> None:
        """Write the rows of some states and of their images.

        Args:
            values: Values.
            states: Numbers of the states.
            places: Where ``values`` has each of them; None: by their numbers.
        """
        states = states.astype(np.int64)
        places = states if places is None else places
        if self.failed is None:
            self._write(values, states, places)
            return
        for block, chance in enumerate(self.problem.failing):
            rows = states + block * self.problem.graph.num_states
            mixed = mixture(float(chance), values, places, self.failed, states)
            self._write(mixed, rows, np.arange(len(rows)))

    def _write(
        self,
        values: Values,
        rows: Int64[np.ndarray, " chosen"],
        places: Int64[np.ndarray, " chosen"],
    ) -> None:
        """Write some rows, and those of the images, by the values at some places."""
        problem, images = self.problem, self.problem.images
        achieved = problem.game.achieved
        arrived = problem.gamma_h if problem.counts_presence else 1.0
        tables: list[tuple[Floats, Floats]] = [(self.by_v_m, values.v_m)]
        if problem.has_phase2:
            tables.append((self.by_v_e, values.v_e))
            self.v_r[rows] = values.v_r[places]
        for table, goal_values in tables:
            write_payoffs(
                goal_values,
                achieved,
                arrived,
                problem.gamma_h,
                problem.is_timed,
                places,
                rows,
                table,
            )
            if images is not None:
                images.copy_goals(table, rows)
        if self.norms.size:
            self.norms[rows, 0] = -values.v_r[places]
            self.norms[rows, 1:] = values.norms[places]
        if images is not None and problem.has_phase2:
            images.copy_values(self.v_r, rows)
            for order in range(self.norms.shape[1]):
                copied = self.norms[:, order].copy()
                images.copy_values(copied, rows)
                self.norms[:, order] = copied

    def read_by(self, worker: int) -> tuple[GoalPayoffs, GoalPayoffs]:
        """The tables of equations (1) and (6), with the scratch rows of one thread."""
        problem = self.problem
        spare = len(self.by_v_m) - (problem.workers - worker) * problem.game.num_joint
        return (
            GoalPayoffs(self.by_v_m, spare, problem.is_timed),
            GoalPayoffs(self.by_v_e, spare, problem.is_timed),
        )


def mixture(
    chance: float,
    working: Values,
    places: Int64[np.ndarray, " chosen"],
    failed: Values,
    states: Int64[np.ndarray, " chosen"],
) -> Values:
    """The values of some states for one who knows the chance that robots will have failed there."""
    (v_m, v_e, v_r, norms), others = (array[places] for array in working), failed
    kept = 1.0 - chance
    return Values(
        kept * v_m + chance * others.v_m[states],
        kept * v_e + chance * others.v_e[states],
        kept * v_r + chance * others.v_r[states],
        mixed_norms(chance, norms, others.norms[states]),
    )


def mixed_norms(
    chance: float, working: Float64[np.ndarray, "state order"], failed: Floats
) -> Float64[np.ndarray, "state order"]:
    """The norms of orders 2 and more of a mixture; its moments are the mixed moments."""
    orders = 2.0 + np.arange(working.shape[1])
    scale = np.maximum(working, failed)
    kept = (1.0 - chance) * (working / scale) ** orders
    mixed: Floats = scale * (kept + chance * (failed / scale) ** orders) ** (1.0 / orders)
    return mixed


def _rows(problem: Problem, size: int) -> tuple[int, int]:
    """Rows of so many states and of the images, and the same with scratch rows."""
    rows = size if problem.images is None else problem.images.rows
    rows += max(0, len(problem.failing) - 1) * problem.graph.num_states
    return rows, rows + problem.workers * problem.game.num_joint
