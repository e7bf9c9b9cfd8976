"""The executor ``local``: supervised processes of this machine."""

from __future__ import annotations

import contextlib
import queue
import shutil
import time
from pathlib import Path

from empo_core.errors import WorkerError
from empo_core.protocols.executors import Needs, WorkerFactory
from empo_executors.blobs import BlobWriter
from empo_executors.cells import Cell
from empo_executors.frames import Frame, pickled
from empo_executors.owned_folder import owned_folder
from empo_executors.plugin import LocalParams
from empo_executors.start_deadline import StartDeadline
from empo_executors.supervised_executor import SupervisedExecutor
from empo_executors.supervised_process import process_context
from empo_executors.supervision import Limits
from empo_executors.worker_process import Launch, WorkerProcess

_STOP_SHARE = 0.3
"""Part of the time to stop in which workers may end by themselves."""
_PREFIX = "workers-"
_WORKER_MODULE = "empo_executors.worker_main"


class LocalExecutor(SupervisedExecutor["_Processes"]):
    """Workers in processes of this machine; see ``empo_core.protocols.Executor``."""

    def __init__(self, params: LocalParams) -> None:
        super().__init__(_limits(params))
        self._params = params

    def start(
        self, make: WorkerFactory, workers: int, needs: Needs, directory: Path, max_restarts: int
    ) -> None:
        """Build the workers; each is waited for, one that hangs no longer than the others take.

        Raises:
            WorkerError: A worker cannot be built, or the factory cannot be sent.
            StorageError: The disk refuses the few files that this needs.
        """
        self._check_stopped()
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
        made_parent = not directory.exists()
        launch = Launch(context, owned_folder(directory, _PREFIX), factory, queue.SimpleQueue())
        self._backend = _Processes(launch, made_parent)
        deadline = StartDeadline()
        try:
            self._await_workers(
                self._backend, workers, max_restarts,
                lambda states: deadline.is_over(sum(state.state == "ready" for state in states)),
            )  # fmt: skip
        except BaseException:
            self.stop()
            raise


class _Processes:
    """The processes of workers and the folder that they share."""

    def __init__(self, launch: Launch, made_parent: bool) -> None:
        """Begin without a process.

        Args:
            launch: What the processes have in common.
            made_parent: Whether the folder around theirs is to be removed, too.
        """
        self._launch = launch
        self._made_parent = made_parent
        self._begun: dict[int, WorkerProcess] = {}
        self._blobs = BlobWriter(launch.directory)

    def begin(self, number: int, incarnation: int, version: int) -> WorkerProcess:
        """Start a process; raises OSError where the system refuses."""
        process = WorkerProcess(self._launch, number, incarnation)
        process.cells[Cell.VERSION] = version
        self._begun[number] = process
        return process

    def receive(self, timeout_s: float) -> tuple[WorkerProcess, Frame | None] | None:
        """The next frame, or the end of a process."""
        try:
            return self._launch.arrivals.get(timeout_s > 0, timeout_s)
        except queue.Empty:
            return None

    def broadcast(self, blob: bytes, version: int) -> None:
        """Write the blob once and show its version to all workers.

        Raises:
            StorageError: The disk refuses.
        """
        self._blobs.write(blob, version)
        for process in self._running:
            process.cells[Cell.VERSION] = version

    def failure(self) -> str:
        """This machine does not fail."""
        return ""

    def end(self, timeout_s: float) -> None:
        """End all processes, and remove the folder."""
        processes = self._running
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
            shutil.rmtree(self._launch.directory, ignore_errors=True)
            if self._made_parent:
                with contextlib.suppress(OSError):  # Others keep something there.
                    self._launch.directory.parent.rmdir()

    @property
    def _running(self) -> list[WorkerProcess]:
        """The processes that have not been closed."""
        return [process for process in self._begun.values() if not process.closed]


def _limits(params: LocalParams) -> Limits:
    return Limits(
        start_timeout_s=params.start_timeout_s,
        unavailable_s=params.heartbeat_s / 2,
        dead_s=params.heartbeat_s,
        silence="heartbeat_s",
        in_flight=params.in_flight,
    )
