"""Sweeps over the states at one time: both phases, block by block, on threads."""

from __future__ import annotations

import time as clock
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int32

from empo_exact.answers import combined, fingerprint, habit_answers
from empo_exact.game import (
    Block,
    Game,
    Policies,
    Scratch,
    Values,
    make_scratch,
)
from empo_exact.human_policies import prior_policy
from empo_exact.humans import phase1
from empo_exact.payoffs import Payoffs
from empo_exact.problem import Problem
from empo_exact.risk import MomentPayoffs, phase2_of_moments
from empo_exact.robots import phase2, write_ends

REMEMBERED = 12_000_000
"""Numbers of mean policies that are kept, of 8 bytes each: a dozen for a state with few actions."""


@dataclass
class Seconds:
    """Wall-clock time of the parts of a solve, in seconds."""

    kernels: float = 0.0
    graph: float = 0.0
    phase1: float = 0.0
    phase2: float = 0.0
    total: float = 0.0


class MeanPolicies(NamedTuple):
    """Policies in some states, those of humans averaged over their goals by weight.

    Attributes:
        pi_r: The robot's policy [state robot].
        humans: The policy of each human, in the order of ``spec.humans``; NaN where the episode is
            over [human state action].
        u_r: The robot's intrinsic reward [state].
    """

    pi_r: Float64[np.ndarray, "state robot"]
    humans: Float64[np.ndarray, "human state action"]
    u_r: Float64[np.ndarray, " state"]

    @classmethod
    def empty(cls, game: Game, size: int) -> MeanPolicies:
        """Room for the policies in ``size`` states."""
        humans, actions = len(game.num_actions), int(game.num_actions.max())
        return cls(
            np.zeros((size, game.num_robot_actions)),
            np.zeros((humans, size, actions)),
            np.zeros(size),
        )

    def take(self, game: Game, policies: Policies, first: int, last: int) -> None:
        """Take over the policies of a block of states, which have these places here."""
        here, block = slice(first, last), slice(0, last - first)
        self.pi_r[here], self.u_r[here] = policies.pi_r[block], policies.u_r[block]
        for human, mean in enumerate(self.humans):
            goals = slice(game.first_goal[human], game.first_goal[human + 1])
            mixed = policies.pi_h[block, :, goals] @ game.weight[goals]
            with np.errstate(invalid="ignore"):
                mean[here] = mixed / mixed.sum(1, keepdims=True)


def empty_policies(problem: Problem, size: int) -> Policies:
    """Room for the policies in ``size`` states."""
    game = problem.game
    robots, humans = game.num_robot_actions, len(game.num_actions)
    return Policies(
        np.zeros((size, int(game.num_actions.max()), len(game.weight))),
        np.zeros((size, robots)),
        np.full((size, robots), np.nan),
        np.zeros((size, humans)),
        np.zeros(size),
    )


def room(problem: Problem, size: int) -> Values:
    """Zeros for the values of so many states; of Phase 1 alone where that is all."""
    goals, robots = len(problem.game.weight), size if problem.has_phase2 else 0
    return Values(
        np.zeros((size, goals)),
        np.zeros((robots, goals)),
        np.zeros(robots),
        np.zeros((robots, problem.rho - 1)),
    )


def terminal_values(problem: Problem, size: int) -> Values:
    """The values of the first states where no steps are left.

    V_r is NaN where a human is without power, if presence counts.
    """
    values = room(problem, size)
    if not problem.counts_presence:
        values.v_r[:] = problem.theory.terminal_value
        values.norms[:] = -problem.theory.terminal_value
        return values
    order, at_once = np.arange(size, dtype=np.int32), problem.block
    policies = empty_policies(problem, min(size, at_once) if problem.has_phase2 else 0)
    values.v_m[:] = problem.game.achieved[:size]
    for first in range(0, size if problem.has_phase2 else 0, at_once):
        block = Block(order, first, min(first + at_once, size))
        write_ends(problem.game, problem.theory_at(0), block, values, policies)
    return values


def end_values(
    problem: Problem, order: Int32[np.ndarray, " state"], steps_left: int
) -> tuple[Policies, Values]:
    """What ``sweep_block`` says of some states in which an episode is over, by position.

    Args:
        problem: The problem.
        order: State numbers.
        steps_left: Steps that would be left.
    """
    policies, out = empty_policies(problem, len(order)), room(problem, int(order.max()) + 1)
    block = Block(order, 0, len(order))
    if problem.counts_presence:
        out.v_m[order] = problem.game.achieved[order]
    write_ends(problem.game, problem.theory_at(steps_left), block, out, policies)
    return policies, Values(*(array[order] for array in out))


