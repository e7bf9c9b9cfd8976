"""Main function of a worker process: build the worker, then answer requests until told to stop."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]

from empo_core.protocols.executors import Payload, Worker, WorkerFactory
from empo_executors.blobs import read_blob
from empo_executors.cells import Cell, Cells
from empo_executors.frames import Disconnected, Kind, Sender
from empo_executors.supervised_process import Pipe

BEAT_S = 0.1
"""Time between two signs of life of a worker process."""
_IDLE_S = 0.01
"""Time between two looks for broadcasts of a worker without requests."""


class _Stopped(BaseException):
    """Leaves a call, for the caller wants no more of it."""


def run_worker(pipe: Pipe, cells: Path, number: int, incarnation: int) -> None:
    """Build a worker from the factory in the first message, and let it answer all others.

    Args:
        pipe: The only connection to the caller; an empty message ends the worker.
        cells: The file of the cells; broadcasts lie in the same folder.
        number: The worker's number.
        incarnation: How often it has been replaced.
    """
    try:
        counts = Cells(cells)
    except FileNotFoundError:
        return  # The caller was interrupted while it started this process.
    link = _Link(pipe, counts, cells.parent, Sender(pipe, number, incarnation))
    threading.Thread(target=link.beat, daemon=True).start()
    try:
        make: WorkerFactory = cloudpickle.loads(pipe.recv_bytes())
        worker = make(number, incarnation)
        link.serve(worker)
    except (EOFError, Disconnected):
        return
    except BaseException as error:
        with contextlib.suppress(Disconnected):
            link.tell(Kind.FAILED, [_text(error)])


class _Link:
    """Connection between the worker and its caller."""

    def __init__(self, pipe: Pipe, cells: Cells, directory: Path, sender: Sender) -> None:
        self._pipe = pipe
        self._cells = cells
        self._directory = directory
        self._sender = sender
        self._call = 0
        self._version = 0

    def beat(self) -> None:
        """Thread: show that this process is alive and not stopped."""
        while True:
            self._cells[Cell.BEAT] += 1
            time.sleep(BEAT_S)

    def tell(self, kind: Kind, payload: Payload) -> None:
        """Count and send a frame.

        Raises:
            Disconnected: The caller is gone.
        """
        self._cells[Cell.SENT] += 1
        self._sender.send(kind, payload, version=self._version, call=self._call)

    def serve(self, worker: Worker) -> None:
        """Answer requests until the caller stops it."""

        def send(payload: Payload) -> bool:
            self.tell(Kind.PART, payload)
            if self._cells[Cell.STOP]:
                raise _Stopped
            self._follow(worker)
            return self._pipe.poll()

        self.tell(Kind.READY, [])
        while (request := self._await_request(worker)) and not self._cells[Cell.STOP]:
            # Whoever sees a request also sees what was broadcast before it.
            self._follow(worker)
            try:
                kind, payload = Kind.ANSWER, worker.call(request, send)
            except (_Stopped, Disconnected):
                break
            except BaseException as error:
                kind, payload = Kind.RAISED, [_text(error)]
            self.tell(kind, payload)
            self._call += 1
        worker.close()

    def _await_request(self, worker: Worker) -> bytes:
        while not self._pipe.poll(_IDLE_S):
            self._follow(worker)
        return self._pipe.recv_bytes()

    def _follow(self, worker: Worker) -> None:
        """Load the newest broadcast, if there is a newer one."""
        while (version := self._cells[Cell.VERSION]) != self._version:
            try:
                blob = read_blob(self._directory, version)
            except FileNotFoundError:
                if self._cells[Cell.VERSION] == version:
                    raise
                continue  # Two newer ones were broadcast meanwhile.
            worker.load(blob, version)
            self._version = self._cells[Cell.LOADED] = version


def _text(error: BaseException) -> bytes:
    return "".join(traceback.format_exception(error)).encode(errors="backslashreplace")
