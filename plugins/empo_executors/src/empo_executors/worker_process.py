"""A worker process as its caller sees it.

Threads read and write the pipe of the process: the caller must not wait for a process that is
stopped half-way through a message.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from empo_core.errors import LostError
from empo_executors.silence import Silence
from empo_executors.supervised_process import KILL_S, Context, SupervisedProcess
from empo_executors.worker_main import (
    ANSWER,
    RAISED,
    REPORT,
    STOP,
    pack_call,
    run_worker,
    unpack_answer,
)

_LAST_MESSAGES_S = 2.0
"""Seconds for which the last messages of an ended process are waited for."""


class WorkerProcess:
    """A process with one worker, and the calls that the worker has not answered.

    Attributes:
        pid: The process's id.
    """

    def __init__(self, context: Context, name: str, factory: bytes, beat_s: float) -> None:
        """Start the process.

        Args:
            context: How processes start.
            name: Of the process, for people.
            factory: The pickled function that builds the worker.
            beat_s: Seconds between two signs of life.

        Raises:
            OSError: if the system refuses a process or a pipe.
        """
        self._name = name
        self._lock = threading.Lock()
        self._calls: deque[tuple[Future[Any], Callable[[object], None] | None]] = deque()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._outgoing.put(factory)
        self._reason = self._end = ""
        self._messages, self._silence = 0, Silence()
        self._ended_at: float | None = None
        self._process = SupervisedProcess(context, run_worker, (beat_s,), name)
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name=name, daemon=True)
        self._writer = threading.Thread(target=self._write, name=name, daemon=True)
        self._writer.start()
        self._reader.start()

    def call(
        self, method: str, arguments: tuple[object, ...], on_report: Callable[[object], None] | None
    ) -> Future[Any]:
        """Send a call; see ``Executor.call``."""
        data = pack_call(method, *arguments, is_reporting=on_report is not None)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # A call that was sent cannot be cancelled.
        with self._lock:
            if not self._end:
                self._calls.append((future, on_report))
                self._outgoing.put(data)
                return future
        future.set_exception(LostError(self._end))
        return future

    def watch(self, start_timeout_s: float, heartbeat_s: float) -> None:
        """Kill the process if it shows no sign of life; lose its calls if it has ended."""
        silence_s = self._silence.seconds(self._messages)
        if self._end:
            return
        if self._process.has_ended:
            # Another process may hold the pipe open in the middle of a message.
            self._ended_at = self._ended_at or time.monotonic()
            if time.monotonic() - self._ended_at > _LAST_MESSAGES_S:
                self.lose_calls()
        elif not self._messages and silence_s > start_timeout_s:
            self.kill(f"was not ready for {start_timeout_s:g} s (start_timeout_s) and was killed")
        elif self._messages and silence_s > heartbeat_s:
            self.kill(f"showed no sign of life for {heartbeat_s:g} s (heartbeat_s) and was killed")

    def kill(self, reason: str) -> None:
        """End the process by force."""
        self._reason = self._reason or reason
        self._process.kill()

    def request_stop(self) -> None:
        """Let the process end by itself after the call that it is at."""
        self._reason = self._reason or "was stopped"
        self._outgoing.put(STOP)

    def join(self, deadline: float) -> None:
        """Wait until ``deadline`` (of ``time.monotonic``) for the process to end."""
        self._reader.join(max(0.0, deadline - time.monotonic()))
        if not self._reader.is_alive():
            self._writer.join(KILL_S)

    def lose_calls(self) -> None:
        """End all calls that have not been answered."""
        with self._lock:
            if not self._end:
                subject = f"{self._name} (process {self.pid})"
                self._end = (
                    f"{subject} {self._reason}"
                    if self._reason
                    else self._process.obituary(subject, at_start=not self._messages)
                )
            calls, self._calls = self._calls, deque()
        for future, _ in calls:
            future.set_exception(LostError(self._end))

    def _write(self) -> None:
        """Thread: send the factory and every call."""
        with contextlib.suppress(OSError):  # The reading thread notices that the process is gone.
            while (message := self._outgoing.get()) is not None:
                self._process.pipe.send_bytes(message)

    def _read(self) -> None:
        """Thread: receive messages as long as there are any, then release everything."""
        try:
            while self._process.has_message():
                message = self._process.pipe.recv_bytes()
                self._messages += 1
                if message:
                    self._take(*unpack_answer(message))
        except (EOFError, OSError):
            pass
        except Exception as error:
            self._reason = f"sent what cannot be read: {type(error).__name__}: {error}"
        self.lose_calls()
        self._process.end()
        self._outgoing.put(None)
        self._writer.join()
        self._process.pipe.close()

    def _take(self, kind: int, value: Any) -> None:
        with self._lock:
            if self._end or kind not in (REPORT, ANSWER, RAISED):
                return
            future, on_report = self._calls[0] if kind == REPORT else self._calls.popleft()
        if kind == REPORT:
            assert on_report is not None
            on_report(value)
        elif kind == ANSWER:
            future.set_result(value)
        else:
            future.set_exception(value)
