"""Workers that are watched, and replaced when they fail, wherever they run."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from empo_core.errors import WorkerError
from empo_core.protocols.executors import Account, Reply, WorkerState
from empo_executors.call_ledger import CallLedger
from empo_executors.frames import Frame, Kind
from empo_executors.restart_budget import RestartBudget

_TICK_S = 0.02
"""The longest wait between two looks at the workers."""
SUSPENDED_S = 2.0
"""Seconds without a sign of life after which a process that is stopped is replaced."""
_LOOK_S = 0.005
"""The shortest time between two looks, where replies are plenty."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of every worker.

    Attributes:
        start_timeout_s: Seconds that building it may take.
        unavailable_s: Seconds of silence after which it counts as unavailable.
        dead_s: Seconds of silence after which it is replaced.
        silence: Name of the param that sets ``dead_s``, for errors.
        in_flight: Calls at a time.
    """

    start_timeout_s: float
    unavailable_s: float
    dead_s: float
    silence: str
    in_flight: int


class Incarnation(Protocol):
    """A worker between its start and its end.

    Attributes:
        number: The worker's number.
        ledger: Its calls and numbers.
        ready: Whether it was built.
        raised: Whether it ended with an exception outside of a call.
        trouble: Why it is about to end; empty where it is not.
        node: Name of the machine that it runs on.
        pid: Its process there; None while there is none.
    """

    number: int
    ledger: CallLedger
    ready: bool
    raised: bool
    trouble: str
    node: str
    pid: int | None

    @property
    def version(self) -> int:
        """The newest broadcast that it has loaded."""

    def submit(self, request: bytes) -> int:
        """Hand a request over and return its number."""

    def count_sent(self) -> None:
        """Bring the account's ``sent`` up to date."""

    def age_s(self) -> float:
        """Seconds that building it has taken so far."""

    def silence_s(self) -> float:
        """Seconds, while the caller looked, without a sign of life."""

    def is_suspended(self) -> bool:
        """True if the system says that its process is stopped, e.g. by SIGSTOP."""

    def overdue(self) -> bool:
        """True where it has ended, and its last frames should have come by now."""

    def fail(self, reason: str) -> None:
        """End it because of this."""

    def obituary(self) -> str:
        """The reason why it ended."""

    def close(self) -> None:
        """Release everything; twice does no harm."""


class Backend(Protocol):
    """Starts incarnations, and says what comes from them."""

    def begin(self, number: int, incarnation: int, version: int) -> Incarnation:
        """Start a worker; ``version`` is the newest broadcast.

        Raises:
            OSError: The system refuses.
        """

    def receive(self, timeout_s: float) -> tuple[Incarnation, Frame | None] | None:
        """The next frame, or the end (None) of an incarnation; None where nothing came in time."""

    def failure(self) -> str:
        """The reason why no worker can run any more; empty where one can."""


