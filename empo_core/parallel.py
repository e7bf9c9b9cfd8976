"""Worker processes that hold one function and apply it to many items.

The function, with everything it has captured, travels to each worker once; after that only
items and results do. Every worker has a pipe of its own: a queue shared by all workers would
stay locked for ever when one of them is killed while it writes. Threads of this process wait
on the pipes, so a worker that stops half-way through a message cannot block the caller.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

import cloudpickle  # type: ignore[import-untyped]

from empo_core.errors import WorkerError

StartMethod = Literal["forkserver", "spawn"]
Item = TypeVar("Item")
Output = TypeVar("Output")

_OK, _RAISED = b"+", b"!"
_SHUTDOWN_S = 2.0


class WorkerPool(Generic[Item, Output]):
    """A function in worker processes; close it, or use it as a context manager.

    ``fork`` is not offered: a forked child hangs in the first parallel torch operation when
    its parent has done one before.

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
    ) -> None:
        """Start the workers and send each of them the function.

        Args:
            function: Any callable that cloudpickle can send, closures and lambdas included.
                Its results must depend on nothing but the item.
            workers: How many processes to start, at least 1.
            start_method: How to start them; None means ``forkserver`` where there is one.
            task_timeout_s: Seconds one item may take before its worker counts as stuck;
                None waits for as long as the worker lives.

        Raises:
            ValueError: An argument is out of range.
            WorkerError: The function cannot be sent.
        """
        if workers < 1:
            raise ValueError(f"workers is {workers}; a pool needs at least 1")
        context = _context(start_method)
        payload = _dumps(function, "the function")
        self._task_timeout_s = task_timeout_s
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._closed = False
        self._workers = [_Worker(number, context) for number in range(workers)]
        self._threads = [
            threading.Thread(
                target=_serve, args=(worker, payload, self._tasks), name=f"pool-{worker.number}"
            )
            for worker in self._workers
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

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
        done: queue.SimpleQueue[_Reply] = queue.SimpleQueue()
        replies: dict[int, _Reply] = {}
        ahead = 4 * len(self._workers)
        source = enumerate(items)
        issued = turn = 0
        try:
            while True:
                while issued < turn + ahead and (entry := next(source, None)) is not None:
                    number, item = entry
                    self._tasks.put(_Task(number, _dumps(item, f"item {number}"), done))
                    issued += 1
                if turn == issued:
                    return
                while turn not in replies:
                    reply = self._next_reply(done)
                    replies[reply.number] = reply
                yield self._open(replies.pop(turn))
                turn += 1
        finally:
            self._discard_tasks()

    def close(self) -> None:
        """Stop the workers, by force after two seconds; closing twice does no harm."""
        if self._closed:
            return
        self._closed = True
        self._discard_tasks()
        for _ in self._threads:
            self._tasks.put(None)
        deadline = time.monotonic() + _SHUTDOWN_S
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            # SIGKILL ends even a process that is stopped or hangs in compiled code.
            worker.process.kill()
            worker.process.join(_SHUTDOWN_S)
        for thread in self._threads:
            thread.join(_SHUTDOWN_S)

    def _open(self, reply: _Reply) -> Output:
        if reply.kind != _OK:
            text = reply.payload.decode()
            raise WorkerError(f"worker {reply.worker} failed on item {reply.number}: {text}")
        output: Output = cloudpickle.loads(reply.payload)
        return output

    def _next_reply(self, done: queue.SimpleQueue[_Reply]) -> _Reply:
        """The next reply; a worker that has died or got stuck closes the pool."""
        while True:
            try:
                reply = done.get(timeout=None if self._task_timeout_s is None else 0.1)
            except queue.Empty:
                self._check_for_stuck_worker()
                continue
            if reply.kind == b"":
                self.close()
                raise WorkerError(reply.payload.decode())
            return reply

    def _check_for_stuck_worker(self) -> None:
        limit = self._task_timeout_s
        for worker in self._workers:
            busy = worker.busy
            if limit is not None and busy is not None and time.monotonic() - busy[1] > limit:
                worker.process.kill()
                self.close()
                raise WorkerError(
                    f"worker {worker.number} did not finish item {busy[0]} within "
                    f"{limit} s (task_timeout_s) and was stopped"
                )

    def _discard_tasks(self) -> None:
        try:
            while True:
                self._tasks.get_nowait()
        except queue.Empty:
            pass


@dataclass(frozen=True, slots=True)
class _Reply:
    """What became of an item; ``kind`` is empty where the worker itself was lost."""

    number: int
    worker: int
    kind: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class _Task:
    number: int
    payload: bytes
    done: queue.SimpleQueue[_Reply]


@dataclass(slots=True)
class _Worker:
    """A process, the parent's end of its pipe, and the item it is busy with since when."""

    number: int
    context: ForkServerContext | SpawnContext
    process: BaseProcess = field(init=False)
    pipe: Connection[Any, Any] = field(init=False)
    busy: tuple[int, float] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        # With our copy open, the pipe would not end when the worker does.
        theirs.close()

    def receive(self) -> bytes:
        """The next message.

        Raises:
            EOFError: The worker has ended.
        """
        # A grandchild may hold the pipe open, so the process is watched as well.
        if self.pipe not in wait([self.pipe, self.process.sentinel]):
            raise EOFError
        return self.pipe.recv_bytes()


def _context(method: StartMethod | None) -> ForkServerContext | SpawnContext:
    known = [name for name in ("forkserver", "spawn") if name in _start_methods()]
    name = known[0] if method is None else method
    if name not in known:
        raise ValueError(f"start method {name!r} is not one of {', '.join(known)}")
    if name == "spawn":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Loaded once in the server, torch costs a worker milliseconds instead of seconds.
    context.set_forkserver_preload(["torch", "empo_core.parallel"])
    return context


def _start_methods() -> list[str]:
    return multiprocessing.get_all_start_methods()


def _dumps(value: object, what: str) -> bytes:
    try:
        payload: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise WorkerError(
            f"{what} cannot be sent to a worker process: {type(error).__name__}: {error}. "
            "Leave out open files, locks and the like, or work without worker processes."
        ) from error
    return payload


def _serve(worker: _Worker, payload: bytes, tasks: queue.SimpleQueue[_Task | None]) -> None:
    """Thread of the parent: pass tasks to one worker and its replies back."""
    lost = ""
    try:
        worker.pipe.send_bytes(payload)
        message = worker.receive()
        if message[:1] != _OK:
            lost = f"worker {worker.number} could not load the function: {message[1:].decode()}"
    except (EOFError, OSError):
        lost = _obituary(worker, "before it could load the function")
    while (task := tasks.get()) is not None:
        if not lost:
            worker.busy = (task.number, time.monotonic())
            try:
                worker.pipe.send_bytes(task.payload)
                message = worker.receive()
            except (EOFError, OSError):
                lost = _obituary(worker, f"while it worked on item {task.number}")
            else:
                worker.busy = None
                task.done.put(_Reply(task.number, worker.number, message[:1], message[1:]))
                continue
        task.done.put(_Reply(task.number, worker.number, b"", lost.encode()))
    worker.pipe.close()


def _obituary(worker: _Worker, when: str) -> str:
    worker.process.join(_SHUTDOWN_S)
    code = worker.process.exitcode
    how = (
        f"was killed by signal {-code}" if code is not None and code < 0 else f"exited with {code}"
    )
    return (
        f"worker {worker.number} (process {worker.process.pid}) {how} {when}. Signal 9 often "
        "means that memory ran out; exit code 1 at the start, that a script starts workers "
        "outside of `if __name__ == '__main__':`."
    )


def _work(pipe: Connection[Any, Any]) -> None:
    """Main function of a worker process."""
    threading.Thread(target=die_with_parent, daemon=True).start()
    # Ctrl-C reaches the whole process group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    try:
        import torch

        torch.set_num_threads(1)
        function = cloudpickle.loads(pipe.recv_bytes())
        pipe.send_bytes(_OK)
    except EOFError:
        return
    except BaseException:
        pipe.send_bytes(_RAISED + traceback.format_exc().encode())
        return
    while True:
        try:
            payload = pipe.recv_bytes()
        except EOFError:
            return
        try:
            message = _OK + cloudpickle.dumps(function(cloudpickle.loads(payload)))
        except BaseException as error:
            text = f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}"
            message = _RAISED + text.encode(errors="backslashreplace")
        try:
            pipe.send_bytes(message)
        except OSError:
            return


def die_with_parent() -> None:
    """End this process when its parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        sys.stdout.flush()
        os._exit(1)


__all__ = ["StartMethod", "WorkerPool", "die_with_parent"]
