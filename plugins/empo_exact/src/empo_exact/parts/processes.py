"""Parts in processes of an executor, which are replaced where they fail."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import torch.distributed as dist

from empo_core.best_effort import best_effort
from empo_core.config import ExecutorRef
from empo_core.errors import EmpoError, WorkerError
from empo_core.experiment import build
from empo_core.protocols import Executor, Needs, Payload, Reply, Send, Tracker, Worker, WorldModel
from empo_exact.graph import Start
from empo_exact.parts.peers import GoneError, Peers
from empo_exact.parts.result import Opening, PartsResult
from empo_exact.parts.solve import remove_files, shared_opening, swept_parts
from empo_exact.plugin import ExactParams
from empo_exact.setup import Assumptions
from empo_executors.frames import pickled

log = logging.getLogger("empo_exact")

JOIN_S = 300.0
"""Seconds in which all processes must have joined."""
MAX_ATTEMPTS = 20
"""How often all go on together before a solve is given up."""
MAX_RESTARTS = 5
"""Replacements of one process within a minute, or in a row without progress."""
_TICK_S = 0.2
_ANSWER, _RAISED, _GONE = b"+", b"!", b"?"

Solve = Callable[[Peers, Path, Tracker, bool], Opening]


def solve_in_processes(
    world: WorldModel,
    params: ExactParams,
    assumed: Assumptions,
    *,
    directory: Path,
    tracker: Tracker,
    resume: bool,
    seed: int,
    start: Start | None = None,
) -> PartsResult:
    """Solve a world by processes that have some of its parts each.

    Args:
        world: The world.
        params: Theory and solver parameters.
        assumed: Assumptions about the humans beyond the parameters.
        directory: A folder that all processes reach, on whatever machine they are.
        tracker: Told about progress and values.
        resume: Go on from the files that an interrupted run left.
        seed: Seeds the rollouts that ``ExactResult.save`` draws.
        start: State rows in which episodes start; None means the initial state.

    Raises:
        SolveError: as in ``solver.solve``.
        WorkerError: if processes fail too often.
    """
    compute = params.compute
    executor: Executor = build(compute.executor or ExecutorRef.model_validate("local"))

    def solve(peers: Peers, folder: Path, worker_tracker: Tracker, again: bool) -> Opening:
        with swept_parts(
            world,
            params,
            assumed,
            directory=folder,
            tracker=worker_tracker,
            resume=again,
            peers=peers,
            start=start,
        ) as (solver, done):
            return shared_opening(solver, done)

    factory = _factory(pickled(solve, f"the world {world.spec.name!r} or what is assumed"))
    is_new = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        needs = Needs(cpus=compute.workers)
        executor.start(factory, compute.processes, needs, directory / "workers", MAX_RESTARTS)
        opening = _Attempts(executor, compute.processes, directory, tracker).solve(resume)
    finally:
        with best_effort("ending the processes"):
            executor.stop()
    result = PartsResult(world, params, assumed, opening, seed)
    result.clean_up = partial(_remove, directory, is_new=is_new)
    return result


def _remove(directory: Path, *, is_new: bool) -> None:
    remove_files(directory)
    if is_new:
        with contextlib.suppress(OSError):  # There is something else in it.
            directory.rmdir()


class _Attempts:
    """Lets all processes solve together, again where one is lost meanwhile."""

    def __init__(self, executor: Executor, size: int, directory: Path, tracker: Tracker) -> None:
        self._executor = executor
        self._size = size
        self._directory = directory
        self._tracker = tracker

    def solve(self, resume: bool) -> Opening:
        for number in range(MAX_ATTEMPTS):
            meeting = self._directory.resolve() / f"meeting-{number}"
            meeting.unlink(missing_ok=True)
            answers = self._answers(
                {"meeting": str(meeting), "size": self._size, "resume": resume or number > 0}
            )
            meeting.unlink(missing_ok=True)
            for answer in answers:
                if answer[:1] == _RAISED:
                    error: EmpoError = cloudpickle.loads(memoryview(answer)[1:])
                    raise error
            if all(answer[:1] == _ANSWER for answer in answers):
                opening: Opening = cloudpickle.loads(memoryview(answers[0])[1:])
                return opening
            losses = [answer[1:].decode() for answer in answers if answer[:1] == _GONE]
            log.warning("all go on from the last values that were made safe: %s", losses[0])
        raise WorkerError(
            f"processes were lost in {MAX_ATTEMPTS} attempts; of the last: {losses[0]}"
        )

    def _answers(self, request: dict[str, str | int | bool]) -> list[bytearray]:
        """What each process answers to one request; ``_GONE`` where it is lost meanwhile."""
        self._wait_until_ready()
        waiting = set(range(self._size))
        answers = [bytearray(_GONE)] * self._size
        for worker in waiting:
            self._executor.submit(worker, json.dumps(request | {"rank": worker}).encode())
        while waiting:
            reply = self._executor.next(_TICK_S)
            if reply is None or reply.worker not in waiting:
                continue
            if reply.kind == "part":
                self._tell(reply)
                continue
            waiting.discard(reply.worker)
            if reply.kind == "raised":
                raise WorkerError(f"process {reply.worker} failed: {reply.traceback}")
            if reply.kind == "answer":
                answers[reply.worker] = reply.payload
            else:
                answers[reply.worker] = bytearray(_GONE + reply.traceback.encode())
        return answers

    def _wait_until_ready(self) -> None:
        states = self._executor.workers()
        while not all(state.state == "ready" for state in states):
            for state in states:
                if state.state == "given_up":
                    raise WorkerError(
                        f"process {state.number} was replaced {MAX_RESTARTS} times and is given "
                        f"up; the last failure: {state.last_failure}"
                    )
            self._executor.next(_TICK_S)
            states = self._executor.workers()

    def _tell(self, reply: Reply) -> None:
        message = json.loads(reply.payload)
        if "truncate" in message:
            self._tracker.truncate(message["truncate"])
        elif "value" in message:
            self._tracker.log(message["step"], {"exact/v_r": message["value"]})
        else:
            self._tracker.progress(message["task"], message["done"], message["total"])


@dataclass
class _Progress(Tracker):
    """Sends the progress of the first process to where the run is."""

    send: Send

    def progress(self, task: str, done: float, total: float) -> None:
        """Send it."""
        self.send([json.dumps({"task": task, "done": done, "total": total}).encode()])

    def truncate(self, step: int) -> None:
        """Send it."""
        self.send([json.dumps({"truncate": step}).encode()])

    def log(self, step: int, metrics: Mapping[str, object]) -> None:
        """Send it."""
        self.send([json.dumps({"step": step, "value": metrics["exact/v_r"]}).encode()])


class _PartWorker:
    """One process; see ``empo_core.protocols.Worker``."""

    def __init__(self, payload: bytes) -> None:
        self._solve: Solve = cloudpickle.loads(payload)

    def call(self, request: bytes, send: Send) -> Payload:
        """Solve together with the others."""
        order = json.loads(request)
        rank, size, meeting = order["rank"], order["size"], order["meeting"]
        tracker = _Progress(send) if rank == 0 else Tracker()
        peers = Peers(rank, size)
        try:
            _join(Path(meeting), rank, size)
            opening = self._solve(peers, Path(meeting).parent, tracker, order["resume"])
            return [_ANSWER, cloudpickle.dumps(opening)]
        except GoneError as error:
            return [_GONE, str(error).encode()]
        except EmpoError as error:
            return [_RAISED, cloudpickle.dumps(error)]
        finally:
            peers.close()
            if dist.is_initialized():
                dist.destroy_process_group()

    def load(self, blob: memoryview, version: int) -> None:
        """Nothing is broadcast."""

    def close(self) -> None:
        """There is nothing to release."""


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


def _factory(payload: bytes) -> Callable[[int, int], Worker]:
    def make(number: int, incarnation: int) -> Worker:
        return _PartWorker(payload)

    return make
