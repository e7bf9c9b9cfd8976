"""Main function of a worker process: build the worker, then answer requests until told to stop."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]

from empo_core.protocols.executors import Payload, WorkerFactory
from empo_executors.blobs import read_blob
from empo_executors.cells import Cell, Cells
from empo_executors.frames import Disconnected, Kind, Sender
from empo_executors.request_loop import RequestLoop, error_text
from empo_executors.supervised_process import Pipe

BEAT_S = 0.1
"""Time between two signs of life of a worker process."""


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
    link = _PipeLink(pipe, counts, cells.parent, Sender(pipe, number, incarnation))
    threading.Thread(target=link.beat, daemon=True).start()
    loop = RequestLoop(link)
    try:
        make: WorkerFactory = cloudpickle.loads(pipe.recv_bytes())
        worker = make(number, incarnation)
        loop.serve(worker)
    except (EOFError, Disconnected):
        return
    except BaseException as error:
        with contextlib.suppress(Disconnected):
            link.tell(Kind.FAILED, [error_text(error)], version=loop.version, call=0)


class _PipeLink:
    """A pipe for messages, cells for numbers, and files for broadcasts."""

    def __init__(self, pipe: Pipe, cells: Cells, directory: Path, sender: Sender) -> None:
        self._pipe = pipe
        self._cells = cells
        self._directory = directory
        self._sender = sender

    def beat(self) -> None:
        """Thread: show that this process is alive and not stopped."""
        while True:
            self._cells[Cell.BEAT] += 1
            time.sleep(BEAT_S)

    def tell(self, kind: Kind, payload: Payload, *, version: int, call: int) -> None:
        """Count and send a frame."""
        self._cells[Cell.SENT] += 1
        self._sender.send(kind, payload, version=version, call=call)

    def request(self, timeout_s: float) -> bytes | None:
        """The next request, if it comes in time."""
        return self._pipe.recv_bytes() if self._pipe.poll(timeout_s) else None

    @property
    def waiting(self) -> bool:
        """True where a request waits."""
        return self._pipe.poll()

    @property
    def stopped(self) -> bool:
        """True where the caller wants no more."""
        return bool(self._cells[Cell.STOP])

    def broadcast(self, loaded: int) -> tuple[memoryview, int] | None:
        """The newest broadcast where there is a newer one."""
        self._cells[Cell.LOADED] = loaded
        while (version := self._cells[Cell.VERSION]) != loaded:
            try:
                return read_blob(self._directory, version), version
            except FileNotFoundError:
                if self._cells[Cell.VERSION] == version:
                    raise
                # Two newer ones were broadcast meanwhile.
        return None
