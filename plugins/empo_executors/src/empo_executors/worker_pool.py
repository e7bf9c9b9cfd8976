"""Parallel maps: one function, applied to many items in worker processes."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

import cloudpickle  # type: ignore[import-untyped]

from empo_core.best_effort import best_effort
from empo_core.errors import LostError, WorkerError
from empo_core.protocols.executors import Executor
from empo_executors.pickles import pickled
from empo_executors.replaced_worker import ReplacedWorker
from empo_executors.supervised_process import (
    ChildSetup,
    StartMethod,
    child_setup,
    process_context,
    set_up_child,
    signals_held,
)

Item = TypeVar("Item")
Output = TypeVar("Output")
Map = Callable[[Iterable[Item]], Iterator[Output]]
_AHEAD = 4
"""Items per worker that are taken beyond the result that is waited for."""
_MAX_RESTARTS = 5
_TICK_S = 0.05


class WorkerPool(Generic[Item, Output]):
    """A function in worker processes; close the pool, or use it as a context manager.

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
    ) -> None:
        """Prepare; processes start with the first map.

        Args:
            function: Any callable that cloudpickle can send, closures and lambdas included.
                Its results must depend on nothing but the item.
            workers: Number of processes, at least 1.
            start_method: How to start them; None means ``forkserver`` where there is one.

        Raises:
            ValueError: if an argument is out of range.
            WorkerError: if the function cannot be sent.
        """
        if workers < 1:
            raise ValueError(f"workers is {workers}; a pool needs at least 1")
        context = process_context(start_method)
        self._workers = workers
        self._is_closed, self._closing = False, threading.Lock()
        self._pool = ProcessPoolExecutor(
            workers, context, _set_up, (child_setup(context), pickled(function, "the function"))
        )

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
        items nor results pile up.

        Raises:
            WorkerError: if the function raises (of several items that fail, the first is
                reported), a worker ends, or the pool is closed.
        """
        for item, future in _ahead(self._submit, items, _AHEAD * self._workers):
            try:
                result, trouble = future.result()
            except (BrokenExecutor, CancelledError) as error:
                is_closed = self._is_closed
                self.close()
                how = "the pool was closed" if is_closed else "a worker process ended"
                raise WorkerError(
                    f"{how} before item {item} was done. Often memory ran out; at the start, often "
                    "a script starts workers outside of `if __name__ == '__main__':`"
                ) from error
            yield _opened(item, result, trouble)

    def close(self) -> None:
        """Stop the workers by force; closing twice does no harm."""
        self._is_closed = True
        with self._closing:  # Two threads at once would close the pool's pipes twice.
            # Python 3.14 has ``kill_workers`` for this.
            for process in list((self._pool._processes or {}).values()):
                process.kill()
            self._pool.shutdown(cancel_futures=True)

    def _submit(self, number: int, item: Item) -> Future[tuple[bytes, str]]:
        if self._is_closed:
            raise WorkerError("this worker pool is closed; make a new one")
        try:
            with signals_held():  # A fork server that is started here ignores them for good.
                return self._pool.submit(_apply, pickled(item, f"item {number}"))
        except BrokenExecutor as error:
            broken: Future[tuple[bytes, str]] = Future()
            broken.set_exception(error)
            return broken


def worker_processes(
    workers: int, start_method: StartMethod | None = None
) -> Callable[[Callable[[Item], Output]], AbstractContextManager[Map[Item, Output]]]:
    """A parallel map in worker processes of this machine, as ``enumerate_world`` takes it.

    Args:
        workers: Number of processes, at least 1.
        start_method: How to start them; None means ``forkserver`` where there is one.
    """

    @contextmanager
    def opened(function: Callable[[Item], Output], /) -> Iterator[Map[Item, Output]]:
        with WorkerPool(function, workers, start_method) as pool:
            yield pool.map

    return opened


@contextmanager
def executor_map(
    executor: Executor, function: Callable[[Item], Output], workers: int
) -> Iterator[Map[Item, Output]]:
    """A parallel map on the workers of an executor, which is shut down in the end.

    An item whose worker is lost is tried once more.

    Args:
        executor: Any executor.
        function: As for ``WorkerPool``.
        workers: Number of workers.

    Raises:
        WorkerError: if the function cannot be sent, or a worker cannot be started; the map raises
            WorkerError if the function does, and LostError if an item is lost twice.
    """
    payload = pickled(function, "the function")
    slots: queue.SimpleQueue[ReplacedWorker] = queue.SimpleQueue()
    for _ in range(workers):
        slots.put(ReplacedWorker(executor, partial(_Function, payload), _MAX_RESTARTS))
    is_over = threading.Event()

    def call(number: int, item: Item) -> Output:
        slot = slots.get()
        try:
            output: Output = _twice(slot, number, item, is_over)
            return output
        finally:
            slots.put(slot)

    with ThreadPoolExecutor(workers) as threads:

        def apply(items: Iterable[Item]) -> Iterator[Output]:
            def submit(number: int, item: Item) -> Future[Output]:
                return threads.submit(call, number, item)

            for _, future in _ahead(submit, items, _AHEAD * workers):
                yield future.result()

        try:
            yield apply
        finally:
            is_over.set()
            with best_effort("ending the workers"):
                executor.shutdown()


def _twice(slot: ReplacedWorker, number: int, item: Any, is_over: threading.Event) -> Any:
    """The result for an item, which is tried once more where the worker is lost."""
    for attempt in (1, 2):
        while not is_over.is_set() and not slot.is_running():
            if slot.given_up:
                raise LostError(f"no worker is left; the last failure: {slot.last_failure}")
            time.sleep(_TICK_S)
        try:
            result, trouble = slot.call("apply", pickled(item, f"item {number}")).result()
            break
        except LostError as error:
            if attempt == 2 or is_over.is_set():
                how, separator, advice = str(error).partition(";")
                text = f"{how} while it worked on item {number}{separator}{advice}"
                raise LostError(text) from None
    slot.has_delivered = True
    return _opened(number, result, trouble)


def _ahead(
    submit: Callable[[int, Any], Future[Any]], items: Iterable[Any], depth: int
) -> Generator[tuple[int, Future[Any]], None, None]:
    """Numbers and futures of items in order, the items being submitted ``depth`` ahead."""
    waiting: deque[tuple[int, Future[Any]]] = deque()
    try:
        for number, item in enumerate(items):
            waiting.append((number, submit(number, item)))
            if len(waiting) >= depth:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
    finally:
        for _, future in waiting:
            future.cancel()


def _opened(number: int, result: bytes, trouble: str) -> Any:
    """The result for an item, as ``_Function.apply`` returned it."""
    if trouble:
        raise WorkerError(f"a worker failed on item {number}: {trouble}")
    return cloudpickle.loads(result)


class _Function:
    """The function of a map in a worker process."""

    def __init__(self, payload: bytes) -> None:
        self._load = partial(cloudpickle.loads, payload)
        self._function: Callable[[object], object] | None = None

    def apply(self, item: bytes) -> tuple[bytes, str]:
        """The pickled result for an item, or why there is none."""
        try:
            self._function = self._function or self._load()
        except BaseException as error:
            return b"", f"the worker could not load the function: {error}"
        try:
            return cloudpickle.dumps(self._function(cloudpickle.loads(item))), ""
        except BaseException as error:
            return b"", f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}"


_function = _Function(b"")
"""The function of this process, if it is one of a ``WorkerPool``."""


def _set_up(setup: ChildSetup, payload: bytes) -> None:
    """Prepare a process of a ``WorkerPool``."""
    global _function
    set_up_child(setup)
    _function = _Function(payload)


def _apply(item: bytes) -> tuple[bytes, str]:
    return _function.apply(item)
