"""The executor ``local``: supervised processes of this machine."""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import psutil

from empo_core.errors import StorageError, WorkerError
from empo_core.protocols.executors import (
    Account,
    Needs,
    Reply,
    WorkerFactory,
    WorkerState,
)
from empo_executors.blobs import BlobWriter
from empo_executors.cells import Cell
from empo_executors.frames import Frame, Kind, pickled
from empo_executors.plugin import LocalParams
from empo_executors.restart_budget import RestartBudget
from empo_executors.start_deadline import StartDeadline
from empo_executors.supervised_process import process_context
from empo_executors.worker_process import Launch, WorkerProcess

_TICK_S = 0.02
"""The longest wait between two looks at the workers."""
_LOOK_S = 0.005
"""The shortest time between two looks, where replies are plenty."""
_STOP_SHARE = 0.3
"""Part of the time to stop in which workers may end by themselves."""
_PREFIX = "workers-"
_WORKER_MODULE = "empo_executors.worker_main"


class LocalExecutor:
    """Workers in processes of this machine; see ``empo_core.protocols.Executor``."""

    def __init__(self, params: LocalParams) -> None:
        self._params = params
        self._launch: Launch | None = None
        self._handles: list[_Handle] = []
        self._replies: deque[Reply] = deque()
        self._accounts: list[Account] = []
        # So that another thread may stop what this one is waiting for.
        self._lock = threading.RLock()
        self._looked = 0.0
        self._version = 0
        self._launched = self._made_parent = False

    def start(
        self, make: WorkerFactory, workers: int, needs: Needs, directory: Path, max_restarts: int
    ) -> None:
        """Build the workers; each is waited for, one that hangs no longer than the others take.

        Raises:
            WorkerError: A worker cannot be built, or the factory cannot be sent.
            StorageError: The disk refuses the few files that this needs.
        """
        if self._launch is not None:
            raise WorkerError("this executor runs already; stop it before starting it again")
        if needs.labels:
            raise WorkerError(
                f"workers need a node with {dict(needs.labels)}; the executor 'local' has one "
                "node and no labels. Leave them out, or choose an executor for clusters."
            )
        method = self._params.start_method
        try:
            context = process_context(None if method == "auto" else method, [_WORKER_MODULE])
        except ValueError as error:
            raise WorkerError(f"{error} on this system; use 'auto'") from error
        factory = pickled(make, "the worker factory")
        self._made_parent = not directory.exists()
        self._launch = Launch(context, _folder(directory), factory, queue.SimpleQueue())
        self._blobs = BlobWriter(self._launch.directory)
        self._handles = [_Handle(number, RestartBudget(max_restarts)) for number in range(workers)]
        self._replies.clear()
        self._accounts, self._version, self._launched = [], 0, False
        try:
            self._await_workers()
        except BaseException:
            self.stop()
            raise
        self._launched = True

    def submit(self, worker: int, request: bytes) -> int:
        """Send a request; see ``Executor.submit``."""
        if not request:
            raise WorkerError("a request must not be empty")
        with self._lock:
            return self._submit(worker, request)

    def _submit(self, worker: int, request: bytes) -> int:
        process = self._handles[worker].process if worker < len(self._handles) else None
        if process is None:
            raise WorkerError(f"worker {worker} has no process at the moment; see workers()")
        if len(process.calls) >= self._params.in_flight:
            raise WorkerError(
                f"worker {worker} has {len(process.calls)} calls in flight (in_flight); take a "
                "reply first"
            )
        return process.submit(request)

    def next(self, timeout_s: float | None) -> Reply | None:
        """The next reply; watches and replaces workers meanwhile."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = _TICK_S if deadline is None else deadline - time.monotonic()
            with self._lock:
                if self._launch is not None and time.monotonic() - self._looked >= _LOOK_S:
                    self._look()
                if self._replies:
                    return self._replies.popleft()
                if self._launch is None or all(handle.finished for handle in self._handles):
                    return None
                received = self._receive(min(_TICK_S, left))
            if not received and left <= 0:
                return None

    def broadcast(self, blob: bytes, version: int) -> None:
        """Write the blob once and show its version to all workers.

        Raises:
            WorkerError: The version is not newer than the last.
            StorageError: The disk refuses.
        """
        if self._launch is None or version <= self._version:
            raise WorkerError(
                f"broadcast {version} is not newer than {self._version}, or nothing is running"
            )
        self._blobs.write(blob, version)
        self._version = version
        for handle in self._handles:
            if handle.process is not None:
                handle.process.cells[Cell.VERSION] = version

    def replace(self, worker: int, reason: str) -> None:
        """Kill the present process of a worker, which fails for this reason."""
        process = self._handles[worker].process
        if process is not None:
            process.fail(reason)

    def workers(self) -> Sequence[WorkerState]:
        """The state of every worker."""
        with self._lock:
            return [handle.state(self._params) for handle in self._handles]

    def account(self) -> Sequence[Account]:
        """The numbers of every incarnation so far."""
        for handle in self._handles:
            if handle.process is not None:
                handle.process.count_sent()
        return list(self._accounts)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End all workers; those that do not end by themselves are killed."""
        with self._lock:
            launch, self._launch = self._launch, None
            if launch is not None:
                self._end_all(launch, timeout_s)

    def _end_all(self, launch: Launch, timeout_s: float) -> None:
        processes = [handle.process for handle in self._handles if handle.process is not None]
        try:
            for process in processes:
                process.request_stop()
            deadline = time.monotonic() + timeout_s * _STOP_SHARE
            for process in processes:
                process.join(deadline - time.monotonic())
        finally:
            # All are killed before the first is waited for.
            for process in processes:
                process.kill()
            for process in processes:
                process.close()
            shutil.rmtree(launch.directory, ignore_errors=True)
            if self._made_parent:
                with contextlib.suppress(OSError):  # Others keep something there.
                    launch.directory.parent.rmdir()
        with contextlib.suppress(queue.Empty):
            while True:
                self._take(*launch.arrivals.get_nowait())
        for process in processes:
            self._replies += process.lost("it was stopped")
        for handle in self._handles:
            handle.process, handle.budget.given_up = None, True

    def _await_workers(self) -> None:
        """Start all workers and wait until they are ready, the slow ones for a while only."""
        deadline = StartDeadline()
        while True:
            self._look()
            self._receive(_TICK_S)
            states = [handle.state(self._params).state for handle in self._handles]
            settled = all(state in ("ready", "unavailable", "given_up") for state in states)
            if settled or deadline.is_over(states.count("ready")):
                break
        if all(handle.budget.given_up for handle in self._handles):
            failure = self._handles[0].budget.last_failure
            raise WorkerError(f"no worker can be started; the last failure: {failure}")

    def _look(self) -> None:
        """Start processes that are due, and end those that hang."""
        self._looked = time.monotonic()
        for handle in self._handles:
            process = handle.process
            if process is None:
                if handle.budget.due:
                    self._begin(handle)
            elif process.overdue():
                self._end(handle)
            elif not process.ready:
                limit = self._params.start_timeout_s
                if handle.age_s() > limit:
                    process.fail(f"was not ready for {limit:g} s (start_timeout_s) and was killed")
            elif process.silence_s() > self._params.heartbeat_s:
                process.fail(
                    f"showed no sign of life for {self._params.heartbeat_s:g} s (heartbeat_s of "
                    "its executor) and was killed"
                )

    def _receive(self, timeout_s: float) -> bool:
        """Deal with the next frame or end of a process; False where none came in time."""
        if self._launch is None:
            return False
        try:
            process, frame = self._launch.arrivals.get(timeout_s > 0, max(timeout_s, 0.0))
        except queue.Empty:
            return False
        handle = self._handles[process.number]
        if frame is not None:
            self._take(process, frame)
        elif handle.process is process:
            self._end(handle)
        return True

    def _take(self, process: WorkerProcess, frame: Frame | None) -> None:
        """Turn a frame into a reply."""
        if frame is None or self._handles[process.number].process is not process:
            return  # It was ended without waiting for its last frames, and its calls are lost.
        if frame.kind is Kind.READY:
            process.ready = True
        elif frame.kind is not Kind.FAILED:
            self._replies.append(process.reply(frame))

    def _begin(self, handle: _Handle) -> None:
        assert self._launch is not None
        try:
            handle.begin(self._launch)
        except OSError as error:
            reason = f"worker {handle.number} of {len(self._handles)} cannot be started: {error}"
            if not self._launched:
                raise WorkerError(
                    f"{reason}. Choose fewer, or raise what the system allows (ulimit)."
                ) from error
            handle.budget.fail(reason, fruitful=False)
            return
        assert handle.process is not None
        handle.process.cells[Cell.VERSION] = self._version
        self._accounts.append(handle.process.account)

    def _end(self, handle: _Handle) -> None:
        """Bury a process that has ended or is given up, and plan another."""
        process = handle.process
        assert process is not None
        reason = process.obituary()
        process.close()
        handle.process = None
        self._replies += process.lost(reason)
        if not (self._launched or process.ready) and process.raised:
            raise WorkerError(f"a worker cannot be built: {reason}")
        handle.budget.fail(reason, fruitful=process.fruitful)


