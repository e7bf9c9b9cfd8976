"""The executor ``local``: supervised processes of this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from empo_core.errors import WorkerError
from empo_core.protocols.executors import Needs
from empo_executors.pickles import pickled
from empo_executors.plugin import LocalParams
from empo_executors.supervised_process import KILL_S, process_context
from empo_executors.worker_process import WorkerProcess

_STOP_SHARE = 0.3
"""Part of the time of ``shutdown`` in which workers may end by themselves."""
_WATCH_S = 0.1
"""Time between two looks at the workers."""


class LocalExecutor:
    """Workers in processes of this machine; see ``empo_core.protocols.Executor``."""

    def __init__(self, params: LocalParams) -> None:
        self._params = params
        method = params.start_method
        try:
            self._context = process_context(
                None if method == "auto" else method, ["empo_executors.worker_main"]
            )
        except ValueError as error:
            raise WorkerError(f"{error} on this system; use 'auto'") from error
        self._workers: list[WorkerProcess] = []
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None

    def start(self, make: Callable[[], object], needs: Needs) -> int:
        """Start a process that builds a worker.

        Raises:
            WorkerError: if ``make`` cannot be sent, the system refuses a process, or a label is
                needed, for this machine has none.
        """
        if self._over.is_set():
            raise WorkerError("this executor was shut down; make a new one")
        if needs.labels:
            raise WorkerError(
                f"workers need a node with {dict(needs.labels)}; the executor 'local' has one "
                "node and no labels. Leave them out, or choose an executor for clusters."
            )
        factory, number = pickled(make, "the worker factory"), len(self._workers)
        try:
            beat_s = self._params.heartbeat_s / 4
            worker = WorkerProcess(self._context, f"worker {number}", factory, min(beat_s, 1.0))
        except OSError as error:
            raise WorkerError(
                f"worker {number} cannot be started: {error}. Choose fewer workers, or raise what "
                "the system allows (ulimit)."
            ) from error
        self._workers.append(worker)
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="workers", daemon=True)
            self._watcher.start()
        return number

    def call(
        self,
        worker: int,
        method: str,
        *arguments: object,
        on_report: Callable[[object], None] | None = None,
    ) -> Future[Any]:
        """Call a method of a worker; see ``Executor.call``."""
        return self._workers[worker].call(method, arguments, on_report)

    def kill(self, worker: int, reason: str) -> None:
        """End a worker by force."""
        self._workers[worker].kill(reason)

    def shutdown(self, timeout_s: float = 5.0) -> None:
        """End all workers, by force where they do not end by themselves."""
        self._over.set()
        deadline = time.monotonic() + timeout_s * _STOP_SHARE
        workers = self._workers
        for worker in workers:
            worker.request_stop()
        for worker in workers:
            worker.join(deadline)
        for worker in workers:  # All are killed before the first is waited for.
            worker.kill("was stopped")
        for worker in workers:
            worker.join(time.monotonic() + KILL_S)
            worker.lose_calls()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join()

    def _watch(self) -> None:
        """Thread: end workers that show no sign of life."""
        while not self._over.wait(_WATCH_S):
            for worker in list(self._workers):
                worker.watch(self._params.start_timeout_s, self._params.heartbeat_s)
