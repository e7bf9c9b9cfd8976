"""Workers on a cluster, as the process of the run sees them."""

from __future__ import annotations

import contextlib
import logging
import queue
import shutil
import threading
import time
from collections import deque

from empo_core.errors import WorkerError
from empo_executors.blobs import pack_blob
from empo_executors.call_ledger import CallLedger
from empo_executors.frames import Frame, Kind, Receiver
from empo_executors.silence import Silence
from empo_executors.supervised_process import KILL_S, SupervisedProcess, process_context
from empo_ray.gateway import WATCH_S, run_gateway
from empo_ray.messages import (
    Batch,
    Begin,
    Broadcast,
    Command,
    Ended,
    Event,
    Housed,
    Kill,
    Opened,
    Placed,
    Refused,
    Settings,
    Stop,
    Submit,
    Warned,
)

log = logging.getLogger("empo_ray")
_LAST_WORDS_S = 2.0
"""For how long the end of a killed worker is waited for."""
_STOP_SHARE = 0.7
"""Part of the time to stop in which the gateway may end by itself."""


class RemoteWorkers:
    """The gateway to a cluster, and the workers behind it."""

    def __init__(self, settings: Settings, place_timeout_s: float) -> None:
        """Start the gateway.

        Args:
            settings: What it is to do.
            place_timeout_s: Seconds in which the first worker must find a place.
        """
        self._settings = settings
        self._place_timeout_s = place_timeout_s
        self._workers: dict[tuple[int, int], RemoteWorker] = {}
        self._arrived: deque[tuple[RemoteWorker, Frame | None]] = deque()
        self._events: queue.SimpleQueue[tuple[Event, bytes]] = queue.SimpleQueue()
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._homeless, self._looks, self._ever_placed = Silence(), 0, False
        self._lost = ""
        self._address = settings.address
        self._process = SupervisedProcess(
            process_context(), run_gateway, (settings,), "ray-gateway"
        )
        self._threads = [
            threading.Thread(target=work, name="ray-gateway", daemon=True)
            for work in (self._read, self._write)
        ]
        for thread in self._threads:
            thread.start()

    def open(self, timeout_s: float) -> float:
        """Wait for the connection, and return the number of processors.

        Raises:
            WorkerError: There is none, or not in time.
        """
        try:
            event, _ = self._events.get(timeout=timeout_s)
        except queue.Empty:
            event = Refused(f"it did not answer within {timeout_s:g} s")
        if isinstance(event, Opened):
            self._address = event.address
            return event.cpus
        reason = event.reason if isinstance(event, Refused) else ""
        raise WorkerError(f"the cluster at {self._address!r} cannot be used: {reason}")

    def post(self, command: Command) -> None:
        """Send a command; never waits."""
        self._commands.put(command)

    def begin(self, number: int, incarnation: int, version: int) -> RemoteWorker:
        """Ask for a place for a worker; the gateway knows the newest broadcast."""
        worker = RemoteWorker(self, number, incarnation)
        self._workers[number, incarnation] = worker
        self.post(Begin((number, incarnation)))
        return worker

    def forget(self, worker: RemoteWorker) -> None:
        """Deal with its messages no more."""
        self._workers.pop((worker.number, worker.incarnation), None)

    def receive(self, timeout_s: float) -> tuple[RemoteWorker, Frame | None] | None:
        """The next frame, or the end of a worker."""
        deadline = time.monotonic() + timeout_s
        while not self._arrived:
            try:
                event, data = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return None
            self._take(event, data)
        return self._arrived.popleft()

    def failure(self) -> str:
        """The reason why no worker can run any more."""
        if self._lost:
            return f"the cluster at {self._address} was lost: {self._lost}"
        if any(worker.housed for worker in self._workers.values()):
            self._looks += 1  # Ends the silence.
            self._ever_placed = True
        limit, name = self._place_timeout_s, "place_timeout_s"
        if self._ever_placed:
            limit, name = self._settings.unavailable_s, "unavailable_s"
        if self._homeless.seconds(self._looks) > limit + WATCH_S:
            needs = self._settings.needs
            return (
                f"no node of the cluster at {self._address} had room for a worker of "
                f"{needs.cpus:g} CPUs, {needs.gpus:g} GPUs, {needs.memory_mb or 0} MiB and labels "
                f"{dict(needs.labels)} within {limit:g} s ({name})"
            )
        return ""

    def broadcast(self, blob: bytes, version: int) -> None:
        """Have the blob put into the object store once; the newest two are kept there."""
        self.post(Broadcast(version, pack_blob(blob, version)))

    def end(self, timeout_s: float) -> None:
        """End all workers and the gateway, and a cluster that was started here."""
        self.post(Stop(timeout_s * _STOP_SHARE))
        self._process.end(time.monotonic() + timeout_s * _STOP_SHARE)
        self._commands.put(None)
        for thread in self._threads:
            thread.join(KILL_S)
        if not any(thread.is_alive() for thread in self._threads):
            self._process.pipe.close()
        for folder in {self._settings.folder, self._settings.spill} - {""}:
            shutil.rmtree(folder, ignore_errors=True)

    def _take(self, event: Event, data: bytes) -> None:
        """Turn an event into what arrived of its worker."""
        if isinstance(event, Refused):
            self._lost = event.reason
            return
        if isinstance(event, Warned):
            log.warning("%s.", event.text)
            return
        worker = None if isinstance(event, Opened) else self._workers.get(event.key)
        if worker is None:
            return
        if isinstance(event, Housed):
            worker.housed = True
        elif isinstance(event, Placed):
            worker.placed(event)
        elif isinstance(event, Batch):
            self._arrived += [(worker, frame) for frame in worker.accept(event, data)]
        elif isinstance(event, Ended):
            worker.trouble = worker.trouble or event.reason
            worker.raised = worker.raised or event.final
            self._arrived.append((worker, None))

    def _write(self) -> None:
        """Thread: send commands."""
        with contextlib.suppress(OSError):  # The reading thread finds out.
            while (command := self._commands.get()) is not None:
                self._process.pipe.send(command)

    def _read(self) -> None:
        """Thread: receive events for as long as there are any."""
        why = ""
        try:
            while self._process.has_message():
                event: Event = self._process.pipe.recv()
                has_data = isinstance(event, Batch) and event.lengths
                self._events.put((event, self._process.pipe.recv_bytes() if has_data else b""))
        except (EOFError, OSError):
            pass
        except Exception as error:
            why = f": {type(error).__name__}: {error}"
        self._events.put((Refused(f"the process that was connected to it has ended{why}"), b""))


