"""A prepared problem, and both phases over blocks of its states."""

from __future__ import annotations

import time as clock
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from empo_core.protocols import HumanPrior, WorldModel
from empo_exact.graph import StateGraph
from empo_exact.kernel_data import Floats, Game, Humans, Scratch, Theory, aligned, make_scratch
from empo_exact.phase1 import phase1
from empo_exact.phase2 import phase2
from empo_exact.setup import ask_prior
from empo_exact.values import Values

POLICY_ENTRIES = 1 << 16
"""Human action probabilities that pass from one phase to the other at a time, per thread.

So many still fit into a core's second-level cache, half a megabyte.
"""


@dataclass
class Seconds:
    """Where the time went, in seconds of wall-clock time."""

    graph: float = 0.0
    phase1: float = 0.0
    phase2: float = 0.0
    total: float = 0.0


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything the sweep needs, prepared.

    Attributes:
        world: The world.
        graph: Its state graph.
        game: The graph and the robot's parameters, as the sweep reads them.
        humans: What Phase 1 assumes; not used with a ``prior``.
        theory: The parameters of Phase 2.
        habit: Who says what the habitual policy is; None: ``humans`` has it.
        prior: Who says how humans act; None solves Phase 1.
        gamma_h: The humans' discount.
        horizon: Steps per episode; None where the world ends by itself.
        workers: Threads.
        places: Where the sweep has each goal of the world's goal axis [goal].
    """

    world: WorldModel
    graph: StateGraph
    game: Game
    humans: Humans
    theory: Theory
    habit: HumanPrior | None
    prior: HumanPrior | None
    gamma_h: float
    horizon: int | None
    workers: int
    places: NDArray[np.int64] = field(repr=False)

    @property
    def longer(self) -> bool:
        """Whether transitions differ in how long they take."""
        return bool((self.graph.duration != 1).any())

    @property
    def block(self) -> int:
        """How many states one thread works on at a time."""
        per_state = len(self.game.weight) * int(self.game.num_actions.max())
        return max(64, min(8192, POLICY_ENTRIES // per_state))

    def humans_at(self, steps_left: int) -> Humans:
        """What Phase 1 assumes with so many steps left: a habit may depend on them."""
        if self.habit is None or not self.humans.flag[1]:
            return self.humans
        return _with_habit(self, steps_left)

    def worth(self, values: Floats) -> Floats:
        """What reaching each state is worth to each goal, given its value there.

        Rows beyond the states' are scratch: one per thread and joint action.
        """
        number = len(values)
        room = aligned((number + self.workers * int(self.game.shape[0]), values.shape[1]))
        self.renew_worth(values, room[:number], slice(0, number))
        return room

    def renew_worth(self, values: Floats, worth: Floats, states: slice | NDArray[np.int32]) -> None:
        """Work out some states' worth again, where both arrays cover all states."""
        achieved = self.game.achieved[states] > 0
        factor, paid = (1.0, 0.0) if self.longer else (self.gamma_h, 1.0)
        worth[states] = np.where(achieved, paid, factor * values[states])


@lru_cache(maxsize=1)
def _with_habit(problem: Problem, steps_left: int) -> Humans:
    graph, habit = problem.graph, problem.habit
    assert habit is not None
    count = graph.num_expanded
    if problem.horizon is not None:
        count = min(count, graph.within(problem.horizon - steps_left))
    actions = int(problem.game.num_actions.max())
    policy = ask_prior(graph, habit, np.arange(count), steps_left, actions)
    # A leading axis of 1 would mean that it holds for all states.
    return problem.humans._replace(habit=np.concatenate([policy, policy[:1]]))


@dataclass(frozen=True)
class Policies:
    """What a sweep over some states decides, by position [position ...].

    Attributes:
        pi_h: Humans' policies, goals as the sweep orders them [position action goal].
        pi_r: The robot's policy [position robot].
        q_r: Q_r, NaN where unavailable [position robot].
        x_h: X_h [position human].
        u_r: U_r, 0 at terminal states [position].
    """

    pi_h: Floats
    pi_r: Floats
    q_r: Floats
    x_h: Floats
    u_r: Floats


