"""Executors: worker processes that answer requests, on this machine or on others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

Payload: TypeAlias = Sequence[bytes | memoryview]
"""One message in pieces, which are joined in their order."""
Send: TypeAlias = Callable[[Payload], bool]
"""Sends a part of an answer ahead; True where another request waits for the worker."""


@runtime_checkable
class Worker(Protocol):
    """Answers requests in a process of its own, one after the other."""

    def call(self, request: bytes, send: Send) -> Payload:
        """Answer one request.

        Args:
            request: What the caller submitted.
            send: Sends a payload before the answer; newer broadcasts are loaded inside of it.

        Returns:
            The answer, which may be empty.
        """

    def load(self, blob: memoryview, version: int) -> None:
        """Take over the newest broadcast; versions only grow."""

    def close(self) -> None:
        """Release what the worker holds; called once, before its process ends by itself."""


WorkerFactory: TypeAlias = Callable[[int, int], Worker]
"""From a worker's number and its incarnation to the worker; sent by ``cloudpickle``."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources of each worker; an executor on one machine does not enforce them.

    Attributes:
        cpus: Processor cores.
        gpus: Accelerators, possibly a fraction of one.
        memory_mb: Main memory in MiB; None: any.
        labels: Properties that the worker's node must have.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    memory_mb: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """One message of a worker, or the loss of a call.

    Attributes:
        worker: The worker's number.
        incarnation: How often the worker had been replaced before.
        number: Number of the call within the incarnation, from 0.
        kind: ``part``: sent before the answer; ``answer``: the call's result; ``raised``: the
            call ended with an exception; ``lost``: the worker ended before it answered. A call
            has any number of parts, then exactly one of the other kinds.
        version: The newest broadcast that the worker had loaded.
        payload: Of a part or an answer; writable.
        traceback: Of an exception, or how the worker ended.
    """

    worker: int
    incarnation: int
    number: int
    kind: Literal["part", "answer", "raised", "lost"]
    version: int = 0
    payload: bytearray = field(default_factory=bytearray)
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker at this moment.

    Attributes:
        number: The worker's number.
        incarnation: How often it was replaced.
        node: Name of the machine that it runs on.
        pid: Its process there; None while there is none.
        state: ``starting``: being built; ``ready``; ``unavailable``: silent for long, but not
            given up; ``dead``: ended and to be replaced; ``given_up``: not replaced any more.
        version: The newest broadcast that it has loaded.
        in_flight: Calls that were submitted and have not ended.
        last_failure: Why its last incarnation ended; empty where none has.
    """

    number: int
    incarnation: int
    node: str
    pid: int | None
    state: Literal["starting", "ready", "unavailable", "dead", "given_up"]
    version: int
    in_flight: int
    last_failure: str


@dataclass(slots=True)
class Account:
    """Numbers of one incarnation; ``submitted = answered + lost + in flight``.

    Attributes:
        worker: The worker's number.
        incarnation: How often it had been replaced before.
        submitted: Calls.
        answered: Calls that were answered or raised.
        lost: Calls that ended with the incarnation.
        sent: Messages that the worker began to send, counted by itself before each.
        accepted: Messages that arrived whole and in order.
        received_bytes: Bytes of their payloads.
    """

    worker: int
    incarnation: int
    submitted: int = 0
    answered: int = 0
    lost: int = 0
    sent: int = 0
    accepted: int = 0
    received_bytes: int = 0


@runtime_checkable
class Executor(Protocol):
    """Runs workers, watches them, and replaces those that fail. Not thread-safe."""

    def start(
        self, make: WorkerFactory, workers: int, needs: Needs, directory: Path, max_restarts: int
    ) -> None:
        """Build the workers and wait for them; one that hangs does not hold up the others.

        Args:
            make: Builds a worker, in its process.
            workers: How many.
            needs: Resources of each.
            directory: Receives files, if there must be any, until ``stop``.
            max_restarts: Replacements of one worker within a minute, or in a row without any
                payload; beyond that it is given up.

        Raises:
            WorkerError: if a worker cannot be built; the message holds its traceback.
        """

    def submit(self, worker: int, request: bytes) -> int:
        """Send a request, at most once, and return its number within the incarnation.

        Raises:
            WorkerError: if the worker has no process, or as many calls in flight as allowed.
        """

    def next(self, timeout_s: float | None) -> Reply | None:
        """The next reply of any worker, and the occasion to watch and replace workers.

        Returns:
            None after ``timeout_s`` seconds (None: never), or once all workers are given up or
            stopped and nothing more can come.
        """

    def broadcast(self, blob: bytes, version: int) -> None:
        """Let every worker load this before any call that is submitted later; returns at once."""

    def replace(self, worker: int, reason: str) -> None:
        """End the present incarnation of a worker as failed, and start another."""

    def workers(self) -> Sequence[WorkerState]:
        """The state of every worker, in the order of their numbers."""

    def account(self) -> Sequence[Account]:
        """The numbers of every incarnation so far."""

    def stop(self, timeout_s: float = 5.0) -> None:
        """End all workers, by force where they do not by themselves; any time, also twice.

        ``next`` still returns what has arrived, and the calls that were lost.
        """
