"""One incarnation of a worker as its caller sees it.

Threads read and write the process's pipe. Were the caller to do so by itself, a process that is
stopped half-way through a message would block it for ever.
"""

from __future__ import annotations

import contextlib
import platform
import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil

from empo_core.errors import WorkerError
from empo_executors.call_ledger import CallLedger
from empo_executors.cells import Cell, Cells
from empo_executors.frames import Disconnected, Frame, Kind, Receiver
from empo_executors.silence import Silence
from empo_executors.supervised_process import KILL_S, Context, SupervisedProcess
from empo_executors.worker_main import run_worker

Arrivals: TypeAlias = "queue.SimpleQueue[tuple[WorkerProcess, Frame | None]]"
LAST_FRAMES_S = 2.0
"""For how long the last frames of an ended process are waited for."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that the processes of an executor have in common.

    Attributes:
        context: How processes start.
        directory: Folder of cells and broadcasts.
        factory: The pickled worker factory.
        arrivals: Receives every accepted frame, and None behind the last of a process.
    """

    context: Context
    directory: Path
    factory: bytes
    arrivals: Arrivals


class WorkerProcess:
    """A running worker: its process, its cells, its calls in flight, and two threads.

    Attributes:
        ready: Whether the worker was built.
        raised: Whether it ended with an exception outside of a call.
        trouble: Why it was cut off or ended; empty where its exit code says it.
        ledger: Its calls and numbers.
        node: Name of this machine.
        closed: Whether everything was released.
    """

    def __init__(self, launch: Launch, number: int, incarnation: int) -> None:
        """Start the process.

        Raises:
            OSError: The system refuses a process, a pipe or a file.
        """
        self.number = number
        self.incarnation = incarnation
        self.ledger = CallLedger(number, incarnation)
        self.ready = self.raised = False
        self.trouble = ""
        self.node = platform.node()
        self._arrivals = launch.arrivals
        self._path = launch.directory / f"worker-{number}-{incarnation}.cells"
        self._begun = time.monotonic()
        self._silence = Silence()
        self._dead_since: float | None = None
        self.closed = self._killed = False
        self._version = 0
        self.cells = Cells.create(self._path)
        try:
            self._process = SupervisedProcess(
                launch.context, run_worker, (self._path, number, incarnation), f"worker-{number}"
            )
        except BaseException:
            self._remove_cells()
            raise
        self.pid: int | None = self._process.pid
        self._receiver = Receiver(number, incarnation)
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._requests.put(launch.factory)
        self._threads = [
            threading.Thread(target=work, name=f"worker-{number}", daemon=True)
            for work in (self._read, self._write)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def version(self) -> int:
        """The newest broadcast that the worker has loaded."""
        if not self.closed:
            self._version = self.cells[Cell.LOADED]
        return self._version

    def submit(self, request: bytes) -> int:
        """Hand a request over and return its number."""
        number = self.ledger.submit()
        self._requests.put(request)
        return number

    def count_sent(self) -> None:
        """Bring ``account.sent`` up to date."""
        if not self.closed:
            self.ledger.account.sent = self.cells[Cell.SENT]

    def age_s(self) -> float:
        """Seconds since the process was started."""
        return time.monotonic() - self._begun

    def silence_s(self) -> float:
        """Seconds, while the caller looked, without a sign of life."""
        return self._silence.seconds(self.cells[Cell.BEAT])

    def is_suspended(self) -> bool:
        """True if the system says that the process is stopped, e.g. by SIGSTOP."""
        try:
            return self.pid is not None and psutil.Process(self.pid).status() == "stopped"
        except psutil.Error:  # It has ended.
            return False

    def overdue(self) -> bool:
        """True where it was killed or has ended, and its last frames should have come by now.

        A process of its own may hold the pipe open in the middle of a frame.
        """
        if not (self._killed or self._process.has_ended):
            return False
        now = time.monotonic()
        self._dead_since = self._dead_since or now
        return now - self._dead_since > LAST_FRAMES_S

    def fail(self, reason: str) -> None:
        """Kill it because of this; its end arrives behind its last frames."""
        self.trouble = self.trouble or reason
        self._killed = True
        self._process.kill()

    def request_stop(self) -> None:
        """Let it end by itself, once it has answered what it is at."""
        self.cells[Cell.STOP] = 1
        self._requests.put(b"")

    def join(self, timeout_s: float) -> bool:
        """Wait for the process to end, and say whether it has."""
        return self._process.join(timeout_s)

    def kill(self) -> None:
        """End the process by force."""
        self._process.kill()

    def obituary(self) -> str:
        """The reason why the process ended, with the worker's traceback where there is one."""
        who = f"worker {self.number} (process {self.pid}, incarnation {self.incarnation})"
        if self.trouble:
            return f"{who} {self.trouble}"
        return self._process.obituary(who, at_start=not self.ready)

    def close(self) -> None:
        """Kill the process if it lives, and release everything; twice does no harm."""
        if self.closed:
            return
        self._process.end()
        self._requests.put(None)
        for thread in self._threads:
            thread.join(KILL_S)
        self.count_sent()
        self._version = self.cells[Cell.LOADED]
        self.closed = True
        self._remove_cells()
        if not any(thread.is_alive() for thread in self._threads):
            self._process.pipe.close()

    def _remove_cells(self) -> None:
        self.cells.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        """Thread: send the factory, then every request."""
        # Where the process is gone, the reading thread finds out.
        with contextlib.suppress(OSError):
            while (message := self._requests.get()) is not None:
                self._process.pipe.send_bytes(message)

    def _read(self) -> None:
        """Thread: accept frames for as long as there are any."""
        try:
            while self._process.has_message():
                frame = self._receiver.receive(self._process.pipe)
                self.ledger.accept(frame)
                if frame.kind is Kind.FAILED:
                    self.raised = True
                    self.trouble = f"failed\n{frame.payload.decode()}"
                self._arrivals.put((self, frame))
        except Disconnected:
            pass
        except (WorkerError, OSError, ValueError) as error:
            self.trouble = f"was cut off: {error}"
        finally:
            self._arrivals.put((self, None))


__all__ = ["Arrivals", "Launch", "WorkerProcess"]
