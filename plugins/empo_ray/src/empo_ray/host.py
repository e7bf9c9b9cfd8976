"""A worker in an actor of the cluster. Only processes that are connected to Ray import this."""

from __future__ import annotations

import ctypes
import os
import platform
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import ray

from empo_core.plugins.imports import import_extra
from empo_executors.blobs import unpack_blob
from empo_executors.frames import Kind, Sender
from empo_executors.request_loop import RequestLoop, error_text
from empo_executors.silence import Silence
from empo_ray.software import software

if TYPE_CHECKING:  # They import torch, which takes seconds, and not every worker needs it.
    from empo_core.protocols.executors import Payload, WorkerFactory

Hello: TypeAlias = tuple[str, str, int, dict[str, str]]
"""The node's id, its name, the process, and the software."""
Fetched: TypeAlias = tuple[int, int, list[int], np.ndarray]
"""Frames begun, the broadcast loaded, and the lengths and bytes of frames."""
_BATCH_BYTES = 2**20
"""Frames of parts are kept back until there are so many bytes, or for ``_LINGER_S``."""
_LINGER_S = 0.1
_FULL_BYTES = 16 * 2**20
"""With so many bytes not fetched a worker pauses."""
_BEAT_S = 0.5
"""Longest time between two signs of life."""
_PR_SET_PDEATHSIG = 1


class Host:
    """Keeps a worker in a thread of its own, so that it can say at any time that it lives.

    Calls of the group ``in`` are numbered, for Ray may change their order; those of the group
    ``out`` wait for frames.
    """

    def __init__(self, number: int, incarnation: int, orphan_s: float) -> None:
        """Begin without a worker.

        Args:
            number: The worker's number.
            incarnation: How often it has been replaced.
            orphan_s: The process ends where its gateway has asked for nothing for so long.
        """
        os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
        if sys.platform == "linux":  # The node's own process may be killed while we are stopped.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        self._identity = number, incarnation
        self._outbox = _Outbox()
        self._link = _ActorLink(self._outbox, Sender(self._outbox, number, incarnation))
        self._loop = RequestLoop(self._link)
        self._thread: threading.Thread | None = None
        self._early: dict[int, tuple[str, tuple[object, ...]]] = {}
        self._order = self._fetches = 0
        threading.Thread(target=self._watch, args=(orphan_s,), daemon=True).start()

    def hello(self) -> Hello:
        """Where this is, and the software there."""
        node = ray.get_runtime_context().get_node_id()
        return node, f"{platform.node()} ({node[:8]})", os.getpid(), software()

    def tell(self, order: int, method: str, *arguments: object) -> None:
        """Call ``build``, ``submit`` or ``announce``, in the order of their numbers."""
        self._early[order] = method, arguments
        while self._order in self._early:
            name, found = self._early.pop(self._order)
            self._order += 1
            getattr(self, name)(*found)

    def build(self, references: Sequence[object], imports: Sequence[str]) -> None:
        """Build the worker from the factory that a reference stands for."""
        self._thread = threading.Thread(
            target=self._work, args=(references[0], imports), daemon=True
        )
        self._thread.start()

    def submit(self, request: bytes) -> None:
        """Put a request into the inbox."""
        self._link.inbox.put(request)

    def announce(self, references: Sequence[object], version: int) -> None:
        """Let the worker load a broadcast; the list keeps Ray from fetching it at once."""
        self._link.newest = references[0], version

    def fetch(self, taken: int) -> Fetched:
        """Frames from number ``taken`` on; waits a moment for them.

        Those before it have arrived. Asking again, as after an error of the network, yields the
        same frames again.
        """
        self._fetches += 1
        frames = self._outbox.take(taken)
        data = np.frombuffer(b"".join(frames), np.uint8)
        return self._outbox.sent, self._loop.version, [len(frame) for frame in frames], data

    def end(self, timeout_s: float, leave: bool = False) -> None:
        """Let the worker end by itself, once it has answered what it is at.

        Args:
            timeout_s: Seconds that it has.
            leave: End the process, too.
        """
        self._link.stopped = True
        self._link.inbox.put(b"")
        if self._thread is not None:
            self._thread.join(timeout_s)
        if leave:
            os._exit(0)

    def _work(self, factory: object, imports: Sequence[str]) -> None:
        """Thread: build the worker, and let it answer requests."""
        try:
            import_extra(imports)
            make: WorkerFactory = cloudpickle.loads(ray.get(factory))
            self._loop.serve(make(*self._identity))
        except BaseException as error:
            self._link.tell(Kind.FAILED, [error_text(error)], version=self._loop.version, call=0)

    def _watch(self, orphan_s: float) -> None:
        """Thread: end a process that is asked for nothing any more.

        Where the head is lost nothing else ends it for a minute.
        """
        silence = Silence()
        while silence.seconds(self._fetches) < orphan_s:
            time.sleep(_BEAT_S)
        os._exit(1)


class _ActorLink:
    """Queues within the process; another process calls the methods of ``Host``.

    Attributes:
        inbox: Requests.
        newest: The newest broadcast: its reference and version.
        stopped: Whether the caller wants no more.
    """

    def __init__(self, outbox: _Outbox, sender: Sender) -> None:
        self.inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.newest: tuple[object, int] = None, 0
        self.stopped = False
        self._outbox = outbox
        self._sender = sender

    def tell(self, kind: Kind, payload: Payload, *, version: int, call: int) -> None:
        """Count and send a frame."""
        self._outbox.sent += 1
        self._sender.send(kind, payload, version=version, call=call)
        # With another request the worker has enough to do until its answer is fetched anyway.
        if kind is not Kind.PART and not self.waiting:
            self._outbox.flush()

    def request(self, timeout_s: float) -> bytes | None:
        """The next request, if it comes in time."""
        try:
            return self.inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None

    @property
    def waiting(self) -> bool:
        """True where a request waits."""
        return not self.inbox.empty()

    def broadcast(self, loaded: int) -> tuple[memoryview, int] | None:
        """The newest broadcast where there is a newer one."""
        reference, version = self.newest
        if version == loaded:
            return None
        return unpack_blob(memoryview(ray.get(reference)), version), version


class _Outbox:
    """Frames that were not fetched, or whose arrival was not confirmed yet."""

    def __init__(self) -> None:
        self.sent = 0
        """Frames that the worker has begun to send."""
        self._changed = threading.Condition()
        self._frames: deque[bytes] = deque()
        self._first = self._bytes = 0
        self._urgent = False

    def send_bytes(self, message: bytes, /) -> None:
        """Keep a frame, once there is room."""
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < _FULL_BYTES)
            self._frames.append(message)
            self._bytes += len(message)
            if self._bytes >= _BATCH_BYTES or len(self._frames) == 1:
                self._changed.notify_all()

    def flush(self) -> None:
        """Keep nothing back."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()

    def take(self, taken: int) -> list[bytes]:
        """Forget the frames before a number, and return all others."""
        with self._changed:
            while self._first < taken:
                self._bytes -= len(self._frames.popleft())
                self._first += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: bool(self._frames), _BEAT_S)
            self._changed.wait_for(
                lambda: self._urgent or self._bytes >= _BATCH_BYTES or not self._frames, _LINGER_S
            )
            self._urgent = False
            return list(self._frames)


__all__ = ["Fetched", "Hello", "Host"]
