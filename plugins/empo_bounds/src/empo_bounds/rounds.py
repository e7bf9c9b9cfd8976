"""Rounds of expansion and induction, each deeper than the one before, until enough is known."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import psutil

from empo_bounds.assumptions import Assumptions, Proved
from empo_bounds.effort import Effort
from empo_bounds.induction import Induced, PairBounds, induce
from empo_bounds.least_power import Proof, prove
from empo_bounds.occupancy import FINEST, KnownOccupancy, deepen, most_steps
from empo_bounds.question import Question
from empo_bounds.round_off import Bounds
from empo_bounds.unrolled import Unrolled
from empo_core.errors import SolveError
from empo_core.interrupts import Interrupts
from empo_core.protocols import Tracker

GIB = 1 << 30
SHARE_OF_RAM = 0.8
"""Share of the machine's free RAM that may be taken."""
SHARE_OF_TIME = 0.2
"""Share of the time in which a least power is proved."""
TASK = "certificate"


@dataclass(frozen=True)
class Round:
    """State of affairs after a round.

    Attributes:
        epsilon: Least occupancy that was asked for.
        pairs: Pairs expanded so far.
        transitions: Transitions of these.
        outside: Occupancy of the frontier, all times together; discounted without a horizon.
        seconds: Time since the beginning.
        start: Bounds at the start, no wider than those of earlier rounds.
        proved: Pairs in which the assumed least power is proved; None where none is assumed.
    """

    epsilon: float
    pairs: int
    transitions: int
    outside: float
    seconds: float
    start: PairBounds
    proved: Proved | None


@dataclass(frozen=True)
class Certification:
    """Everything that was found.

    Attributes:
        unrolled: What was expanded.
        vacuous: Bounds at the start that hold before anything is expanded.
        rounds: One after the other; the last one counts.
        ended: Why no more was expanded.
        induced: The last induction, with the bounds of all times.
        assumed: Claims about what was not expanded, with the least power that was found.
        proof: Where that is proved, how.
    """

    unrolled: Unrolled
    vacuous: PairBounds
    rounds: list[Round]
    ended: str
    induced: Induced
    assumed: Assumptions
    proof: Proof | None


class Budget:
    """Says when to stop, and why."""

    def __init__(self, effort: Effort, interrupts: Interrupts, unrolled: Unrolled) -> None:
        self._effort, self._interrupts, self._unrolled = effort, interrupts, unrolled
        self._process = psutil.Process()
        self._begun, self._pair_seconds = clock.monotonic(), 0.0
        free = self._rss() + SHARE_OF_RAM * psutil.virtual_memory().available
        self._limit = min(effort.memory_gb * GIB, free)
        self.reason = ""

    @property
    def seconds(self) -> float:
        """Time since the beginning."""
        return clock.monotonic() - self._begun

    @contextmanager
    def inducing(self) -> Iterator[None]:
        """Note how long an induction takes, so that there is time left for the last one."""
        begun = self.seconds
        yield
        self._pair_seconds = (self.seconds - begun) / max(1, self._unrolled.pairs)

    def goes_on(self) -> bool:
        """False from the moment on when a limit is reached."""
        projected_seconds = self.seconds + self._pair_seconds * self._unrolled.pairs
        if self.reason:
            return False
        if self._interrupts.are_pending:
            self.reason = "interrupted"
        elif projected_seconds > 60 * self._effort.minutes:
            self.reason = f"{self._effort.minutes:g} minutes are over"
        elif self._rss() > self._limit:
            self.reason = f"{self._limit / GIB:.2f} GiB of RAM are taken"
        return not self.reason

    def allow_proof(self) -> bool:
        """False from the moment on when a proof has taken its share of what there is."""
        in_time = self.seconds <= 60 * SHARE_OF_TIME * self._effort.minutes
        return in_time and not self._interrupts.are_pending and self._rss() <= self._limit

    def _rss(self) -> int:
        used: int = self._process.memory_info().rss
        return used


