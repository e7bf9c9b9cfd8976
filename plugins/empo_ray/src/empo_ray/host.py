"""A worker in an actor of the cluster. Only processes that are connected to Ray import this."""

from __future__ import annotations

import ctypes
import os
import platform
import queue
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import ray

from empo_core.plugins.imports import import_extra
from empo_executors.worker_main import ANSWER, RAISED, REPORT, methods_of, sendable
from empo_ray.software import software

_PR_SET_PDEATHSIG = 1


class Large(NamedTuple):
    """Stands for a large argument, which travels by itself; its position among those."""

    place: int


class Hello(NamedTuple):
    """Where a worker is: name of the node, process, and software there."""

    node: str
    pid: int
    software: Mapping[str, str]


class Host:
    """An actor with one worker, whose calls run in a thread, one after the other.

    ``stream`` runs by itself; all other methods belong to the concurrency group ``io``.
    """

    def __init__(self, factory: bytes, imports: Sequence[str]) -> None:
        """Begin to build the worker of a pickled factory, after these imports."""
        os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
        if sys.platform == "linux":  # The node's own process may be killed while this is stopped.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        self._calls: queue.SimpleQueue[tuple[int, str, bytes, bool, tuple[Any, ...]]]
        self._calls = queue.SimpleQueue()
        self._early: dict[int, tuple[str, bytes, bool, tuple[Any, ...]]] = {}
        self._next = 0
        self._results: dict[int, queue.SimpleQueue[tuple[bool, bytes]]]
        self._results = defaultdict(queue.SimpleQueue)
        self._lock = threading.Lock()
        threading.Thread(target=self._work, args=(factory, imports), daemon=True).start()

    def hello(self) -> Hello:
        """Where this is; also a sign of life."""
        node = ray.get_runtime_context().get_node_id()
        return Hello(f"{platform.node()} ({node[:8]})", os.getpid(), software())

    def submit(
        self, number: int, method: str, arguments: bytes, is_reporting: bool, *large: object
    ) -> None:
        """Queue a call; Ray may deliver calls in another order than that of their numbers."""
        self._early[number] = method, arguments, is_reporting, large
        while self._next in self._early:
            self._calls.put((self._next, *self._early.pop(self._next)))
            self._next += 1

    def stream(self, number: int, submitted: None) -> Iterator[bytes]:
        """The reports of a call and its result, each with its kind; ``submitted`` is ignored."""
        results = self._results_of(number)
        is_last = False
        while not is_last:
            is_last, data = results.get()
            yield data
        with self._lock:
            del self._results[number]

    def _results_of(self, number: int) -> queue.SimpleQueue[tuple[bool, bytes]]:
        with self._lock:
            return self._results[number]

    def _work(self, factory: bytes, imports: Sequence[str]) -> None:
        """Thread: build the worker, and execute calls for ever."""
        import_extra(imports)
        call = methods_of(factory)
        while True:
            number, method, pickled, is_reporting, large = self._calls.get()
            results = self._results_of(number)

            def report(value: object, results: Any = results) -> bool:
                results.put((False, cloudpickle.dumps((REPORT, value))))
                return not self._calls.empty()

            try:
                arguments = [
                    large[argument.place] if isinstance(argument, Large) else argument
                    for argument in cloudpickle.loads(pickled)
                ]
                reports = [report] if is_reporting else []
                data = cloudpickle.dumps((ANSWER, call(method, *reports, *arguments)))
            except BaseException as error:
                data = cloudpickle.dumps((RAISED, sendable(error)))
            results.put((True, data))
