"""Parallel maps: one function, applied to many items by the workers of an executor."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Generic

import cloudpickle  # type: ignore[import-untyped]

from empo_core.best_effort import best_effort
from empo_core.errors import WorkerError
from empo_core.protocols.executors import (
    Executor,
    Needs,
    Payload,
    Reply,
    Send,
    Worker,
    WorkerFactory,
)
from empo_core.protocols.parallel_maps import Item, Output, ParallelMap
from empo_executors.frames import pickled
from empo_executors.local import LocalExecutor
from empo_executors.plugin import LocalParams
from empo_executors.supervised_process import StartMethod, process_context

_AHEAD = 4
"""Items per worker that are taken beyond the result that is waited for."""
_IN_FLIGHT = 2
_TICK_S = 0.1
_SHUTDOWN_S = 2.0
_OK, _RAISED = b"+", b"!"


def map_over(
    executor: Executor,
    function: Callable[[Item], Output],
    items: Iterable[Item],
    *,
    workers: int,
    directory: Path,
    retries: int = 1,
) -> Generator[Output, None, None]:
    """Apply a function to every item on an executor; results come in the order of the items.

    Args:
        executor: One that does not run; it is started, and stopped in the end.
        function: Any callable that cloudpickle can send; with ``retries`` its results must
            depend on nothing but the item.
        items: Taken a few per worker ahead of the result that is waited for.
        workers: How many workers to start.
        directory: Receives the executor's files meanwhile.
        retries: How often an item is submitted again after the worker it was at was lost.

    Raises:
        WorkerError: The function raised (of several items that fail, the first is reported), or
            an item was lost too often.
    """
    factory = _function_worker(pickled(function, "the function"))
    try:
        executor.start(factory, workers, Needs(), directory, _max_restarts(retries))
        passing: _Map[Output] = _Map(executor, items, retries, None)
        yield from passing.results()
    finally:
        with best_effort("ending the workers"):
            executor.stop()


class WorkerPool(Generic[Item, Output]):
    """A function in worker processes; close it, or use it as a context manager.

    The function, with everything it has captured, travels to each worker once; after that only
    items and results do.

    Example:
        >>> with WorkerPool(lambda n: n * n, workers=2) as pool:  # doctest: +SKIP
        ...     list(pool.map(range(4)))
        [0, 1, 4, 9]
    """

    def __init__(
        self,
        function: Callable[[Item], Output],
        workers: int,
        start_method: StartMethod | None = None,
        *,
        task_timeout_s: float | None = None,
        executor: Executor | None = None,
    ) -> None:
        """Prepare; processes start with the first map.

        Args:
            function: Any callable that cloudpickle can send, closures and lambdas included.
                Its results must depend on nothing but the item.
            workers: How many processes to start, at least 1.
            start_method: How to start them; None means ``forkserver`` where there is one.
            task_timeout_s: Seconds one item may take before its worker counts as stuck;
                None waits for as long as the worker lives.
            executor: One that does not run, in place of ``start_method``; an item is submitted
                again where its worker was lost.

        Raises:
            ValueError: An argument is out of range.
            WorkerError: The function cannot be sent.
        """
        if workers < 1:
            raise ValueError(f"workers is {workers}; a pool needs at least 1")
        process_context(start_method)  # Refuses what does not exist.
        self._factory = _function_worker(pickled(function, "the function"))
        params = LocalParams(start_method=start_method or "auto", in_flight=_IN_FLIGHT)
        self._executor: Executor = executor or LocalExecutor(params)
        self._retries = int(executor is not None)
        self._workers = workers
        self._task_timeout_s = task_timeout_s
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._closed = False

    def __enter__(self) -> WorkerPool[Item, Output]:
        """The pool itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the workers."""
        self.close()

    def map(self, items: Iterable[Item]) -> Generator[Output, None, None]:
        """Apply the function to every item; results come in the order of the items.

        Items are taken a few per worker ahead of the result that is waited for, so neither
        items nor results pile up. One map at a time.

        Raises:
            WorkerError: The function raised (of several items that fail, the first is
                reported), a worker died or got stuck, or the pool is closed.
        """
        if self._closed:
            raise WorkerError("this worker pool is closed; make a new one")
        self._start()
        try:
            retries, limit = self._retries, self._task_timeout_s
            passing: _Map[Output] = _Map(self._executor, items, retries, limit)
            yield from passing.results()
        except _LostError as error:
            self.close()
            raise WorkerError(str(error)) from None

    def close(self) -> None:
        """Stop the workers, by force after a moment; closing twice does no harm."""
        self._closed = True
        self._executor.stop(_SHUTDOWN_S)
        if self._folder is not None:
            self._folder.cleanup()

    def _start(self) -> None:
        if self._folder is not None:
            return
        self._folder = tempfile.TemporaryDirectory(prefix="empo-pool-", ignore_cleanup_errors=True)
        directory = Path(self._folder.name)
        try:
            restarts = _max_restarts(self._retries)
            self._executor.start(self._factory, self._workers, Needs(), directory, restarts)
        except WorkerError:
            self.close()
            raise


def worker_processes(workers: int, start_method: StartMethod | None = None) -> ParallelMap:
    """A parallel map in worker processes of this machine, as ``enumerate_world`` takes it.

    Args:
        workers: How many processes to start, at least 1.
        start_method: How to start them; None means ``forkserver`` where there is one.
    """

    @contextmanager
    def opened(
        function: Callable[[Item], Output], /
    ) -> Iterator[Callable[[Iterable[Item]], Iterator[Output]]]:
        with WorkerPool(function, workers, start_method) as pool:
            yield pool.map

    return opened


class _LostError(WorkerError):
    """An item was lost with its worker, or no worker is left."""


class _Map(Generic[Output]):
    """One pass over items on an executor that runs."""

    def __init__(
        self,
        executor: Executor,
        items: Iterable[object],
        retries: int,
        task_timeout_s: float | None,
    ) -> None:
        self._executor = executor
        self._items = enumerate(items)
        self._retries = retries
        self._task_timeout_s = task_timeout_s
        self._waiting: deque[int] = deque()
        self._requests: dict[int, bytes] = {}
        self._losses: dict[int, int] = {}
        self._done: dict[int, Reply] = {}
        self._at: dict[tuple[int, int, int], int] = {}
        """The item of each call of this pass by worker, incarnation and number."""
        self._busy_since: dict[int, float] = {}

    def results(self) -> Generator[Output, None, None]:
        """The results in the order of the items."""
        ahead = _AHEAD * len(self._executor.workers())
        issued = turn = 0
        while True:
            while issued < turn + ahead and (entry := next(self._items, None)) is not None:
                number, item = entry
                self._requests[number] = pickled(item, f"item {number}")
                self._waiting.append(number)
                issued += 1
            if turn == issued:
                return
            self._submit()
            if turn in self._done:
                yield self._open(self._done.pop(turn), turn)
                turn += 1
            elif (reply := self._executor.next(_TICK_S)) is not None:
                self._take(reply)
            else:
                self._check()

    def _submit(self) -> None:
        """Hand waiting items to workers that have room."""
        if not self._waiting:
            return
        # One call each first, so that no worker has two while another has none.
        for room in range(_IN_FLIGHT):
            for state in self._executor.workers():
                usable = state.state in ("starting", "ready") and state.in_flight <= room
                if usable and self._waiting:
                    item = self._waiting.popleft()
                    number = self._executor.submit(state.number, self._requests[item])
                    self._at[state.number, state.incarnation, number] = item
                    self._busy_since.setdefault(state.number, time.monotonic())

    def _take(self, reply: Reply) -> None:
        item = self._at.pop((reply.worker, reply.incarnation, reply.number), None)
        if item is None:
            return  # Of a pass that was abandoned.
        self._busy_since.pop(reply.worker, None)
        if any(worker == reply.worker for worker, _, _ in self._at):
            self._busy_since[reply.worker] = time.monotonic()
        if reply.kind != "lost":
            self._done[item] = reply
            del self._requests[item]
            return
        # The first of those that are lost together was being worked on; the others had to wait.
        others = [key for key in self._at if key[:2] == (reply.worker, reply.incarnation)]
        self._waiting.extendleft(sorted((self._at.pop(key) for key in others), reverse=True))
        self._waiting.appendleft(item)
        self._losses[item] = self._losses.get(item, 0) + 1
        if self._losses[item] > self._retries:
            how, separator, advice = reply.traceback.partition(";")
            raise _LostError(f"{how} while it worked on item {item}{separator}{advice}")

    def _check(self) -> None:
        """Notice workers that are stuck or gone; without a reply only."""
        limit, now = self._task_timeout_s, time.monotonic()
        for worker, since in self._busy_since.items():
            if limit is not None and now - since > limit:
                items = [item for key, item in self._at.items() if key[0] == worker]
                raise _LostError(
                    f"worker {worker} did not finish item {min(items)} within {limit} s "
                    "(task_timeout_s) and was stopped"
                )
        states = self._executor.workers()
        if all(state.state == "given_up" for state in states):
            raise _LostError(f"no worker is left; the last failure: {states[0].last_failure}")

    def _open(self, reply: Reply, item: int) -> Output:
        text = reply.traceback
        if reply.kind == "answer" and reply.payload[:1] == _OK:
            output: Output = cloudpickle.loads(memoryview(reply.payload)[1:])
            return output
        if reply.kind == "answer":
            text = reply.payload[1:].decode()
        raise WorkerError(f"worker {reply.worker} failed on item {item}: {text}")


class _FunctionWorker:
    """Applies a function to pickled items."""

    def __init__(self, payload: bytes) -> None:
        try:
            self._function = cloudpickle.loads(payload)
        except BaseException as error:
            raise WorkerError(f"the worker could not load the function: {error}") from error

    def call(self, request: bytes, send: Send) -> Payload:
        """The result for one item, or why there is none."""
        try:
            return [_OK, cloudpickle.dumps(self._function(cloudpickle.loads(request)))]
        except BaseException as error:
            text = f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}"
            return [_RAISED, text.encode(errors="backslashreplace")]

    def load(self, blob: memoryview, version: int) -> None:
        """Maps broadcast nothing."""

    def close(self) -> None:
        """There is nothing to release."""


def _function_worker(payload: bytes) -> WorkerFactory:
    def make(number: int, incarnation: int) -> Worker:
        return _FunctionWorker(payload)

    return make


def _max_restarts(retries: int) -> int:
    return 5 if retries else 0


__all__ = ["WorkerPool", "map_over", "worker_processes"]
