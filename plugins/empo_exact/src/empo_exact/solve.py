"""Backward induction: both phases, from the horizon back to the initial state."""

from __future__ import annotations

import logging
import math
import time as clock
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from empo_core.errors import SolveError
from empo_core.protocols import Tracker, WorldModel
from empo_core.stages import kernel_stage, stage
from empo_exact import ram
from empo_exact.acyclic import levels_of
from empo_exact.answers import answers
from empo_exact.assumptions import Assumptions
from empo_exact.checks import refuse_non_finite, refuse_powerless, refuse_unknown
from empo_exact.exploration_progress import exploring
from empo_exact.game import Block, Values, make_scratch
from empo_exact.graph import Start, StateGraph, build_graph, starts_of, world_graph
from empo_exact.induction import (
    Seconds,
    Solver,
    Workspace,
    empty_policies,
    room,
    sweep_block,
    terminal_values,
)
from empo_exact.parts.peers import Peers
from empo_exact.parts.solve import solve_in_parts
from empo_exact.payoffs import Payoffs
from empo_exact.plugin import Compute, ExactParams, UniformParams
from empo_exact.prior import UniformPrior
from empo_exact.problem import pose
from empo_exact.ram import Sizes
from empo_exact.reach import reachable_masks
from empo_exact.reductions.original_states import unfolding
from empo_exact.reductions.reduced import reduced_graph
from empo_exact.result import ExactResult
from empo_exact.robots import phase2
from empo_exact.storage import problem_digest
from empo_exact.terminal_states import warning_before
from empo_exact.values import ValueStore
from empo_worlds.compilation import is_loaded
from empo_worlds.contract import require_world
from empo_worlds.roles import check_humans

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
        start: State rows in which episodes start; None means the initial state. The first one is
            the start of reports, chains and rollouts.
        peers: Processes that solve the world together, of which this is one; None: this alone.

    Returns:
        Values and policies at every reachable state and time.

    Raises:
        WorldError: if ``world`` does not derive from ``WorldModel``.
        SolveError: if the world has no humans or goals, is cyclic without a horizon, is too large,
            or leaves a human without any attainable goal; or a parameter would do nothing.
    """
    params = params or ExactParams()
    begin, seconds = clock.perf_counter(), Seconds()
    require_world(world)
    check_humans(world.spec)
    ram.check_horizon(world.spec, params)
    starts_of(world, start)  # Refused before anything is compiled or explored.
    if idle := params.idle_checkpoints(peers.size if peers else 1):
        raise SolveError(idle)
    assumed = assumed or Assumptions()
    tracker = tracker or Tracker()
    if not is_loaded(phase2):
        with kernel_stage(tracker.progress):
            load_kernels(world, has_prior=bool(assumed.human_prior or params.human_prior))
    seconds.kernels = clock.perf_counter() - begin
    if params.compute.has_parts or (peers is not None and peers.size > 1):
        if params.reduce:
            raise SolveError("reduce is for one process: leave it out, or start one process")
        return _solve_in_parts(
            world, params, assumed, directory, tracker, resume, seed, peers, start
        )
    unfolded = None
    if params.reduce:
        reduced = reduced_graph(world, params, assumed, tracker, start)
        # Before the values, which would be lost if there were too many original states.
        unfolded = unfolding(world, params, reduced, tracker, start)
        graph, images, written = reduced.graph, reduced.images, Sizes.of(unfolded.graph)
        params = unfolded.params
    else:
        graph, images = _explore(world, params, tracker, start), None
        written = Sizes.of(graph)
    seconds.graph = clock.perf_counter() - begin - seconds.kernels
    if warning := warning_before(world, graph, params.theory):
        log.warning("%s", warning)
    params = ram.resolved(written, params)
    sizes = Sizes.of(graph, len(images.variant) if images else 0)
    ram.check(sizes, params, directory, written, assumed)
    ram.announce(graph, params, written, assumed)
    with stage(tracker.progress, "arranging the problem"):
        problem = pose(world, graph, params, assumed, images=images)
    digest = problem_digest(problem, params) if params.keep == "disk" else ""
    store = ValueStore(params.keep, directory, digest)
    induce = _induce_over_time if world.spec.horizon is not None else _induce_over_levels
    with ThreadPoolExecutor(params.compute.workers) as threads:
        induce(Solver(problem, seconds), store, threads, tracker, resume)
    seconds.total = clock.perf_counter() - begin
    if unfolded:
        return unfolded.result(problem, store, assumed, seconds, seed)
    return ExactResult(problem, store, params, seconds, seed)


def load_kernels(world: WorldModel, *, has_prior: bool) -> None:
    """Compile the kernels of the world and of both phases, or load them from the disk.

    Numba does so when they are first called: here for the first state, with humans who choose
    evenly. With a prior Phase 1 is left out.
    """
    graph, params = build_graph(world, 1), ExactParams(compute=Compute(workers=1))
    prior = UniformPrior(UniformParams(), world) if has_prior else None
    problem = pose(world, graph, params, Assumptions(human_prior=prior))
    payoffs = Payoffs.of(problem, terminal_values(problem, graph.num_states))
    block, out = Block(np.zeros(1, np.int32), 0, 1), room(problem, 1)
    space = Workspace(0, make_scratch(problem.game), empty_policies(problem, 1))
    sweep_block(problem, block, payoffs, out, space, steps_left=1)


def _solve_in_parts(
    world: WorldModel,
    params: ExactParams,
    assumed: Assumptions,
    directory: Path | None,
    tracker: Tracker,
    resume: bool,
    seed: int,
    peers: Peers | None,
    start: Start | None,
) -> ExactResult:
    size = peers.size if peers else 1
    if conflict := params.conflict_of_parts(max(size, params.compute.processes)):
        raise SolveError(conflict)
    if params.compute.processes > 1:
        if size > 1:
            raise SolveError("several processes solve this together: set compute.processes to 1")
        if directory is None:
            raise SolveError("processes need a directory that all of them reach; there is none")
        # Imported here because most runs have one process.
        from empo_exact.parts.processes import solve_in_processes

        return solve_in_processes(
            world,
            params,
            assumed,
            directory=directory,
            tracker=tracker,
            resume=resume,
            seed=seed,
            start=start,
        )
    return solve_in_parts(
        world,
        params,
        assumed,
        directory=directory,
        tracker=tracker,
        resume=resume,
        seed=seed,
        peers=peers,
        start=start,
    )


def _explore(
    world: WorldModel,
    params: ExactParams,
    tracker: Tracker,
    start: Start | None,
) -> StateGraph:
    with exploring(world, params, tracker) as progress:
        return world_graph(world, params, progress, start=start)


def _induce_over_time(
    solver: Solver,
    store: ValueStore,
    threads: ThreadPoolExecutor,
    tracker: Tracker,
    resume: bool,
) -> None:
    """One sweep per time step, from the horizon back, over the states reachable by then."""
    problem, graph = solver.problem, solver.problem.graph
    horizon = problem.horizon or 0
    order = np.arange(graph.num_states, dtype=np.int32)
    recovered = None
    if resume and store.keep == "disk":
        recovered = store.recover(
            horizon - 1,
            lambda values: refuse_non_finite(problem, values, "on disk"),
            lambda time: answers(
                problem, order[: min(graph.within(time), graph.num_expanded)], horizon - time
            ),
        )
    later = terminal_values(problem, graph.within(horizon))
    first = horizon - 1
    if recovered is not None:
        later, first = store.at(recovered), recovered - 1
    if resume:
        # A level is logged once it is saved; an attempt that ended in between did not log it.
        tracker.truncate(max(horizon - first - 2, 0))
        tracker.progress("backward induction", horizon - first - 1, horizon)
        if recovered is not None:
            _log(tracker, horizon - recovered, later)
    has_gaps = not math.isfinite(float(later.v_r.sum()))
    # The payoffs of this sweep are read, those of the next one are written.
    after = Payoffs.of(problem, later)
    before = Payoffs(problem, min(graph.within(first), graph.num_expanded))
    del later
    for time in range(first, -1, -1):
        count = min(graph.within(time), graph.num_expanded)
        values = room(problem, count)
        bad = solver.sweep(order[:count], after, values, horizon - time, threads, before)
        refuse_non_finite(problem, values, f"{horizon - time} steps before the end")
        if bad:
            refuse_powerless(problem, values, time, reachable_masks(graph, time)[time])
        # Out of reach a human may be without power, and whatever leads there without values.
        has_gaps = has_gaps or bool(bad)
        refuse_unknown(values, time, has_gaps, graph.within(0))
        store.put(time, values, solver.answers)
        after, before = before, after
        _log(tracker, horizon - time, store.at(time) if store.keep == "disk" else values)
        tracker.progress("backward induction", horizon - time, horizon)


def _induce_over_levels(
    solver: Solver,
    store: ValueStore,
    threads: ThreadPoolExecutor,
    tracker: Tracker,
    resume: bool,
) -> None:
    """One sweep over an acyclic world: each state after all its successors."""
    problem = solver.problem
    if resume and store.keep == "disk":
        recovered = store.recover(0, lambda values: refuse_non_finite(problem, values, "on disk"))
        if recovered is not None:
            tracker.progress("backward induction", 1, 1)
            return
    if resume:
        log.info("all levels are solved anew: only with compute.parts are some of them kept")
    levels = levels_of(problem.graph, problem.world)
    values = terminal_values(problem, problem.graph.num_states)
    after = Payoffs.of(problem, values)
    for done, level in enumerate(levels, start=1):
        bad = solver.sweep(level, after, values, 1, threads, before=after)
        refuse_non_finite(problem, values, f"{done} levels from the last states")
        if bad:
            refuse_powerless(problem, values, None, None)
        refuse_unknown(values, None, False, problem.graph.within(0))
        tracker.progress("backward induction", done, len(levels))
    store.put(0, values)


def _log(tracker: Tracker, steps_left: int, values: Values) -> None:
    """Log a level that is saved.

    The initial state is reachable at any time, if only in thought: its value shows how much is
    gained by each further step.
    """
    tracker.log(steps_left, {"exact/v_r": float(values.v_r[0])})
