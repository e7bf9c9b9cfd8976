"""Solving a world exactly: values and policies of humans and robots by backward induction.

What ``solve`` calls, and where to read on::

    load_kernels           compiles what follows, or loads it
    world_graph            the states within reach, and where actions lead            graph.py
    pose                   the problem: arrays that kernels read, and priors          problem.py
    induce                 sweeps, from the last step (or level) back to the start    induction.py
      Solver.sweep         blocks of states, on threads                               sweep.py
        phase1             equations (1)-(3): pi_h and V_h^m                          humans.py
        phase2             equations (4)-(9): pi_r, V_h^e and V_r                     robots.py
          expect_successors    of both: E over s' in (1) and (6)                      rows.py
        Payoffs.renew      the bracket of (1) and (6) by these states' values, which
                           the sweep of the step before reads: ``rows.payoff``        payoffs.py
    ExactResult            values and policies at every state and time                result.py

``game.py`` says what the arrays of the kernels hold. Who checks the equations reads
``empo_theory.reference`` first: the same, one state at a time, in plain Python.

``reductions/`` (fewer states with the same values) and ``parts/`` (a graph in several pieces, by
several processes) are imported where the parameters ask for them.
"""

from __future__ import annotations

import logging
import time as clock
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from empo_core.errors import SolveError
from empo_core.protocols import Tracker, WorldModel
from empo_core.stages import kernel_stage, stage
from empo_exact import ram
from empo_exact.assumptions import Assumptions
from empo_exact.defunct import failed_problem, failing
from empo_exact.exploration_progress import exploring
from empo_exact.game import Block, make_scratch
from empo_exact.graph import Start, StateGraph, build_graph, start_chances, starts_of, world_graph
from empo_exact.induction import FailedSweeps, GraphSweeps, induce
from empo_exact.payoffs import Payoffs
from empo_exact.plugin import Compute, ExactParams, UniformParams
from empo_exact.prior import UniformPrior
from empo_exact.problem import Problem, check_params, pose
from empo_exact.ram import Sizes
from empo_exact.request import Request
from empo_exact.result import ExactResult
from empo_exact.risk import phase2_of_moments
from empo_exact.robots import phase2
from empo_exact.solution import Solution
from empo_exact.storage import problem_digest
from empo_exact.sweep import (
    Seconds,
    Workspace,
    empty_policies,
    room,
    sweep_block,
    terminal_values,
)
from empo_exact.terminal_states import warning_before
from empo_exact.values import ValueStore
from empo_theory.parameters import CompleteTheory
from empo_worlds.compilation import is_loaded
from empo_worlds.contract import require_one_start, require_world
from empo_worlds.roles import check_humans

if TYPE_CHECKING:
    from empo_exact.parts.peers import Peers

log = logging.getLogger("empo_exact")


