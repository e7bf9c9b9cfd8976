"""Executors: workers in processes of their own, whose methods are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

Report: TypeAlias = Callable[[object], bool]
"""Sends a value ahead of a call's result; True if another call waits for the worker."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources of a worker; an executor on one machine does not enforce them.

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


@runtime_checkable
class Executor(Protocol):
    """Starts workers, each any object in a process of its own, and calls their methods.

    A worker that ends is not replaced by the executor: the calls that it had not answered raise
    ``LostError``, and so do all later ones.
    """

    def start(self, make: Callable[[], object], needs: Needs) -> int:
        """Start a process that builds a worker, and return the worker's number at once.

        Args:
            make: Builds the worker in its process; sent there by ``cloudpickle``. If ``make``
                raises an exception, so does every call of the worker.
            needs: Resources of the process.

        Raises:
            WorkerError: if ``make`` cannot be sent, or no process can be started.
        """

    def call(
        self,
        worker: int,
        method: str,
        *arguments: object,
        on_report: Callable[[object], None] | None = None,
    ) -> Future[Any]:
        """Call a method; a worker executes its calls one after the other, in their order.

        Args:
            worker: The worker's number.
            method: Name of the method.
            arguments: Arguments of the method; sent by ``cloudpickle``.
            on_report: If given, the method gets a ``Report`` as its first argument, and every
                value that the method reports is passed to ``on_report``, in order and before the
                result, in a thread of the executor.

        Returns:
            The method's result. The future raises an ``EmpoError`` of the method as it is, any
            other exception as a WorkerError with the traceback, and LostError if the worker ends
            before it answers.

        Raises:
            WorkerError: if the arguments cannot be sent.
        """

    def kill(self, worker: int, reason: str) -> None:
        """End a worker by force; the LostError of its calls gives the reason."""

    def shutdown(self, timeout_s: float = 5.0) -> None:
        """End all workers, by force where they do not end by themselves; may be called twice.

        A worker ends by itself after the call that it is at; its ``close`` is called, if any.
        """
