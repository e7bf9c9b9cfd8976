"""Human priors of this distribution: Phase 1 solved exactly, and the uniform one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int32, Int64, Shaped
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import Tracker, WorldModel
from empo_exact import ram
from empo_exact.assumptions import Assumptions, build_prior
from empo_exact.game import Block, make_scratch
from empo_exact.graph import StateGraph, build_graph
from empo_exact.human_policies import uniform_policy
from empo_exact.humans import phase1
from empo_exact.induction import GraphSweeps, induce
from empo_exact.payoffs import Payoffs
from empo_exact.plugin import ExactParams, PriorParams, UniformParams
from empo_exact.problem import Problem, pose
from empo_exact.ram import Sizes
from empo_exact.sweep import Seconds, empty_policies, room, terminal_values
from empo_exact.values import ValueStore
from empo_theory.parameters import CompleteTheory
from empo_worlds.queries import by_steps_left
from empo_worlds.roles import check_humans
from empo_worlds.row_table import RowTable


class ExactPrior:
    """Boundedly rational humans, by backward induction over the whole state graph.

    The graph and the humans' values are worked out when the prior is first asked; asking about
    states that no episode is in with so many steps left costs a look ahead from there.
    """

    def __init__(
        self, params: PriorParams, world: WorldModel, assumed: Assumptions | None = None
    ) -> None:
        full_params = _with_phase_2(params).model_copy(update={"keep": "all"})
        ram.check_horizon(world.spec, full_params)  # The humans' values of all times are kept.
        self._params = params
        self._world = world
        self._assumed = assumed or Assumptions(habit_prior=build_prior(params.habit, world))

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human; see ``empo_core.protocols.HumanPrior``.

        Raises:
            SolveError: if ``steps_left`` is less than 1 or more than the horizon.
        """
        return by_steps_left(self._at, states, steps_left)

    def _at(self, states: Tensor, steps_left: int) -> Tensor:
        horizon = self._world.spec.horizon
        if horizon is not None and not 1 <= steps_left <= horizon:
            raise SolveError(f"steps_left is {steps_left}; the horizon is {horizon}")
        rows = states.cpu().numpy()
        solved, time = self._solved, 0 if horizon is None else horizon - steps_left
        order = solved.table.find(rows)
        if ((order < 0) | (order >= solved.num_valued(time))).any():
            # Asked about a state that no episode is in then: look ahead from there instead.
            solved = self._solve(np.unique(rows, axis=0), None if horizon is None else steps_left)
            order, time = solved.table.find(rows), 0
        return torch.from_numpy(solved.policy(order, time, steps_left))

    @cached_property
    def _solved(self) -> _Solved:
        start = self._world.initial_states().states.numpy()
        return self._solve(start, self._world.spec.horizon)

    def _solve(self, start: Shaped[np.ndarray, "start word"], steps: int | None) -> _Solved:
        """Phase 1 over everything within so many steps of some states."""
        world = self._world
        check_humans(world.spec)
        params = _with_phase_2(self._params)
        graph = build_graph(world, steps, start=start)
        ram.check(Sizes.of(graph), params, assumed=self._assumed)
        problem = pose(world, graph, params, self._assumed)
        problem = replace(problem, horizon=steps, has_phase2=False)
        sweeps = GraphSweeps(problem, ValueStore("all", None, ""), Seconds())
        with ThreadPoolExecutor(problem.workers) as threads:
            induce(sweeps, 0, threads, Tracker(), resume=False)
        return _Solved(problem, RowTable.of(graph.states), sweeps.store)


def _with_phase_2(params: PriorParams) -> ExactParams:
    """The same Phase 1, with defaults for what only Phase 2 reads."""
    theory = CompleteTheory(**params.theory.model_dump())
    return ExactParams(theory=theory, habit=params.habit, believed_others=params.believed_others)


def _successors(
    graph: StateGraph, states: Int32[np.ndarray, " state"]
) -> Int64[np.ndarray, " transition"]:
    """Where the transitions from some states lead, one state after another."""
    joint = graph.spec.num_joint_actions
    begin = graph.offsets[states.astype(np.int64) * joint].astype(np.int64)
    length = graph.offsets[(states.astype(np.int64) + 1) * joint] - begin
    item = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(length.sum())
    successors: Int64[np.ndarray, " transition"] = graph.successor[item].astype(np.int64)
    return successors


@dataclass(frozen=True)
class _Solved:
    """Phase 1 of a world: V_h^m by time."""

    problem: Problem
    table: RowTable
    store: ValueStore

    def policy(
        self, order: Int32[np.ndarray, " state"], time: int, steps_left: int
    ) -> Float64[np.ndarray, "state goal action"]:
        """pi_h in some states, goals as on the world's axis [state goal action]."""
        problem = self.problem
        after = 0 if problem.horizon is None else time + 1
        if after == problem.horizon:
            values = terminal_values(problem, problem.graph.num_states)
        else:
            values = self.store.at(after)
        # Room as for all states, of which only what the sweep needs is ever touched.
        payoffs, following = Payoffs(problem, len(values.v_m)), _successors(problem.graph, order)
        if len(following) >= len(values.v_m):
            following = np.arange(len(values.v_m))
        payoffs.renew(values, following)
        policies, humans = empty_policies(problem, len(order)), problem.humans_in(order, steps_left)
        block, scratch = Block(order, 0, len(order)), make_scratch(problem.game, problem.rho)
        out = room(problem, problem.graph.num_states)
        phase1(problem.game, humans, block, payoffs.read_by(0)[0], scratch, out, policies)
        return policies.pi_h.transpose(0, 2, 1)[:, problem.places].copy()

    def num_valued(self, time: int) -> int:
        """Number of states, from the first on, that have their values one step after ``time``."""
        graph = self.problem.graph
        return graph.num_states if self.problem.horizon is None else graph.within(time)


class UniformPrior:
    """Humans choose evenly among their available actions, whatever their goal.

    Attributes:
        is_stationary: It never depends on how many steps are left.
    """

    is_stationary = True

    def __init__(self, params: UniformParams, world: WorldModel) -> None:
        self._world = world

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Even probabilities; see ``empo_core.protocols.HumanPrior``."""
        return uniform_policy(self._world, states)
