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
    gamma_h: float,
    is_timed: bool,
    places: Int64[np.ndarray, " chosen"],
    states: Int64[np.ndarray, " chosen"],
    table: Float64[np.ndarray, "row padded_goal"],
) -> None:
    """Write the rows of some states, whose values are at ``places`` of ``values``."""
    for chosen in range(len(states)):
        place, state = places[chosen], states[chosen]
        for goal in range(0, values.shape[1], FOUR):
            value = load(values, (place, goal), four(0.0))
            if not is_timed:
                value = payoff(load(achieved, (state, goal), value), value, 1.0, gamma_h)
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
    """

    def __init__(self, problem: Problem, size: int) -> None:
        """Rows for so many states, not written yet."""
        goals = len(problem.game.weight)
        rows, table_rows = _rows(problem, size)
        self.problem = problem
        self.by_v_m = aligned((table_rows, goals))
        self.by_v_e = aligned((table_rows if problem.has_phase2 else 0, goals))
        self.v_r = np.full(rows if problem.has_phase2 else 0, np.nan)

    @classmethod
    def of(cls, problem: Problem, values: Values) -> Payoffs:
        """The payoffs by the values of the first states."""
        payoffs = cls(problem, len(values.v_m))
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
        problem, images = self.problem, self.problem.images
        states = states.astype(np.int64)
        places = states if places is None else places
        achieved = problem.game.achieved
        tables: list[tuple[Floats, Floats]] = [(self.by_v_m, values.v_m)]
        if problem.has_phase2:
            tables.append((self.by_v_e, values.v_e))
            self.v_r[states] = values.v_r[places]
        for table, goal_values in tables:
            write_payoffs(
                goal_values, achieved, problem.gamma_h, problem.is_timed, places, states, table
            )
            if images is not None:
                images.copy_goals(table, states)
        if images is not None and problem.has_phase2:
            images.copy_values(self.v_r, states)

    def read_by(self, worker: int) -> tuple[GoalPayoffs, GoalPayoffs]:
        """The tables of equations (1) and (6), with the scratch rows of one thread."""
        problem = self.problem
        spare = len(self.by_v_m) - (problem.workers - worker) * problem.game.num_joint
        return (
            GoalPayoffs(self.by_v_m, spare, problem.is_timed),
            GoalPayoffs(self.by_v_e, spare, problem.is_timed),
        )


def _rows(problem: Problem, size: int) -> tuple[int, int]:
    """Rows of so many states and of the images, and the same with scratch rows."""
    rows = size if problem.images is None else problem.images.rows
    return rows, rows + problem.workers * problem.game.num_joint