class _Handle:
    """One worker, whichever process it is at the moment."""

    def __init__(self, number: int, budget: RestartBudget) -> None:
        self.number = number
        self.budget = budget
        self.process: WorkerProcess | None = None
        self._incarnation = -1
        self._begun = 0.0

    @property
    def finished(self) -> bool:
        """True where it has no process and gets no other."""
        return self.process is None and self.budget.given_up

    def begin(self, launch: Launch) -> None:
        """Start the next process; raises OSError where the system refuses."""
        self._incarnation += 1
        self._begun = time.monotonic()
        self.process = WorkerProcess(launch, self.number, self._incarnation)

    def age_s(self) -> float:
        """Seconds since its process was started."""
        return time.monotonic() - self._begun

    def state(self, params: LocalParams) -> WorkerState:
        """The worker at this moment."""
        process, state = self.process, self._state(params)
        return WorkerState(
            number=self.number,
            incarnation=max(0, self._incarnation),
            node=platform.node(),
            pid=None if process is None else process.pid,
            state=state,
            version=0 if process is None else process.version,
            in_flight=0 if process is None else len(process.calls),
            last_failure=self.budget.last_failure,
        )

    def _state(
        self, params: LocalParams
    ) -> Literal["starting", "ready", "unavailable", "dead", "given_up"]:
        if self.process is None:
            return "given_up" if self.budget.given_up else "dead"
        if self.process.trouble:
            return "dead"
        if not self.process.ready:
            return "starting"
        return "unavailable" if self.process.silence_s() > params.heartbeat_s / 2 else "ready"


def _folder(directory: Path) -> Path:
    """A folder for cells and broadcasts; those of callers that were killed are removed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob(f"{_PREFIX}*"):
            pid = old.name.removeprefix(_PREFIX).split("-")[0]
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(old, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=directory))
    except OSError as error:
        raise StorageError(
            f"{directory}: the files that workers need cannot be made there: {error}"
        ) from error
