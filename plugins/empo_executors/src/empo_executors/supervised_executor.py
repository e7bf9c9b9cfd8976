"""Common part of executors whose workers are watched by a ``Supervision``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol

from typing_extensions import TypeVar

from empo_core.errors import WorkerError
from empo_core.protocols.executors import (
    Account,
    Needs,
    Reply,
    WorkerFactory,
    WorkerState,
)
from empo_executors.supervision import Backend, Limits, Supervision


class StoppableBackend(Backend, Protocol):
    """A backend between the ``start`` and the ``stop`` of its executor."""

    def broadcast(self, blob: bytes, version: int) -> None:
        """Let all workers load this, before they answer what is submitted from now on.

        Raises:
            StorageError: The disk refuses.
        """

    def end(self, timeout_s: float) -> None:
        """End all workers, by force where they do not by themselves; release everything."""


BackendT = TypeVar("BackendT", bound=StoppableBackend)


class SupervisedExecutor(ABC, Generic[BackendT]):
    """An executor but for the way it starts; see ``empo_core.protocols.Executor``."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._backend: BackendT | None = None
        self._supervision = Supervision(None, 0, limits, 0)

    @abstractmethod
    def start(
        self, make: WorkerFactory, workers: int, needs: Needs, directory: Path, max_restarts: int
    ) -> None:
        """Build the workers; see ``Executor.start``."""

    def submit(self, worker: int, request: bytes) -> int:
        """Send a request; see ``Executor.submit``."""
        return self._supervision.submit(worker, request)

    def next(self, timeout_s: float | None) -> Reply | None:
        """The next reply; watches and replaces workers meanwhile."""
        return self._supervision.next(timeout_s)

    def broadcast(self, blob: bytes, version: int) -> None:
        """Show a blob to all workers; the newest two are kept.

        Raises:
            WorkerError: The version is not newer than the last, or nothing is running.
            StorageError: The disk refuses.
        """
        self._supervision.check_newer(version)
        assert self._backend is not None
        self._backend.broadcast(blob, version)
        self._supervision.version = version

    def replace(self, worker: int, reason: str) -> None:
        """End the present incarnation of a worker, which fails for this reason."""
        self._supervision.replace(worker, reason)

    def workers(self) -> Sequence[WorkerState]:
        """The state of every worker; without a place one counts as dead."""
        return self._supervision.states()

    def account(self) -> Sequence[Account]:
        """The numbers of every incarnation so far."""
        return self._supervision.accounts()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End all workers; those that do not end by themselves are killed."""
        with self._supervision.lock:
            backend, self._backend = self._backend, None
            if backend is not None:
                self._supervision.stopped = True
                backend.end(timeout_s)
                self._supervision.bury()

    def _check_stopped(self) -> None:
        """Raise where it runs already."""
        if self._backend is not None:
            raise WorkerError("this executor runs already; stop it before starting it again")

    def _await_workers(
        self,
        backend: BackendT,
        workers: int,
        max_restarts: int,
        is_over: Callable[[Sequence[WorkerState]], bool],
    ) -> None:
        """Start workers on a backend; see ``Supervision.await_workers``."""
        self._supervision = Supervision(backend, workers, self._limits, max_restarts)
        self._supervision.await_workers(is_over)


__all__ = ["StoppableBackend", "SupervisedExecutor"]
