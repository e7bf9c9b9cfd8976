"""Backward induction: the one loop over sweeps, and the sweeps over a graph in one piece."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Int32

from empo_core.protocols import Tracker
from empo_exact.acyclic import levels_of
from empo_exact.answers import answers
from empo_exact.checks import refuse_non_finite, refuse_powerless, refuse_unknown
from empo_exact.game import Values
from empo_exact.payoffs import Payoffs
from empo_exact.problem import Problem
from empo_exact.reach import reachable_masks
from empo_exact.sweep import Seconds, Solver, room, terminal_values
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
    """

    def __init__(self, problem: Problem, store: ValueStore, seconds: Seconds) -> None:
        """Nothing is valued yet.

        Raises:
            SolveError: if the world has no horizon and can return to a state.
        """
        self.horizon = problem.horizon
        self.num_states = problem.graph.num_states
        self.problem = problem
        self.store = store
        self._solver = Solver(problem, seconds)
        self._levels = levels_of(problem.graph, problem.world) if self.horizon is None else []
        last = self.num_states if self.horizon is None else problem.graph.within(self.horizon)
        self._values = terminal_values(problem, last)
        self._after: Payoffs | None = None
        self._before: Payoffs | None = None
        self._has_gaps = False

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
        if done and self.horizon is not None:
            self._values = self.store.at(self.horizon - done)
        if not done and self.horizon is None:
            log.info("all levels are solved anew: only with compute.parts are some of them kept")
        return done

    def sweep(self, done: int, threads: ThreadPoolExecutor) -> tuple[int, float | None]:
        """See ``Sweeps``."""
        problem, states = self.problem, self._states(done)
        after = self._after or Payoffs.of(problem, self._values)
        if self.horizon is None:
            left, when = 1, f"{done + 1} levels from the last states"
            values, before = self._values, after
        else:
            left, when = done + 1, f"{done + 1} steps before the end"
            values = room(problem, len(states))
            # The payoffs of this sweep are read, those of the next one are written.
            before = self._before or Payoffs(problem, len(states))
        bad = self._solver.sweep(states, after, values, left, threads, before)
        self._values, self._after, self._before = values, before, after
        refuse_non_finite(problem, values, when)
        time = None if self.horizon is None else self.horizon - done - 1
        if bad:
            reached = None if time is None else reachable_masks(problem.graph, time)[time]
            refuse_powerless(problem, values, time, reached)
            # Out of reach a human may be without power, and whatever leads there without values.
            self._has_gaps = True
        refuse_unknown(values, time, self._has_gaps, problem.graph.within(0))
        return len(states), self._start()

    def keep(self, done: int, *, is_last: bool) -> None:
        """See ``Sweeps``."""
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