def empty_policies(problem: Problem, count: int) -> Policies:
    """Room for the policies in ``count`` states."""
    game = problem.game
    robots, humans = int(game.shape[2]), len(game.num_actions)
    return Policies(
        np.zeros((count, int(game.num_actions.max()), len(game.weight))),
        np.zeros((count, robots)),
        np.full((count, robots), np.nan),
        np.zeros((count, humans)),
        np.zeros(count),
    )


def sweep_block(
    problem: Problem,
    order: NDArray[np.int32],
    first: int,
    last: int,
    worth: Values,
    out: Values,
    policies: Policies,
    scratch: Scratch,
    steps_left: int,
    worker: int = 0,
) -> tuple[float, float, int]:
    """Both phases in the states ``order[first:last]``.

    Args:
        problem: The problem.
        order: State numbers.
        first: Where to begin.
        last: Where to end.
        worth: What reaching a state is worth: to each goal as each human hopes, to each goal
            in fact, and V_r, all one step later.
        out: Receives the values, by state number.
        policies: Receives the policies, by position from ``first`` on.
        scratch: Working memory.
        steps_left: Remaining steps.
        worker: Which thread this is; each has scratch rows of its own in ``worth``.

    Returns:
        Seconds in each phase, and how many states have no finite U_r.
    """
    begin = clock.perf_counter()
    spare = len(worth.v_r) + worker * int(problem.game.shape[0])
    if problem.prior is None:
        phase1(
            problem.game, problem.humans_at(steps_left), order, first, last, worth.v_m, spare,
            problem.longer, scratch, out.v_m, policies.pi_h,
        )  # fmt: skip
    else:
        policies.pi_h[: last - first] = ask_prior(
            problem.graph, problem.prior, order[first:last], steps_left, policies.pi_h.shape[1]
        )
        out.v_m[order[first:last]] = np.nan  # Nobody knows what these humans hope for.
    middle = clock.perf_counter()
    bad = phase2(
        problem.game, problem.theory, order, first, last, policies.pi_h, worth.v_e,
        spare, problem.longer, worth.v_r, scratch, out.v_e, out.v_r,
        policies.pi_r, policies.q_r, policies.x_h, policies.u_r,
    )  # fmt: skip
    return middle - begin, clock.perf_counter() - middle, bad


def room(problem: Problem, count: int) -> Values:
    """Zeros for the values of so many states."""
    goals = len(problem.game.weight)
    return Values(np.zeros((count, goals)), np.zeros((count, goals)), np.zeros(count))


def terminal_values(problem: Problem, count: int) -> Values:
    """The values where an episode is over."""
    values = room(problem, count)
    values.v_r[:] = problem.theory.number[4]
    return values


class Solver:
    """Sweeps over a prepared problem with a team of threads."""

    def __init__(self, problem: Problem, seconds: Seconds) -> None:
        self.problem = problem
        self.seconds = seconds
        self._scratch = [make_scratch(problem.game) for _ in range(problem.workers)]
        self._policies = [empty_policies(problem, problem.block) for _ in range(problem.workers)]

    def sweep(
        self,
        order: NDArray[np.int32],
        worth: Values,
        out: Values,
        steps_left: int,
        threads: ThreadPoolExecutor,
    ) -> int:
        """Both phases in all states of ``order``; how many have no finite U_r."""
        block, workers = self.problem.block, self.problem.workers
        self.problem.humans_at(steps_left)  # Once, before all threads ask for it.

        def work(worker: int) -> tuple[float, float, int]:
            spent, bad = np.zeros(2), 0
            for first in range(worker * block, len(order), workers * block):
                last = min(first + block, len(order))
                one, two, wrong = sweep_block(
                    self.problem, order, first, last, worth, out,
                    self._policies[worker], self._scratch[worker], steps_left, worker,
                )  # fmt: skip
                spent += one, two
                bad += wrong
            return float(spent[0]), float(spent[1]), bad

        team = range(min(workers, -(-len(order) // block)))
        done = list(threads.map(work, team)) if len(team) > 1 else [work(w) for w in team]
        self.seconds.phase1 += sum(part[0] for part in done) / max(1, len(team))
        self.seconds.phase2 += sum(part[1] for part in done) / max(1, len(team))
        return sum(part[2] for part in done)
