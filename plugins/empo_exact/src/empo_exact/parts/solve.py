"""Solving a world in parts: its states, their transitions, then backward induction."""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64, Shaped

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.runs.atomic import make_folder
from empo_core.runs.files import refuse_gone
from empo_exact import ram
from empo_exact.assumptions import Assumptions
from empo_exact.expansion import Expand, expander
from empo_exact.exploration_progress import exploring
from empo_exact.graph import build_graph, starts_of
from empo_exact.induction import induce
from empo_exact.parts.builder import PartBuilder, complete_halos
from empo_exact.parts.commits import Commits
from empo_exact.parts.exploration import divide, find_states, rank_of
from empo_exact.parts.first_step import opening, share_of_opening
from empo_exact.parts.merge import Merger
from empo_exact.parts.partition import Partition, first_words, key_order
from empo_exact.parts.peers import Peers
from empo_exact.parts.ram import (
    check_merge,
    check_share,
    check_spill,
    parts_needed,
    return_freed,
)
from empo_exact.parts.store import FileStore, MemoryStore, PartStore
from empo_exact.parts.sweeps import Parts, PartSweeps
from empo_exact.parts.territory import hand_over
from empo_exact.plugin import ExactParams
from empo_exact.problem import pose
from empo_exact.ram import Sizes
from empo_exact.request import Request
from empo_exact.result import ExactResult, Opening
from empo_exact.storage import problem_digest
from empo_exact.terminal_states import warning_at
from empo_exact.values import ValueStore

log = logging.getLogger("empo_exact")

FOLDER = "parts"
"""Folder of what is kept meanwhile, in the directory of a solve's values."""


def build_parts(
    request: Request,
    store: PartStore,
    peers: Peers,
    expand: Expand,
    start: Shaped[np.ndarray, "start word"],
) -> Parts:
    """Find all states, cut them into parts, and work out each part's transitions.

    Raises:
        SolveError: if there are too many states, or probabilities do not sum to 1.
        StorageError: if the disk refuses.
        WorkerError: if another process is gone.
    """
    world, params, tracker = request.world, request.params, request.tracker
    compute = params.compute
    with exploring(world, params, tracker) as progress:
        words = first_words(world, compute.max_states)
        discovered = find_states(
            world, expand, words, compute.max_states, store, peers, progress, start
        )
    sizes = Sizes(
        world.spec, np.array(discovered.layers), discovered.layers[-2], discovered.transitions
    )
    partition = divide(discovered, words, _count(sizes, store, params, peers), peers)
    territory = hand_over(discovered, partition, store, peers, world.spec.num_joint_actions)
    del discovered
    builder = PartBuilder(world, territory, store)
    for done, part in enumerate(territory.parts):
        tracker.progress("transitions of parts", done, len(territory.parts))
        builder.build(part)
    tracker.progress("transitions of parts", 1, 1)
    complete_halos(territory, store, peers)
    store.flush()
    codes = builder.codes.rows.copy()
    part_numbers = np.arange(partition.count, dtype=np.int32)
    return Parts(
        world=world,
        numbers=territory.parts,
        ranks=rank_of(part_numbers, partition.count, peers.size),
        codes=codes,
        store=store,
        peers=peers,
        starts=_places(start, partition),
        sizes=sizes,
        warning=_warning(world, params, peers.all(builder.terminal), codes),
        layout=partition.layout(peers.size),
    )


def _places(
    start: Shaped[np.ndarray, "start word"], partition: Partition
) -> Int64[np.ndarray, "start 2"]:
    """The part of each start, and its number there: starts come first in parts, by key."""
    owner, order = partition.owners(start), key_order(start, partition.words)
    places = np.empty((len(start), 2), np.int64)
    for part in np.unique(owner):
        mine = order[owner[order] == part]
        places[mine] = np.stack([np.full(len(mine), part), np.arange(len(mine))], 1)
    return places


def _count(sizes: Sizes, store: PartStore, params: ExactParams, peers: Peers) -> int:
    """Number of parts, of all processes."""
    count = params.compute.parts or peers.size
    if isinstance(store, FileStore):
        check_spill(sizes, store.directory)
        # Each process has its own idea of how much RAM is free.
        count = params.compute.parts or max(peers.all(parts_needed(sizes, params)))
    count = max(count, peers.size)
    if not isinstance(store, FileStore):
        check_share(sizes, params, count, peers.size)
    return count


def _warning(
    world: WorldModel,
    params: ExactParams,
    candidates: Sequence[tuple[int, Shaped[np.ndarray, " word"]] | None],
    codes: Float64[np.ndarray, "code 2"],
) -> str:
    """A warning of the first terminal state, by depth, if there must be one."""
    ends = [end for end in candidates if end is not None]
    if not ends:
        return ""
    depth, row = min(ends, key=lambda end: end[0])
    durations = float(codes[:, 1].min(initial=1)), float(codes[:, 1].max(initial=1))
    warning = warning_at(world, row, depth, durations, params) or ""
    if warning:
        log.warning("%s", warning)
    return warning


