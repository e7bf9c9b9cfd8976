"""The executor ``ray``: workers on the machines of a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from empo_core.errors import WorkerError
from empo_core.plugins.imports import extra_imports
from empo_core.protocols.executors import Needs
from empo_executors.pickles import pickled
from empo_executors.silence import Silence
from empo_ray.addresses import allowed_address
from empo_ray.connection import Connection
from empo_ray.plugin import RayParams
from empo_ray.remote_worker import RemoteWorker

_STOP_SHARE = 0.3
"""Part of the time of ``shutdown`` in which workers may end by themselves."""
_LAST_S = 2.0
"""Seconds for which threads are waited for."""
_WATCH_S = 0.5
"""Time between two looks at the head and the workers."""


class RayExecutor:
    """Workers in actors of a Ray cluster; see ``empo_core.protocols.Executor``."""

    def __init__(self, params: RayParams) -> None:
        self._params = params
        self._connection: Connection | None = None
        self._workers: list[RemoteWorker] = []
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None
        self._lost = ""
        self._shared: tuple[object, Any] = (None, None)

    def start(self, make: Callable[[], object], needs: Needs) -> int:
        """Ask for a place for a worker, where it is built once there is one.

        Raises:
            WorkerError: if the cluster cannot be reached, is not allowed or was lost, has other
                software or, being this machine alone, fewer processors than all workers need.
        """
        if self._over.is_set():
            raise WorkerError("this executor was shut down; make a new one")
        if self._lost:
            raise WorkerError(self._lost)
        factory = pickled(make, "the worker factory")
        needs = needs if self._params.needs is None else self._params.needs.needs()
        connection = self._connect()
        alive = 1 + sum(worker.is_alive for worker in self._workers)
        if connection.is_local and alive * needs.cpus > connection.cpus:
            raise WorkerError(
                f"{alive} workers of {needs.cpus:g} CPUs need {alive * needs.cpus:g}, and this "
                f"machine has {connection.cpus:g}. Take fewer, let each need less (needs.cpus), "
                "or join a cluster (address)."
            )
        number = len(self._workers)
        self._workers.append(
            RemoteWorker(number, factory, extra_imports(), needs, self._without_place)
        )
        return number

    def call(
        self,
        worker: int,
        method: str,
        *arguments: object,
        on_report: Callable[[object], None] | None = None,
    ) -> Future[Any]:
        """Call a method of a worker; see ``Executor.call``."""
        return self._workers[worker].call(method, arguments, on_report, self._put)

    def kill(self, worker: int, reason: str) -> None:
        """End a worker by force."""
        self._workers[worker].end(reason)

    def shutdown(self, timeout_s: float = 5.0) -> None:
        """End all workers, and a cluster that was started here."""
        self._over.set()
        deadline = time.monotonic() + timeout_s * _STOP_SHARE
        if not self._lost:
            calls = [w.call("close", (), None, self._put) for w in self._workers if w.is_built]
            wait(calls, max(0.0, deadline - time.monotonic()))
        for worker in self._workers:
            worker.end("was stopped")
        deadline = time.monotonic() + _LAST_S  # Threads must not use a connection that is closed.
        for worker in self._workers:
            worker.join(deadline)
        if self._watcher is not None:
            self._watcher.join(_LAST_S)
        connection, self._connection = self._connection, None
        self._shared = None, None
        if connection is not None and not self._lost:
            connection.close()

    def _connect(self) -> Connection:
        if self._connection is None:
            params = self._params
            address = allowed_address(params.address, params.allow_addresses)
            self._connection = Connection(address, params.object_store_mb)
            self._watcher = threading.Thread(
                target=self._watch, args=(self._connection,), daemon=True
            )
            self._watcher.start()
        return self._connection

    def _put(self, argument: bytes) -> Any:
        """A reference to a large argument, which is stored once if several workers get it."""
        import ray

        last, reference = self._shared
        if last is not argument:
            try:
                reference = ray.put(argument)
            except ray.exceptions.RayError as error:
                raise WorkerError(
                    f"the object store of this machine cannot take {len(argument):,} bytes: "
                    f"{error}. object_store_mb of the executor (of a cluster: `ray start "
                    "--object-store-memory=BYTES`) sets its size."
                ) from error
            self._shared = argument, reference
        return reference

    def _without_place(self, worker: RemoteWorker, seconds: float) -> str:
        """The reason to give up a worker that has had no place for so long; else empty."""
        limit = self._params.place_timeout_s
        if seconds < limit or any(other.is_built for other in self._workers):
            return ""
        needs, address = worker.needs, self._connection and self._connection.address
        return (
            f"no node of the cluster at {address} had room for a worker of "
            f"{needs.cpus:g} CPUs, {needs.gpus:g} GPUs, {needs.memory_mb or 0} MiB and labels "
            f"{dict(needs.labels)} within {limit:g} s (place_timeout_s)"
        )

    def _watch(self, connection: Connection) -> None:
        """Thread: end all workers if the head is lost, and each that shows no sign of life."""
        silence, answers = Silence(), 0
        while not self._over.wait(_WATCH_S):
            answers += connection.answers()
            limit = self._params.unavailable_s
            if silence.seconds(answers) > limit:
                self._lost = (
                    f"the cluster at {connection.address} was lost: its head has not answered for "
                    f"{limit:g} s (unavailable_s); `ray status` on that machine says whether it "
                    "runs"
                )
                for worker in self._workers:
                    worker.lose_calls(self._lost)
                return
            for worker in list(self._workers):
                worker.watch(self._params.heartbeat_s)


__all__ = ["RayExecutor"]
