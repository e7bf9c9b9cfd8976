"""A worker that is replaced whenever it ends, within a budget."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from empo_core.errors import LostError, WorkerError
from empo_core.protocols.executors import Executor, Needs

log = logging.getLogger("empo_executors")
WINDOW_S = 60.0
"""Failures longer ago than this are forgiven if the worker has delivered something since."""
_BACK_OFF_S = 0.05
_LONGEST_BACK_OFF_S = 1.0


class ReplacedWorker:
    """One process after the other of an executor; the caller polls ``is_running``.

    Attributes:
        incarnation: Number of replacements; -1 before the first process.
        last_failure: Why the last process ended; empty if none has.
        given_up: True if the worker is not replaced any more.
        has_delivered: Set by the caller once the present process has brought anything of use.
    """

    def __init__(
        self,
        executor: Executor,
        make: Callable[[], object],
        max_restarts: int,
        needs: Needs | None = None,
    ) -> None:
        """Begin without a process.

        Args:
            executor: Starts the processes.
            make: Builds the worker.
            max_restarts: Replacements within ``WINDOW_S``, or in a row without a delivery.
            needs: Resources of the process.
        """
        self.incarnation = -1
        self.last_failure = ""
        self.given_up = self.has_delivered = False
        self._executor, self._make, self._needs = executor, make, needs or Needs()
        self._max_restarts = max_restarts
        self._failures: list[float] = []
        self._due = 0.0
        self._worker: int | None = None
        self._end = 0, ""
        """Incarnation that ended by itself, and how."""

    def is_running(self) -> bool:
        """True if there is a process; starts one if it is due.

        Raises:
            WorkerError: if the first process cannot be started.
        """
        incarnation, reason = self._end
        if self._worker is not None and reason and incarnation == self.incarnation:
            self._fail(reason)
        if self._worker is None and not self.given_up and time.monotonic() >= self._due:
            self.incarnation += 1
            self.has_delivered = False
            try:
                self._worker = self._executor.start(self._make, self._needs)
            except WorkerError as error:
                if self.incarnation == 0:
                    raise
                self._fail(str(error))
        return self._worker is not None

    def call(
        self,
        method: str,
        *arguments: object,
        on_report: Callable[[object], None] | None = None,
    ) -> Future[Any]:
        """Call a method of the present process; see ``Executor.call``."""
        if self._worker is None:
            lost: Future[Any] = Future()
            lost.set_exception(LostError(self.last_failure))
            return lost
        incarnation = self.incarnation
        future = self._executor.call(self._worker, method, *arguments, on_report=on_report)

        def note(done: Future[Any]) -> None:
            error = done.exception()
            if isinstance(error, LostError):
                self._end = incarnation, str(error)

        future.add_done_callback(note)
        return future

    def replace(self, reason: str) -> None:
        """End the present process as failed; another is started when it is due."""
        if self._worker is not None:
            self._executor.kill(self._worker, reason)
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        self._worker = None
        now = time.monotonic()
        if self.has_delivered:
            self._failures = [then for then in self._failures if now - then < WINDOW_S]
        self._failures.append(now)
        self.last_failure = reason
        count = len(self._failures)
        self.given_up = count > self._max_restarts
        if self.given_up:
            log.warning("%s\nIt is given up after %d failures (max_restarts).", reason, count)
            return
        pause = min(_LONGEST_BACK_OFF_S, _BACK_OFF_S * 2 ** (count - 1))
        self._due = now + pause
        log.warning(
            "%s\nIt is replaced in %.2f s (%d of %d).", reason, pause, count, self._max_restarts
        )