class RemoteWorker:
    """One incarnation of a worker; see ``empo_executors.supervision.Incarnation``.

    Attributes:
        housed: Whether it has a place on a node.
    """

    def __init__(self, remote: RemoteWorkers, number: int, incarnation: int) -> None:
        self.number = number
        self.incarnation = incarnation
        self.ledger = CallLedger(number, incarnation)
        self.ready = self.raised = self.housed = False
        self.trouble = self.node = ""
        self.pid: int | None = None
        self._remote = remote
        self._receiver = Receiver(number, incarnation)
        self._silence, self._beats = Silence(), 0
        self._placed_at = self._killed_at = 0.0
        self._version = 0

    @property
    def version(self) -> int:
        """The newest broadcast that it has said to have loaded."""
        return self._version

    def placed(self, event: Placed) -> None:
        """Begin to count the time that building it takes."""
        self.housed, self.node, self.pid = True, event.node, event.pid
        self._placed_at = time.monotonic()

    def submit(self, request: bytes) -> int:
        """Hand a request over and return its number."""
        number = self.ledger.submit()
        self._remote.post(Submit((self.number, self.incarnation), request))
        return number

    def count_sent(self) -> None:
        """Nothing is known beyond what it said last."""

    def accept(self, batch: Batch, data: bytes) -> list[Frame]:
        """The frames of a batch; those behind a damaged one are not accepted."""
        self._beats += 1
        self._version, self.ledger.account.sent = batch.version, batch.sent
        frames: list[Frame] = []
        position = 0
        try:
            for length in batch.lengths:
                frame = self._receiver.accept(bytearray(data[position : position + length]))
                position += length
                self.ledger.accept(frame)
                if frame.kind is Kind.FAILED:
                    self.raised = True
                    self.fail(f"failed\n{frame.payload.decode()}")
                frames.append(frame)
        except (WorkerError, ValueError) as error:
            self.fail(f"was cut off: {error}")
        return frames

    def age_s(self) -> float:
        """Seconds since it found a place."""
        return time.monotonic() - self._placed_at if self._placed_at else 0.0

    def silence_s(self) -> float:
        """Seconds, while the caller looked, without a sign of life."""
        return self._silence.seconds(self._beats)

    def is_suspended(self) -> bool:
        """False: Ray does not say."""
        return False

    def overdue(self) -> bool:
        """True where it was killed, and that has not been confirmed for long."""
        return bool(self._killed_at) and time.monotonic() - self._killed_at > _LAST_WORDS_S

    def fail(self, reason: str) -> None:
        """Kill it because of this."""
        self.trouble = self.trouble or reason
        self._killed_at = self._killed_at or time.monotonic()
        self._remote.post(Kill((self.number, self.incarnation)))

    def obituary(self) -> str:
        """The reason why it ended."""
        where = f"process {self.pid} on {self.node}" if self.pid is not None else "without a place"
        return f"worker {self.number} ({where}, incarnation {self.incarnation}) {self.trouble}"

    def close(self) -> None:
        """Forget it, and end it where it lives."""
        self._remote.forget(self)
        self._remote.post(Kill((self.number, self.incarnation)))


__all__ = ["RemoteWorker", "RemoteWorkers"]
