"""Main function of a worker process: build the worker, then answer calls until told to stop."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from empo_core.errors import EmpoError, WorkerError
from empo_executors.pickles import pickled
from empo_executors.supervised_process import Pipe

READY, REPORT, ANSWER, RAISED = range(4)
"""Kinds of messages of a worker, each with a value; an empty message is a sign of life."""
STOP = b""
"""Message to a worker that ends it; all others are calls."""


_DONE = cloudpickle.dumps((ANSWER, None))
"""The most frequent answer."""


def run_worker(pipe: Pipe, beat_s: float | None, *handles: object) -> None:
    """Build a worker from the factory in the first message, and answer the calls that follow.

    Args:
        pipe: The only connection to the caller.
        beat_s: Seconds between two signs of life; None: there are none.
        handles: Arguments of the factory that a process must get when it starts.
    """
    server = _Server(pipe, beat_s)
    with contextlib.suppress(
        EOFError, OSError, _PipeError
    ):  # The caller is gone, or needs no more.
        server.serve(*handles)
    server.close()


def pack_call(method: str, *arguments: object, is_reporting: bool = False) -> bytes:
    """The message to a worker that calls a method.

    Raises:
        WorkerError: if the arguments cannot be sent.
    """
    return pickled((method, arguments, is_reporting), f"the arguments of {method!r}")


def unpack_answer(message: bytes) -> tuple[int, Any]:
    """Kind and value of a message of a worker."""
    return (ANSWER, None) if message == _DONE else cloudpickle.loads(message)


class _Server:
    def __init__(self, pipe: Pipe, beat_s: float | None) -> None:
        self._pipe, self._beat_s = pipe, beat_s
        self._lock = threading.Lock()
        self._call: Callable[..., object] | None = None

    def serve(self, *handles: object) -> None:
        """Answer calls until the caller stops this process or is gone."""
        call = self._call = methods_of(self._pipe.recv_bytes(), *handles)
        self._send(READY, None)
        if self._beat_s is not None:
            threading.Thread(target=self._beat, args=(self._beat_s,), daemon=True).start()
        before, request = STOP, ("", (), False)
        while (message := self._pipe.recv_bytes()) != STOP:
            if message != before or request[1]:  # A call without arguments is often repeated.
                before, request = message, cloudpickle.loads(message)
            method, arguments, is_reporting = request
            try:
                reports = (self._report,) if is_reporting else ()
                self._send(ANSWER, call(method, *reports, *arguments))
            except _PipeError:
                raise
            except BaseException as error:
                self._send(RAISED, sendable(error))

    def close(self) -> None:
        """Close the worker, if it was built."""
        if self._call is not None:
            self._call("close")

    def _report(self, value: object) -> bool:
        self._send(REPORT, value)
        return self._pipe.poll()

    def _send(self, kind: int, value: object) -> None:
        is_done = kind == ANSWER and value is None
        data = _DONE if is_done else cloudpickle.dumps((kind, value))
        try:
            with self._lock:
                self._pipe.send_bytes(data)
        except OSError as error:
            raise _PipeError from error

    def _beat(self, beat_s: float) -> None:
        wait = threading.Event().wait
        with contextlib.suppress(OSError):
            while not wait(beat_s):
                with self._lock:
                    self._pipe.send_bytes(b"")


class _PipeError(BaseException):
    """Leaves a call whose caller is gone."""


def methods_of(factory: bytes, *handles: object) -> Callable[..., object]:
    """A function that calls a method of the worker that a pickled factory builds of handles.

    If the worker cannot be built, every call raises the error of the factory. A worker without a
    method ``close`` has nothing to close.
    """
    try:
        worker = cloudpickle.loads(factory)(*handles)
    except BaseException as error:
        failure = sendable(error)

        def fail(method: str, *arguments: object) -> None:
            if method != "close":
                raise failure

        return fail

    def call(method: str, *arguments: object) -> object:
        if method == "close" and not hasattr(worker, "close"):
            return None
        return getattr(worker, method)(*arguments)

    return call


def sendable(error: BaseException) -> EmpoError:
    """The error as a caller in another process gets it: an ``EmpoError`` as it is, if possible."""
    if isinstance(error, EmpoError):
        with contextlib.suppress(Exception):
            cloudpickle.loads(cloudpickle.dumps(error))
            return error
    return WorkerError("".join(traceback.format_exception(error)))
