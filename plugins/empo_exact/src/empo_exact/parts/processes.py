"""Parts in processes of an executor, which are replaced where they fail."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ALL_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch.distributed as dist

from empo_core.best_effort import best_effort
from empo_core.components import build
from empo_core.config import ExecutorRef
from empo_core.errors import LostError, SolveError, WorkerError
from empo_core.protocols import Executor, Needs, Report, Tracker
from empo_exact.parts.peers import GoneError, Peers
from empo_exact.parts.solve import remove_files, shared_opening, swept_parts
from empo_exact.request import Request
from empo_exact.result import ExactResult, Opening
from empo_executors.pickles import pickled
from empo_executors.replaced_worker import ReplacedWorker

log = logging.getLogger("empo_exact")

JOIN_S = 300.0
"""Seconds in which all processes must have joined."""
MAX_ATTEMPTS = 20
"""How often all go on together before a solve is given up."""
MAX_RESTARTS = 5
"""Replacements of one process within a minute, or in a row without progress."""
_TICK_S = 0.2

Solve = Callable[[Peers, Path, Tracker, bool], Opening]


def solve_in_processes(request: Request, peers: Peers | None = None) -> ExactResult:
    """Solve a world by processes that have some of its parts each.

    Args:
        request: What is asked for; all processes reach its directory, on whatever machine they are.
        peers: Processes that solve together already; there must be no others than this one.

    Raises:
        SolveError: as in ``empo_exact.solve.solve``.
        WorkerError: if processes fail too often.
    """
    world, compute, directory = request.world, request.params.compute, request.directory
    if peers is not None and peers.size > 1:
        raise SolveError("several processes solve this together: set compute.processes to 1")
    if directory is None:
        raise SolveError("processes need a directory that all of them reach; there is none")
    executor: Executor = build(compute.executor or ExecutorRef.model_validate("local"))
    without = replace(request, directory=None, tracker=Tracker())

    def solve(peers: Peers, folder: Path, worker_tracker: Tracker, again: bool) -> Opening:
        here = replace(without, directory=folder, tracker=worker_tracker, resume=again)
        with swept_parts(here, peers) as (sweeps, done):
            return shared_opening(sweeps, done)

    payload = pickled(solve, f"the world {world.spec.name!r} or what is assumed")
    make, needs = partial(_PartWorker, payload), Needs(cpus=compute.workers)
    slots = [ReplacedWorker(executor, make, MAX_RESTARTS, needs) for _ in range(compute.processes)]
    is_new = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        opening = _Attempts(slots, directory, request.tracker).solve(request.resume)
    finally:
        with best_effort("ending the processes"):
            executor.shutdown()
    result = ExactResult.of_opening(request, opening)
    result.clean_up = partial(_remove, directory, is_new=is_new)
    return result


def _remove(directory: Path, *, is_new: bool) -> None:
    remove_files(directory)
    if is_new:
        with contextlib.suppress(OSError):  # There is something else in it.
            directory.rmdir()


class _Attempts:
    """Lets all processes solve together, again where one is lost meanwhile."""

    def __init__(self, slots: list[ReplacedWorker], directory: Path, tracker: Tracker) -> None:
        self._slots, self._directory, self._tracker = slots, directory, tracker
        self._news: queue.SimpleQueue[tuple[str, tuple[Any, ...]]] = queue.SimpleQueue()
        """Calls of the tracker that the first process reports."""

    def solve(self, resume: bool) -> Opening:
        for number in range(MAX_ATTEMPTS):
            meeting = self._directory.resolve() / f"meeting-{number}"
            meeting.unlink(missing_ok=True)
            answers = self._answers(meeting, resume or number > 0)
            meeting.unlink(missing_ok=True)
            errors = [answer.exception() for answer in answers]
            losses = [error for error in errors if isinstance(error, LostError | GoneError)]
            for rank, error in enumerate(errors):
                if type(error) is WorkerError:
                    raise WorkerError(f"process {rank} failed: {error}") from error
                if error is not None and error not in losses:
                    raise error
            if not losses:
                opening: Opening = answers[0].result()
                return opening
            log.warning("all go on from the last values that were made safe: %s", losses[0])
        raise WorkerError(
            f"processes were lost in {MAX_ATTEMPTS} attempts; of the last: {losses[0]}"
        )

    def _answers(self, meeting: Path, resume: bool) -> list[Future[Opening]]:
        """What each process answers to one call."""
        self._wait_until_running()
        size = len(self._slots)
        answers = [
            slot.call(
                "solve", rank, size, str(meeting), resume,
                on_report=partial(self._note, slot) if rank == 0 else None,
            )
            for rank, slot in enumerate(self._slots)
        ]  # fmt: skip
        while wait(answers, _TICK_S, ALL_COMPLETED).not_done:
            self._tell()
        self._tell()
        return answers

    def _wait_until_running(self) -> None:
        while sum(slot.is_running() for slot in self._slots) < len(self._slots):
            for rank, slot in enumerate(self._slots):
                if slot.given_up:
                    raise WorkerError(
                        f"process {rank} was replaced {MAX_RESTARTS} times and is given "
                        f"up; the last failure: {slot.last_failure}"
                    )
            time.sleep(_TICK_S)

    def _note(self, slot: ReplacedWorker, news: Any) -> None:
        """Thread of the executor: pass on progress."""
        slot.has_delivered = True
        self._news.put(news)

    def _tell(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                method, arguments = self._news.get_nowait()
                getattr(self._tracker, method)(*arguments)


@dataclass
class _Progress(Tracker):
    """Sends the progress of the first process to where the run is."""

    report: Report

    def progress(self, task: str, done: float, total: float) -> None:
        """Send it."""
        self.report(("progress", (task, done, total)))

    def truncate(self, step: int) -> None:
        """Send it."""
        self.report(("truncate", (step,)))

    def log(self, step: int, metrics: Mapping[str, object]) -> None:
        """Send it."""
        self.report(("log", (step, {"exact/v_r": metrics["exact/v_r"]})))


class _PartWorker:
    """One process, on the worker of an executor."""

    def __init__(self, payload: bytes) -> None:
        self._solve: Solve = cloudpickle.loads(payload)

    def solve(self, *call: Any) -> Opening:
        """Solve together with the others; the first process has a ``Report`` in front.

        Raises:
            GoneError: if another process is lost.
        """
        *reports, rank, size, meeting, resume = call
        tracker = _Progress(reports[0]) if reports else Tracker()
        peers = Peers(rank, size)
        try:
            _join(Path(meeting), rank, size)
            return self._solve(peers, Path(meeting).parent, tracker, resume)
        finally:
            peers.close()
            if dist.is_initialized():
                dist.destroy_process_group()


def _join(meeting: Path, rank: int, size: int) -> None:
    """Become one of the processes that meet in a file.

    Raises:
        GoneError: if not all of them came.
    """
    try:
        store = dist.FileStore(str(meeting), size)  # type: ignore[attr-defined]
        store.set_timeout(timedelta(seconds=JOIN_S))
        # Afterwards no limit: one may have much more to do than another, and the executor
        # replaces those that hang.
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=size, timeout=timedelta(days=7)
        )
        dist.barrier()
    except RuntimeError as error:
        raise GoneError(f"not all processes came together: {error}") from error
    finally:
        # It is not needed any more, and where the disk is full torch would end the process when
        # it writes into it a last time.
        meeting.unlink(missing_ok=True)
