"""Backward induction: the one loop over sweeps, and the sweeps over a graph in one piece."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Int32, Int64

from empo_core.errors import SolveError
from empo_core.protocols import Tracker
from empo_exact.acyclic import levels_of
from empo_exact.answers import answers
from empo_exact.checks import refuse_non_finite, refuse_powerless, refuse_unknown
from empo_exact.game import Values
from empo_exact.graph import StateGraph
from empo_exact.payoffs import Payoffs
from empo_exact.problem import Problem
from empo_exact.reach import Mask, reachable_masks
from empo_exact.sweep import (
    REMEMBERED,
    MeanPolicies,
    Seconds,
    Solver,
    room,
    terminal_values,
)
from empo_exact.values import ValueStore

log = logging.getLogger("empo_exact")


class Sweeps(ABC):
    """The states to be valued: those of a whole graph, or of parts that several processes may have.

    Attributes:
        horizon: Steps per episode; None where the world ends by itself.
        num_states: Number of states of all processes.
    """

    horizon: int | None
    num_states: int

    @abstractmethod
    def sweep(self, done: int, threads: ThreadPoolExecutor) -> tuple[int, float | None]:
        """Value the states whose successors have values after so many sweeps.

        Returns:
            How many states all processes have valued, and V_r of the first start, or None where
            that is not there to be logged.

        Raises:
            SolveError: if a human is without power, or a world without a horizon is cyclic.
            NonFiniteError: if there are numbers that no world makes.
        """

    @abstractmethod
    def keep(self, done: int, *, is_last: bool) -> None:
        """Keep the values after so many sweeps, for as long as they are needed."""

    @abstractmethod
    def begin(self, done: int) -> tuple[int, float | None]:
        """Begin after so many sweeps.

        Returns:
            How many states these have valued, and V_r, as in ``sweep``.
        """


def induce(
    sweeps: Sweeps, done: int, threads: ThreadPoolExecutor, tracker: Tracker, *, resume: bool
) -> int:
    """Backward induction: sweep until all states have values.

    In a world with a horizon every sweep is a step back in time, over the states that can be
    reached by then. In one that ends by itself, it values those whose successors have values.

    Args:
        sweeps: The states.
        done: Sweeps whose values are there already.
        threads: Threads of the sweeps.
        tracker: Told about progress and values.
        resume: Whether an earlier run may have logged values.

    Returns:
        How many sweeps it took in all.

    Raises:
        SolveError: if a human is without power, or a world without a horizon is cyclic.
        NonFiniteError: if there are numbers that no world makes.
    """
    horizon, task = sweeps.horizon, "backward induction"
    valued, start = sweeps.begin(done)

    def share() -> tuple[int, int]:
        return (valued, sweeps.num_states) if horizon is None else (done, horizon)

    def tell() -> None:
        if start is not None:
            tracker.log(done, {"exact/v_r": start})
        tracker.progress(task, *share())

    if resume:  # Values are logged once they are kept; an earlier run may have ended in between.
        tracker.truncate(max(done - 1, 0))
        tell()
    while share()[0] < share()[1]:
        newly_valued, start = sweeps.sweep(done, threads)
        done += 1
        valued += newly_valued
        sweeps.keep(done, is_last=share()[0] == share()[1])
        tell()
    return done


class GraphSweeps(Sweeps):
    """All states of a graph in one piece.

    Attributes:
        problem: The problem.
        store: Keeps the values of all times; those of a world without a horizon are of time 0.
        failed: The same where robots have failed; None where they do not fail.
        means: By time, numbers of states and the mean policies there; none of times that it was
            not asked for.
    """

    def __init__(
        self,
        problem: Problem,
        store: ValueStore,
        seconds: Seconds,
        failed: FailedSweeps | None = None,
        *,
        remembers: bool = False,
    ) -> None:
        """Nothing is valued yet.

        Args:
            problem: The problem.
            store: Keeps the values.
            seconds: Receives the time of both phases.
            failed: The same where robots have failed.
            remembers: Keep mean policies, too, where they are at most ``REMEMBERED`` numbers.

        Raises:
            SolveError: if the world has no horizon and can return to a state.
        """
        self.horizon = problem.horizon
        self.num_states = problem.graph.num_states
        self.problem = problem
        self.store = store
        self.failed = failed
        self._solver = Solver(problem, seconds)
        self._levels = self._all_levels()
        last = self.num_states if self.horizon is None else problem.graph.within(self.horizon)
        self._values = terminal_values(problem, last)
        if self.horizon is None:  # Any finite number will do until a state is valued.
            unknown = np.isnan(self._values.v_r)
            self._values.v_r[unknown], self._values.norms[unknown] = -1.0, 1.0
        self._after: Payoffs | None = None
        self._before: Payoffs | None = None
        self._has_gaps = False
        self.means: dict[int, tuple[Int64[np.ndarray, " state"], MeanPolicies]] = {}
        self._remembers = remembers and self._num_means() <= REMEMBERED

    def _num_means(self) -> float:
        """Numbers of the mean policies of all times; infinite where there is no horizon."""
        if self.horizon is None:
            return math.inf
        of_state = sum(part.size for part in MeanPolicies.empty(self.problem.game, 1))
        return of_state * sum(map(self.problem.graph.expanded_within, range(self.horizon)))

    @property
    def values(self) -> Values:
        """The values of the last sweep; of all levels so far, where there is no horizon."""
        return self._values

    def recover(self) -> int:
        """Take up the values that an interrupted run left on disk; the sweeps that made them."""
        if self.store.keep != "disk":
            done = 0
        elif self.horizon is None:
            is_there = self.store.recover(0, self._check) is not None
            done = len(self._levels) if is_there else 0
        else:
            earliest = self.store.recover(self.horizon - 1, self._check, self._answers)
            done = 0 if earliest is None else self.horizon - earliest
        if self.failed is not None:
            done = min(done, self.failed.recover())
            self.failed.take_up(done)
        self.take_up(done)
        if not done and self.horizon is None:
            log.info("all levels are solved anew: only with compute.parts are some of them kept")
        return done

    def take_up(self, done: int) -> None:
        """Go on after so many sweeps, whose values are in the store."""
        if done and self.horizon is not None:
            self._values = self.store.at(self.horizon - done)

    def sweep(self, done: int, threads: ThreadPoolExecutor) -> tuple[int, float | None]:
        """See ``Sweeps``."""
        problem, states = self.problem, self._states(done)
        if not done:
            self._refuse_ends()
        after = self._after or Payoffs.of(problem, self._values, self._failed_values)
        if self.failed is not None:  # Its values are read where this sweep has valued a block.
            self.failed.sweep(done, threads)
        if self.horizon is None:
            left, when = 1, f"{done + 1} levels from the last states"
            values, before = self._values, after
        else:
            left, when = done + 1, f"{done + 1} steps before the end"
            values = room(problem, len(states))
            # The payoffs of this sweep are read, those of the next one are written.
            before = self._before or Payoffs(problem, len(states))
            before.failed = self._failed_values
            before.forget_range()
        means = MeanPolicies.empty(problem.game, len(states)) if self._remembers else None
        bad = self._solver.sweep(states, after, values, left, threads, before, means)
        self._values, self._after, self._before = values, before, after
        refuse_non_finite(problem, values, when)
        time = None if self.horizon is None else self.horizon - done - 1
        if means is not None and time is not None:
            self.means[time] = states.astype(np.int64), means
        if bad:
            self._refuse_powerless(values, time)
            # Out of reach a human may be without power, and whatever leads there without values.
            self._has_gaps = True
        refuse_unknown(values, time, self._has_gaps, problem.graph.within(0))
        return len(states), self._start()

    def keep(self, done: int, *, is_last: bool) -> None:
        """See ``Sweeps``."""
        if self.failed is not None:
            self.failed.keep(done, is_last=is_last)
        if self.horizon is not None:
            self.store.put(self.horizon - done, self._values, self._solver.answers)
        elif is_last:
            self.store.put(0, self._values)

    def begin(self, done: int) -> tuple[int, float | None]:
        """See ``Sweeps``."""
        is_finite = math.isfinite(float(self._values.v_r.sum()))
        self._has_gaps = self.horizon is not None and not is_finite
        valued = sum(len(level) for level in self._levels[:done])
        return valued, self._start() if done else None

    @property
    def _failed_values(self) -> Values | None:
        return None if self.failed is None else self.failed.values

    def _all_levels(self) -> list[Int32[np.ndarray, " state"]]:
        """The states by level, last first; empty where there is a horizon."""
        problem = self.problem
        return levels_of(problem.graph, problem.world) if self.horizon is None else []

    def _refuse_ends(self) -> None:
        """Refuse states at the horizon in which a human is without power, if presence counts."""
        if self.horizon is None or math.isfinite(float(self._values.v_r.sum())):
            return
        self._refuse_powerless(self._values, self.horizon)
        self._has_gaps = True

    def _refuse_powerless(self, values: Values, time: int | None) -> None:
        """Refuse states within reach in which a human is without power."""
        reached = None if time is None else self._reached(time)
        refuse_powerless(self.problem, values, time, reached)

    def _reached(self, time: int) -> Mask:
        """The states that can be reached after so many steps."""
        return reachable_masks(self.problem.graph, time)[time]

    def _states(self, done: int) -> Int32[np.ndarray, " state"]:
        """The states of a sweep after so many others."""
        graph = self.problem.graph
        if self.horizon is None:
            return self._levels[done]
        return np.arange(graph.expanded_within(self.horizon - done - 1), dtype=np.int32)

    def _start(self) -> float | None:
        """Expected V_r of the starts, which are reachable at any time, if only in thought."""
        if self.horizon is None or not self.problem.has_phase2:
            return None
        return float(self.problem.start @ self._values.v_r[: len(self.problem.start)])

    def _check(self, values: Values) -> None:
        refuse_non_finite(self.problem, values, "on disk")

    def _answers(self, time: int) -> int:
        """The fingerprint of what priors answer at a time."""
        left = (self.horizon or 1) - time
        return answers(self.problem, self._states(left - 1), left)


class FailedSweeps(GraphSweeps):
    """The states of a graph in which robots have failed; see ``defunct``.

    Args:
        problem: The problem where they have.
        store: Keeps its values.
        seconds: Wall-clock time of both phases.
        graph: The graph of working robots.
        is_likely: Robots may fail, so that their failure is within reach from time 1 on.
    """

    def __init__(
        self,
        problem: Problem,
        store: ValueStore,
        seconds: Seconds,
        graph: StateGraph,
        *,
        is_likely: bool,
    ) -> None:
        self._graph = graph
        self._is_likely = is_likely
        super().__init__(problem, store, seconds)

    def _all_levels(self) -> list[Int32[np.ndarray, " state"]]:
        return levels_of(self._graph, self.problem.world) if self.horizon is None else []

    def _refuse_powerless(self, values: Values, time: int | None) -> None:
        if not self._is_likely or time == 0:
            return
        try:
            super()._refuse_powerless(values, time)
        except SolveError as error:
            raise SolveError(f"where robots have failed (defunct), {error}") from None

    def _reached(self, time: int) -> Mask:
        return reachable_masks(self._graph, time)[time]
