"""What reaching each state pays, by the values there: the tables that equations (1) and (6) read.

Where all transitions take one unit of time, the bracket of these equations (``rows.payoff``)
depends on the next state alone, and is worked out once for each. Where durations d differ,
gamma_h^d belongs to the transition: rows then have V_h, and ``rows.expect`` forms the bracket.
"""

from __future__ import annotations

from copy import copy
from threading import Lock

import numpy as np
from jaxtyping import Float64, Int, Int64, UInt8

from empo_exact.game import Floats, GoalPayoffs, Values, aligned, padded_orders
from empo_exact.problem import Problem
from empo_exact.risk import LARGE
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


@kernel
def write_mixed_payoffs(
    chance: float,
    working: Float64[np.ndarray, "place padded_goal"],
    failed: Float64[np.ndarray, "state padded_goal"],
    achieved: UInt8[np.ndarray, "row padded_goal"],
    arrived: float,
    gamma_h: float,
    is_timed: bool,
    places: Int64[np.ndarray, " chosen"],
    states: Int64[np.ndarray, " chosen"],
    before: int,
    table: Float64[np.ndarray, "row padded_goal"],
) -> None:
    """The same where robots have failed with a chance; rows are ``before`` states further on."""
    for chosen in range(len(states)):
        place, state = places[chosen], states[chosen]
        for goal in range(0, working.shape[1], FOUR):
            value = (1.0 - chance) * load(working, (place, goal), four(0.0))
            value += chance * load(failed, (state, goal), value)
            if not is_timed:
                entered = load(achieved, (state, goal), value)
                value = payoff(entered, value, arrived, gamma_h)
            store(table, (before + state, goal), value)


@kernel
def write_norms(
    chance: float,
    working: Values,
    failed: Values,
    places: Int64[np.ndarray, " chosen"],
    states: Int64[np.ndarray, " chosen"],
    before: int,
    norms: Float64[np.ndarray, "row order"],
) -> None:
    """Write the norms of some states, of all orders, where robots have failed with a chance."""
    for chosen in range(len(states)):
        place, state = places[chosen], states[chosen]
        row = before + state
        norms[row, 0] = -working.v_r[place]
        if chance > 0:
            norms[row, 0] = (chance - 1.0) * working.v_r[place] - chance * failed.v_r[state]
        for order in range(1, norms.shape[1]):
            norm = working.norms[place, order - 1]
            if chance > 0:
                other, power = failed.norms[state, order - 1], order + 1.0
                scale = max(norm, other)
                mixed = (1.0 - chance) * (norm / scale) ** power
                mixed += chance * (other / scale) ** power
                norm = scale * mixed ** (1.0 / power)
            norms[row, order] = norm


@kernel
def write_powers(
    norms: Float64[np.ndarray, "row order"],
    scale: float,
    rows: Int64[np.ndarray, " chosen"],
    powers: Float64[np.ndarray, "row padded_order"],
) -> None:
    """Write the norms of some rows, divided by a scale, to the power of their orders."""
    for row in rows:
        for order in range(norms.shape[1]):
            norm = norms[row, order] / scale
            power = norm
            for _ in range(order):
                power *= norm
            powers[row, order] = power


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
        powers: The same divided by a common scale, to the power of their orders; 0 in columns that
            fill up the row [row padded_order].
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
        self.powers = aligned((len(self.v_r), padded_orders(problem.rho)))
        self.powers[:] = 0.0
        self._lock = Lock()
        self.forget_range()

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
        other.norms, other.powers = self.norms[:rows], self.powers[:rows]
        other.norms[:] = np.nan
        other.forget_range()
        return other

    def forget_range(self) -> None:
        """Norms of another size will be written to all rows."""
        self._scale, self._least, self._most = 0.0, np.inf, 0.0

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
        else:
            self._write_mixed(values, self.failed, states, places)

    def _write(
        self,
        values: Values,
        states: Int64[np.ndarray, " chosen"],
        places: Int64[np.ndarray, " chosen"],
    ) -> None:
        """Write the rows of some states, and of their images."""
        problem, images = self.problem, self.problem.images
        tables: list[tuple[Floats, Floats]] = [(self.by_v_m, values.v_m)]
        if problem.has_phase2:
            tables.append((self.by_v_e, values.v_e))
            self.v_r[states] = values.v_r[places]
        for table, goal_values in tables:
            write_payoffs(
                goal_values,
                problem.game.achieved,
                problem.arrived,
                problem.gamma_h,
                problem.is_timed,
                places,
                states,
                table,
            )
            if images is not None:
                images.copy_goals(table, states)
        if images is not None and problem.has_phase2:
            images.copy_values(self.v_r, states)
        if self.norms.size:
            write_norms(0.0, values, values, places, states, 0, self.norms)
            self._write_powers(states)
            if images is not None:
                images.copy_orders(self.norms, states)
                images.copy_orders(self.powers, states)

    def _write_mixed(
        self,
        values: Values,
        failed: Values,
        states: Int64[np.ndarray, " chosen"],
        places: Int64[np.ndarray, " chosen"],
    ) -> None:
        """Write the rows of some states by each chance that robots have failed on the way there."""
        problem = self.problem
        for number, chance in enumerate(problem.failing):
            before = number * problem.graph.num_states
            for table, working, other in (
                (self.by_v_m, values.v_m, failed.v_m),
                (self.by_v_e, values.v_e, failed.v_e),
            ):
                write_mixed_payoffs(
                    chance,
                    working,
                    other,
                    problem.game.achieved,
                    problem.arrived,
                    problem.gamma_h,
                    problem.is_timed,
                    places,
                    states,
                    before,
                    table,
                )
            mixed = (1.0 - chance) * values.v_r[places] + chance * failed.v_r[states]
            self.v_r[before + states] = mixed
            if self.norms.size:
                write_norms(chance, values, failed, places, states, before, self.norms)
                self._write_powers(before + states)

    def _write_powers(self, rows: Int64[np.ndarray, " chosen"]) -> None:
        """Write the powers of the norms of some rows, and note how large these are."""
        norms = self.norms[rows].ravel()
        # NaN, of states whose values are not known, is left out; nothing reads it.
        least = float(np.fmin.reduce(norms, initial=np.inf))
        most = float(np.fmax.reduce(norms, initial=0.0))
        with self._lock:
            if not self._scale and 0 < most < np.inf:
                # A power of 2, so that numbers are the same whatever it is.
                self._scale = 2.0 ** round(np.log2(most))
            self._least, self._most = min(least, self._least), max(most, self._most)
        write_powers(self.norms, self._scale or 1.0, rows, self.powers)

    @property
    def common_scale(self) -> float:
        """What ``powers`` are divided by; 0 where they leave the range of floats."""
        if not self._scale or not self._least > 0:
            return 0.0
        orders = self.problem.rho * np.log([self._scale / self._least, self._most / self._scale])
        return self._scale if max(orders) < np.log(LARGE) else 0.0

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
    rows += max(0, len(problem.failing) - 1) * problem.graph.num_states
    return rows, rows + problem.workers * problem.game.num_joint