def certify(
    question: Question,
    assumed: Assumptions,
    effort: Effort,
    tracker: Tracker,
    occupancy: KnownOccupancy | None = None,
    solved_power: Callable[[], float | None] = lambda: None,
) -> Certification:
    """Intervals for the values of a policy, as narrow as the effort allows.

    Args:
        question: Whose values.
        assumed: Claims about what is not expanded. Where no least power is among them, one is
            proved if that can be done.
        effort: When to stop.
        tracker: Is told how far it is.
        occupancy: Occupancy of all pairs, where a solution knows it; own estimates are too small.
        solved_power: Is asked for the least X_h of a solution where none can be proved; None
            where that is not known either.

    Raises:
        SolveError: if an assumption or a policy is wrong, or there is no room for a single step.
    """
    unrolled, rounds = Unrolled(question), list[Round]()
    assumed.require_sense(question)
    levels, was_timed = _levels(effort.epsilon), False
    with Interrupts() as interrupts:
        budget = Budget(effort, interrupts, unrolled)
        assumed, proof = _with_least_power(question, assumed, budget, solved_power)
        for number, epsilon in enumerate(levels):

            def report(time: int, number: int = number, epsilon: float = epsilon) -> None:
                _report(tracker, unrolled, (number, len(levels)), epsilon, time)

            frontier = deepen(unrolled, epsilon, budget.goes_on, report, occupancy)
            if not unrolled.pairs and interrupts.are_pending:
                raise KeyboardInterrupt("interrupted before anything was expanded")
            if not unrolled.pairs and budget.reason:
                raise SolveError(
                    f"{question.spec.name!r}: nothing could be expanded, for {budget.reason}; "
                    "give more minutes (--minutes) or more RAM (--memory)"
                )
            is_last = bool(budget.reason) or number == len(levels) - 1
            if unrolled.is_timed != was_timed:
                rounds.clear()  # They took it that every step lasts 1.
                was_timed = unrolled.is_timed
            if rounds and unrolled.pairs == rounds[-1].pairs and not is_last:
                continue
            if not rounds and not is_last:
                induce(unrolled, assumed)  # Which may compile, and that says nothing of time.
            with budget.inducing():
                induced = induce(unrolled, assumed, keep=is_last)
            start = induced.start
            if rounds:
                start = _intersection(start, rounds[-1].start)
            rounds.append(
                Round(
                    epsilon,
                    unrolled.pairs,
                    unrolled.transitions,
                    float(frontier.outside.sum()),
                    budget.seconds,
                    start,
                    induced.proved,
                )
            )
            if is_last:
                break
        ended = budget.reason or f"no pair with an occupancy of {effort.epsilon:g} is left"
        if frontier.is_cut and not budget.reason:
            steps = most_steps(question, effort.epsilon)
            ended = f"{steps:,.0f} steps were followed, and episodes may go on for ever"
    tracker.progress(TASK, 1.0, 1.0)
    vacuous = _vacuous(unrolled, assumed)
    return Certification(unrolled, vacuous, rounds, ended, induced, assumed, proof)


def _with_least_power(
    question: Question,
    assumed: Assumptions,
    budget: Budget,
    solved_power: Callable[[], float | None],
) -> tuple[Assumptions, Proof | None]:
    """Claims with a least power that is proved, or taken from a run, where none is assumed."""
    if assumed.min_power is not None:
        return assumed, None
    proof = prove(question, budget.allow_proof)
    if proof is not None:
        return replace(assumed, min_power=proof.min_power, power_source="proved"), proof
    power = solved_power()
    if power is None:
        return assumed, None
    return replace(assumed, min_power=power, power_source="run"), None


def _vacuous(unrolled: Unrolled, assumed: Assumptions) -> PairBounds:
    """Bounds at the start before anything is expanded, by what is known now about durations."""
    nothing = Unrolled(unrolled.question)
    nothing.is_timed = unrolled.is_timed
    return induce(nothing, assumed).start


def _levels(epsilon: float) -> list[float]:
    """Least occupancy of each round: roots of 10 less from round to round, later 10 times less."""
    finest = max(epsilon, FINEST) * (1 + 1e-9)
    levels = [10 ** (-half / 2) for half in range(2, 11)]
    levels += [10.0**-power for power in range(6, 10)]
    return [*(level for level in levels if level > finest), epsilon]


def _report(
    tracker: Tracker, unrolled: Unrolled, round_: tuple[int, int], epsilon: float, time: int
) -> None:
    number, of = round_
    horizon = unrolled.question.spec.horizon
    steps = "" if horizon is None else f" of {horizon}"
    share = number / of + (0.0 if horizon is None else time / horizon / of)
    tracker.status(TASK, f"occupancy {epsilon:.0e}, step {time}{steps}, {unrolled.pairs:,} pairs")
    tracker.progress(TASK, min(share, 0.999), 1.0)


def _intersection(new: PairBounds, old: PairBounds) -> PairBounds:
    pairs = (
        (new.v_e, old.v_e),
        (new.x_h, old.x_h),
        (new.lack, old.lack),
        (new.loss, old.loss),
    )
    return PairBounds(
        *(Bounds(np.maximum(a.low, b.low), np.minimum(a.high, b.high)) for a, b in pairs)
    )