@dataclass(frozen=True)
class Workspace:
    """Memory that one thread works in.

    Attributes:
        worker: Number of the thread.
        scratch: Working memory of the kernels.
        policies: Receives the policies of a block.
    """

    worker: int
    scratch: Scratch
    policies: Policies


def sweep_block(
    problem: Problem,
    block: Block,
    later: Payoffs,
    out: Values,
    space: Workspace,
    steps_left: int,
) -> tuple[float, float, int]:
    """Both phases in the states of a block.

    Values go into ``out`` by state number, policies into ``space`` by position in the block.

    Returns:
        Seconds in each phase, and how many states have no finite U_r.
    """
    begin = clock.perf_counter()
    by_v_m, by_v_e = later.read_by(space.worker)
    scratch, policies = space.scratch, space.policies
    if problem.prior is None:
        phase1(problem.game, problem.humans_at(steps_left), block, by_v_m, scratch, out, policies)
    else:
        states = block.order[block.first : block.last]
        policies.pi_h[: len(states)] = prior_policy(
            problem.world, problem.graph, problem.prior, states, steps_left, policies.pi_h.shape[1]
        )
        out.v_m[states] = np.nan  # A prior does not say what its humans hope for.
    middle = clock.perf_counter()
    if not problem.has_phase2:
        return middle - begin, 0.0, 0
    theory = problem.theory_at(steps_left)
    if problem.moments is None:
        bad = phase2(problem.game, theory, block, by_v_e, later.v_r, scratch, out, policies)
    else:
        after = MomentPayoffs(by_v_e, later.norms, later.powers, later.common_scale)
        bad = phase2_of_moments(
            problem.game, theory, problem.moments, block, after, scratch, out, policies
        )
    return middle - begin, clock.perf_counter() - middle, bad


class Solver:
    """Sweeps over a problem with a team of threads.

    Attributes:
        problem: The problem.
        seconds: Wall-clock time of both phases, added up.
        answers: Fingerprint of what priors answered in the last sweep.
    """

    def __init__(self, problem: Problem, seconds: Seconds) -> None:
        self.problem = problem
        self.seconds = seconds
        self.answers = 0
        self._spaces = [
            Workspace(
                worker,
                make_scratch(problem.game, problem.rho),
                empty_policies(problem, problem.block),
            )
            for worker in range(problem.workers)
        ]

    def sweep(
        self,
        order: Int32[np.ndarray, " state"],
        later: Payoffs,
        out: Values,
        steps_left: int,
        threads: ThreadPoolExecutor,
        before: Payoffs | None = None,
        means: MeanPolicies | None = None,
    ) -> int:
        """Both phases in all states of ``order``.

        Args:
            order: State numbers.
            later: What reaching a state pays one step later.
            out: Receives the values, by state number.
            steps_left: Steps until the end.
            threads: As many as the problem has workers.
            before: Receives the payoffs for the sweep before this one, while values are in the
                cache; may be ``later`` where no state of ``order`` leads to another of them.
            means: Receives the policies, by position in ``order``.

        Returns:
            How many states have no finite U_r.
        """
        size, workers = self.problem.block, self.problem.workers
        self.problem.humans_at(steps_left)  # Once, before all threads ask for it.

        def work(space: Workspace) -> tuple[float, float, int, int]:
            seconds, bad, answered = np.zeros(2), 0, 0
            for first in range(space.worker * size, len(order), workers * size):
                block = Block(order, first, min(first + size, len(order)))
                humans_s, robots_s, wrong = sweep_block(
                    self.problem, block, later, out, space, steps_left
                )
                begin = clock.perf_counter()
                if means is not None:
                    means.take(self.problem.game, space.policies, block.first, block.last)
                if self.problem.prior is not None:
                    states = order[block.first : block.last]
                    policies = space.policies.pi_h[: len(states)]
                    answered = combined(answered, fingerprint(policies, states, steps_left))
                if before is not None:
                    before.renew(out, order[block.first : block.last])
                seconds += humans_s, robots_s + clock.perf_counter() - begin
                bad += wrong
            return float(seconds[0]), float(seconds[1]), bad, answered

        team = self._spaces[: -(-len(order) // size)]
        done = list(threads.map(work, team)) if len(team) > 1 else [work(space) for space in team]
        self.seconds.phase1 += sum(part[0] for part in done) / max(1, len(team))
        self.seconds.phase2 += sum(part[1] for part in done) / max(1, len(team))
        habit = habit_answers(self.problem, order, steps_left)
        self.answers = combined(habit, *(part[3] for part in done))
        return sum(part[2] for part in done)