def solve_in_parts(request: Request, peers: Peers | None = None) -> ExactResult:
    """Solve a world whose graph is cut into parts; see ``empo_exact.solve.solve``.

    Args:
        request: What is asked for; its directory keeps files until the result is saved.
        peers: All processes, with a common directory; None: this one alone.

    Raises:
        SolveError: as in ``empo_exact.solve.solve``.
        StorageError: if the disk refuses, or has files of another problem.
        WorkerError: if another process is gone.
    """
    peers, directory = peers or Peers(), request.directory
    if directory is not None:  # Once: a folder that is removed meanwhile must not come back.
        refuse_gone(directory)
        make_folder(directory)
    with swept_parts(request, peers) as (sweeps, done):
        result = _result(request, sweeps, done)
    if directory is not None and peers.rank == 0:
        result.clean_up = partial(remove_files, directory)
    return result


def _result(request: Request, sweeps: PartSweeps, done: int) -> ExactResult:
    """The result of this process after the last sweep."""
    if not sweeps.keeps_all:
        return ExactResult.of_opening(request, shared_opening(sweeps, done))
    params, merger = sweeps.params, Merger(sweeps.parts)
    problem = pose(request.world, merger.graph(), request.params, request.assumed)
    digest = problem_digest(problem.world, [problem], params) if params.keep == "disk" else ""
    store = ValueStore(params.keep, request.directory, digest)
    merger.fill(store, done)
    return ExactResult(problem, store, params, sweeps.seconds, request.seed)


def remove_files(directory: Path) -> None:
    """Remove the files of a solve in parts; all its processes have ended, or need none of them."""
    FileStore(directory / FOLDER, "").remove()


def shared_opening(sweeps: PartSweeps, done: int) -> Opening:
    """The first step after the last sweep, in all processes."""
    if done > 1:
        sweeps.offer(done - 1)
    shares = sweeps.parts.peers.all(share_of_opening(sweeps, done))
    return opening(sweeps, [share for of_rank in shares for share in of_rank])


@contextmanager
def swept_parts(request: Request, peers: Peers) -> Iterator[tuple[PartSweeps, int]]:
    """Parts with the values of all states, and how many sweeps they took.

    Files stay, so that the solve can be resumed until its result is saved; ``remove_files`` removes
    them. See ``solve_in_parts`` for errors.
    """
    world, params, directory = request.world, request.params, request.directory
    starts = starts_of(world, request.start)
    begin, files, spills = clock.perf_counter(), None, params.compute.graph == "spill"
    if spills:
        return_freed()
    if directory is not None:
        files = FileStore(directory / FOLDER, _identity(world, params, request.assumed, starts))
        if peers.rank == 0:
            files.claim()
        peers.all(None)
        files.claim()
    elif spills:
        raise SolveError("graph: spill needs a directory for its files, and there is none")
    store = files if files and spills else MemoryStore()
    commits = Commits(files, peers, params.compute.checkpoint_s) if files else None
    compute = params.compute
    executor = compute.executor if compute.processes == 1 else None  # Which runs this process.
    with (
        closing(files) if files else nullcontext(),
        expander(world, compute.workers, compute.start_method, executor) as expand,
        ThreadPoolExecutor(compute.workers) as threads,
    ):
        parts = (
            commits.recover_parts(world, expand) if commits and request.resume and spills else None
        )
        if parts is None:
            parts = build_parts(request, store, peers, expand, starts)
            if commits and spills:
                commits.keep_parts(parts)
        sweeps = PartSweeps(parts, _with_keep(parts, params), request.assumed)
        sweeps.seconds.graph = clock.perf_counter() - begin
        sweeps.commits = commits
        done = commits.recover(sweeps) if commits and request.resume else 0
        done = induce(sweeps, done, threads, request.tracker, resume=request.resume)
        sweeps.seconds.total = clock.perf_counter() - begin
        yield sweeps, done
    peers.all(None)  # Others may still read.
    if files and peers.rank == 0:
        files.mark_solved()


def _with_keep(parts: Parts, params: ExactParams) -> ExactParams:
    """The parameters with ``keep: auto`` as what it means for this graph."""
    if params.keep == "auto" and parts.peers.size > 1:
        return params.model_copy(update={"keep": "none"})
    params = ram.resolved(parts.sizes, params)
    if params.keep in ("all", "disk"):
        check_merge(parts.sizes, params)
    return params


def _identity(
    world: WorldModel,
    params: ExactParams,
    assumed: Assumptions,
    start: Shaped[np.ndarray, "start word"],
) -> str:
    """Identifies a problem, so that files are not taken for another's.

    The graph is not known yet; its first step, and what is assumed there, tell most others.
    """
    first = pose(world, build_graph(world, 1, start=start), params, assumed)
    return problem_digest(world, [first], params)