class Supervision:
    """All workers of an executor between its ``start`` and its ``stop``.

    Attributes:
        lock: Held while workers are changed, so that another thread may stop them.
        stopped: Whether nothing is to be started any more.
        version: The newest broadcast.
    """

    def __init__(
        self, backend: Backend | None, workers: int, limits: Limits, max_restarts: int
    ) -> None:
        """Begin without a process; without a backend it is stopped from the beginning."""
        self.lock = threading.RLock()
        self.stopped = backend is None
        self.version = 0
        self._backend = backend
        self._limits = limits
        self._handles = [_Handle(number, RestartBudget(max_restarts)) for number in range(workers)]
        self._replies: deque[Reply] = deque()
        self._accounts: list[Account] = []
        self._looked = 0.0
        self._started = False

    @property
    def running(self) -> list[Incarnation]:
        """The incarnations at this moment."""
        return [handle.process for handle in self._handles if handle.process is not None]

    def await_workers(self, is_over: Callable[[Sequence[WorkerState]], bool]) -> None:
        """Start all workers and wait until they are ready, or the wait is over.

        Args:
            is_over: From the states of the workers to whether they are waited for no longer.

        Raises:
            WorkerError: None can be started, or one cannot be built.
        """
        while True:
            with self.lock:
                self._look()
                self._receive(_TICK_S)
            states = self.states()
            settled = all(s.state in ("ready", "unavailable", "given_up") for s in states)
            if settled or is_over(states):
                break
        if all(handle.budget.given_up for handle in self._handles):
            failure = self._handles[0].budget.last_failure
            raise WorkerError(f"no worker can be started; the last failure: {failure}")
        self._started = True

    def submit(self, worker: int, request: bytes) -> int:
        """Send a request; see ``Executor.submit``."""
        if not request:
            raise WorkerError("a request must not be empty")
        with self.lock:
            process = self._handles[worker].process if worker < len(self._handles) else None
            if process is None or process.pid is None:
                raise WorkerError(f"worker {worker} has no process at the moment; see workers()")
            if len(process.ledger.calls) >= self._limits.in_flight:
                raise WorkerError(
                    f"worker {worker} has {len(process.ledger.calls)} calls in flight "
                    "(in_flight); take a reply first"
                )
            return process.submit(request)

    def next(self, timeout_s: float | None) -> Reply | None:
        """The next reply; watches and replaces workers meanwhile."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = _TICK_S if deadline is None else deadline - time.monotonic()
            with self.lock:
                if not self.stopped and time.monotonic() - self._looked >= _LOOK_S:
                    self._look()
                if self._replies:
                    return self._replies.popleft()
                if self.stopped or all(handle.finished for handle in self._handles):
                    return None
                received = self._receive(min(_TICK_S, left))
            if not received and left <= 0:
                return None

    def check_newer(self, version: int) -> None:
        """Raise where a broadcast is not newer than the last, or nothing is running."""
        if self.stopped or version <= self.version:
            raise WorkerError(
                f"broadcast {version} is not newer than {self.version}, or nothing is running"
            )

    def replace(self, worker: int, reason: str) -> None:
        """Kill the present incarnation of a worker, which fails for this reason."""
        process = self._handles[worker].process
        if process is not None:
            process.fail(reason)

    def states(self) -> list[WorkerState]:
        """The state of every worker."""
        with self.lock:
            return [handle.state(self._limits) for handle in self._handles]

    def accounts(self) -> list[Account]:
        """The numbers of every incarnation so far."""
        for process in self.running:
            process.count_sent()
        return list(self._accounts)

    def bury(self) -> None:
        """Take over what has arrived, and lose what has not, once all workers have been ended."""
        self.stopped = True
        while self._receive(0.0):
            pass
        for handle in self._handles:
            if handle.process is not None:
                self._replies += handle.process.ledger.lost(
                    "it was stopped", handle.process.version
                )
            handle.process, handle.budget.given_up = None, True

    def _look(self) -> None:
        """Start processes that are due, and end those that hang."""
        self._looked = time.monotonic()
        if failure := self._backend.failure() if self._backend else "":
            self._give_up(failure)
        limits = self._limits
        for handle in self._handles:
            process = handle.process
            if process is None:
                if handle.budget.due:
                    self._begin(handle)
            elif process.overdue():
                self._end(handle)
            elif not process.ready:
                if process.age_s() > limits.start_timeout_s:
                    process.fail(
                        f"was not ready for {limits.start_timeout_s:g} s (start_timeout_s) and "
                        "was killed"
                    )
            elif (silence_s := process.silence_s()) > SUSPENDED_S and process.is_suspended():
                process.fail(f"was suspended by a signal for {SUSPENDED_S:g} s and was killed")
            elif silence_s > limits.dead_s:
                process.fail(
                    f"showed no sign of life for {limits.dead_s:g} s ({limits.silence} of its "
                    "executor) and was killed"
                )

    def _give_up(self, reason: str) -> None:
        """End all workers because of this, and replace none."""
        for handle in self._handles:
            handle.budget.give_up(reason)
            if handle.process is not None:
                handle.process.trouble = reason
                self._end(handle)

    def _receive(self, timeout_s: float) -> bool:
        """Deal with the next frame or end of a process; False where none came in time."""
        found = self._backend and self._backend.receive(max(timeout_s, 0.0))
        if not found:
            return False
        process, frame = found
        handle = self._handles[process.number]
        if handle.process is not process:
            return True  # It was ended without waiting for its last frames; its calls are lost.
        if frame is not None:
            self._take(process, frame)
        elif not self.stopped:
            self._end(handle)
        return True

    def _take(self, process: Incarnation, frame: Frame) -> None:
        """Turn a frame into a reply."""
        if frame.kind is Kind.READY:
            process.ready = True
        elif frame.kind is not Kind.FAILED:
            self._replies.append(process.ledger.reply(frame))

    def _begin(self, handle: _Handle) -> None:
        assert self._backend is not None
        try:
            process = handle.begin(self._backend, self.version)
        except OSError as error:
            reason = f"worker {handle.number} of {len(self._handles)} cannot be started: {error}"
            if not self._started:
                raise WorkerError(
                    f"{reason}. Choose fewer, or raise what the system allows (ulimit)."
                ) from error
            handle.budget.fail(reason, fruitful=False)
            return
        self._accounts.append(process.ledger.account)

    def _end(self, handle: _Handle) -> None:
        """Bury a process that has ended or is given up, and plan another."""
        process = handle.process
        assert process is not None
        reason = process.obituary()
        process.close()
        handle.process = None
        self._replies += process.ledger.lost(reason, process.version)
        if not (self._started or process.ready) and process.raised:
            raise WorkerError(f"a worker cannot be built: {reason}")
        if not handle.budget.given_up:
            handle.budget.fail(reason, fruitful=process.ledger.fruitful)


class _Handle:
    """One worker, whichever process it is at the moment."""

    def __init__(self, number: int, budget: RestartBudget) -> None:
        self.number = number
        self.budget = budget
        self.process: Incarnation | None = None
        self._incarnation = -1

    @property
    def finished(self) -> bool:
        """True where it has no process and gets no other."""
        return self.process is None and self.budget.given_up

    def begin(self, backend: Backend, version: int) -> Incarnation:
        """Start the next process; raises OSError where the system refuses."""
        self._incarnation += 1
        self.process = backend.begin(self.number, self._incarnation, version)
        return self.process

    def state(self, limits: Limits) -> WorkerState:
        """The worker at this moment."""
        process = self.process
        return WorkerState(
            number=self.number,
            incarnation=max(0, self._incarnation),
            node="" if process is None else process.node,
            pid=None if process is None else process.pid,
            state=self._state(limits),
            version=0 if process is None else process.version,
            in_flight=0 if process is None else len(process.ledger.calls),
            last_failure=self.budget.last_failure,
        )

    def _state(
        self, limits: Limits
    ) -> Literal["starting", "ready", "unavailable", "dead", "given_up"]:
        if self.process is None:
            return "given_up" if self.budget.given_up else "dead"
        if self.process.trouble or self.process.pid is None:
            return "dead"
        if not self.process.ready:
            return "starting"
        return "unavailable" if self.process.silence_s() > limits.unavailable_s else "ready"


__all__ = ["Backend", "Incarnation", "Limits", "Supervision"]