def solve(
    world: WorldModel,
    params: ExactParams | None = None,
    assumed: Assumptions | None = None,
    *,
    directory: Path | None = None,
    tracker: Tracker | None = None,
    resume: bool = False,
    seed: int = 0,
    start: Start | None = None,
    peers: Peers | None = None,
    graph: StateGraph | None = None,
    remembers: bool = False,
) -> ExactResult:
    """Solve a world exactly: Phase 1 and Phase 2 by backward induction in float64.

    Args:
        world: The world.
        params: Theory and solver parameters.
        assumed: Assumptions about the humans beyond the parameters, e.g. a human prior.
        directory: Where ``keep: disk`` keeps its files.
        tracker: Told about progress and values.
        resume: Continue from the files that an interrupted run left in ``directory``.
        seed: Seeds the rollouts that ``ExactResult.save`` draws.
        start: State rows in which episodes start; None means the initial states. The first of the
            rows is the start of reports, chains and rollouts.
        peers: Processes that solve the world together, of which this is one; None: this alone.
        graph: The graph of a result that was solved in one piece, without reductions, in an equal
            world and from the same start; it is not explored again then.
        remembers: Keep mean policies for whoever follows the closed loop, unless they are many.

    Returns:
        Values and policies at every reachable state and time.

    Raises:
        WorldError: if ``world`` does not derive from ``WorldModel``.
        ConfigError: if the world starts in several states, and a parameter does not support that.
        SolveError: if the world has no humans or goals, is cyclic without a horizon, is too large,
            or leaves a human without any attainable goal; or a parameter would do nothing.
    """
    params, assumed = params or ExactParams(), assumed or Assumptions()
    tracker = tracker or Tracker()
    begin, seconds = clock.perf_counter(), Seconds()
    require_world(world)
    check_humans(world.spec)
    check_params(world, params)
    ram.check_horizon(world.spec, params)
    starts_of(world, start)  # Refused before anything is compiled or explored.
    size = peers.size if peers else 1
    processes = max(size, params.compute.processes)
    if conflict := params.conflict(processes) or params.idle_checkpoints(processes):
        raise SolveError(conflict)
    has_parts = params.compute.has_parts or processes > 1
    if start is None and (key := params.needs_one_start(processes)):
        require_one_start(world, key)
    if not is_loaded(phase2 if params.theory.rho == 1 else phase2_of_moments):
        with kernel_stage(tracker.progress):
            has_prior = bool(assumed.human_prior or params.human_prior)
            load_kernels(world, has_prior=has_prior, rho=params.theory.rho)
    seconds.kernels = clock.perf_counter() - begin
    request = Request(world, params, assumed, start, directory, tracker, resume, seed)
    if params.compute.processes > 1:
        from empo_exact.parts.processes import solve_in_processes

        return solve_in_processes(request, peers)
    if has_parts:
        from empo_exact.parts.solve import solve_in_parts

        return solve_in_parts(request, peers)
    unfolding, images = None, None
    if params.reduce:
        from empo_exact.reductions.original_states import reduce_graph

        unfolding = reduce_graph(request)
        graph, images = unfolding.reduced.graph, unfolding.reduced.images
        written, params = Sizes.of(unfolding.graph), unfolding.params
    else:
        if graph is None:
            with exploring(world, params, tracker) as progress:
                graph = world_graph(world, params, progress, start=start)
        written = Sizes.of(graph)
    seconds.graph = clock.perf_counter() - begin - seconds.kernels
    if warning := warning_before(world, graph, params):
        log.warning("%s", warning)
    params = ram.resolved(written, params)
    sizes = Sizes.of(graph, len(images.variant) if images else 0)
    ram.check(sizes, params, directory, written, assumed)
    ram.announce(graph, params, written, assumed)
    with stage(tracker.progress, "arranging the problem"):
        chances = start_chances(world, start)
        problem = pose(world, graph, params, assumed, images=images, start=chances)
    digest = problem_digest(world, [problem], params) if params.keep == "disk" else ""
    store = ValueStore(params.keep, directory, digest)
    failed = None
    if params.defunct.rate > 0:
        failed = failed_sweeps(problem, params, store, seconds)
        problem = failing(problem, params.defunct.rate)
    sweeps = GraphSweeps(problem, store, seconds, failed, remembers=remembers)
    done = sweeps.recover() if resume else 0
    with ThreadPoolExecutor(params.compute.workers) as threads:
        induce(sweeps, done, threads, tracker, resume=resume)
    seconds.total = clock.perf_counter() - begin
    if unfolding:
        return unfolding.result(problem, store, request, seconds)
    solved = None if failed is None else Solution(failed.problem, failed.store)
    return ExactResult(problem, store, params, seconds, seed, failed=solved, means=sweeps.means)


def failed_sweeps(
    problem: Problem, params: ExactParams, store: ValueStore, seconds: Seconds
) -> FailedSweeps:
    """The sweeps over the states in which robots have failed, kept as those of the others are.

    Raises:
        ConfigError: if there is no robot, or one has no such action.
        SolveError: if the null action is not available in some state.
    """
    failed = failed_problem(problem, params.defunct)
    is_likely = params.defunct.rate > 0
    return FailedSweeps(
        failed, store.sibling("failed"), seconds, problem.graph, is_likely=is_likely
    )


def solve_alone(result: ExactResult) -> Solution:
    """The values of the states of a result where robots have failed, whether they may or not.

    V_r is NaN where a human is without power then.

    Raises:
        ConfigError: if there is no robot, or one has no such action.
        SolveError: if the null action is not available in some state, or the result has not the
            whole graph.
    """
    if result.failed is not None:
        return result.failed
    if not result.is_whole:
        raise SolveError(
            "what humans could do alone takes the whole graph, which was not kept: solve with "
            "keep: all or disk"
        )
    problem, params = result.problem, result.params
    sweeps = failed_sweeps(problem, params, ValueStore("all", None, ""), Seconds())
    with ThreadPoolExecutor(params.compute.workers) as threads:
        induce(sweeps, 0, threads, Tracker(), resume=False)
    return Solution(sweeps.problem, sweeps.store)


def load_kernels(world: WorldModel, *, has_prior: bool, rho: int = 1) -> None:
    """Compile the kernels of the world and of both phases, or load them from the disk.

    Numba does so when they are first called: here for the first state, with humans who choose
    evenly. With a prior Phase 1 is left out. Robots are averse to risk where ``rho`` is above 1.
    """
    theory = CompleteTheory(rho=rho)
    graph, params = build_graph(world, 1), ExactParams(theory=theory, compute=Compute(workers=1))
    prior = UniformPrior(UniformParams(), world) if has_prior else None
    problem = pose(world, graph, params, Assumptions(human_prior=prior))
    payoffs = Payoffs.of(problem, terminal_values(problem, graph.num_states))
    block, out = Block(np.zeros(1, np.int32), 0, 1), room(problem, 1)
    space = Workspace(0, make_scratch(problem.game, problem.rho), empty_policies(problem, 1))
    sweep_block(problem, block, payoffs, out, space, steps_left=1)
