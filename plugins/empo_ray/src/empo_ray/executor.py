"""The executor ``ray``: workers on the machines of a cluster."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from empo_core.errors import WorkerError
from empo_core.plugins.imports import extra_imports
from empo_core.protocols.executors import (
    Account,
    Needs,
    Reply,
    WorkerFactory,
    WorkerState,
)
from empo_executors.blobs import pack_blob
from empo_executors.frames import pickled
from empo_executors.owned_folder import owned_folder
from empo_executors.start_deadline import StartDeadline
from empo_executors.supervision import Limits, Supervision
from empo_ray.addresses import LOCAL, allowed_address
from empo_ray.messages import Broadcast, Factory, Settings
from empo_ray.plugin import RayParams
from empo_ray.remote_workers import RemoteWorkers

log = logging.getLogger("empo_ray")
_CONNECT_S = 120.0


class RayExecutor:
    """Workers in actors of a Ray cluster; see ``empo_core.protocols.Executor``."""

    def __init__(self, params: RayParams) -> None:
        self._params = params
        self._remote: RemoteWorkers | None = None
        self._supervision = Supervision(None, 0, _limits(params), 0)
        self._folders: list[Path] = []

    def start(
        self, make: WorkerFactory, workers: int, needs: Needs, directory: Path, max_restarts: int
    ) -> None:
        """Connect, place the workers, and build those that have a place.

        Raises:
            WorkerError: The cluster cannot be reached or was not allowed, has other software or
                no room, or a worker cannot be built.
            StorageError: The disk refuses the folders of a local cluster.
        """
        if self._remote is not None:
            raise WorkerError("this executor runs already; stop it before starting it again")
        if find_spec("ray") is None:
            raise WorkerError("the executor 'ray' needs Ray 2.60: pip install 'ray==2.60.*'")
        factory = pickled(make, "the worker factory")
        settings = self._settings(needs, directory)
        self._remote = RemoteWorkers(settings, self._params.place_timeout_s)
        try:
            cpus = self._remote.open(_CONNECT_S)
            wanted = workers * settings.needs.cpus
            if settings.address == LOCAL and wanted > cpus:
                raise WorkerError(
                    f"{workers} workers of {settings.needs.cpus:g} CPUs need {wanted:g}, and this "
                    f"machine has {cpus:g}. Take fewer, let each need less (needs.cpus), or join "
                    "a cluster (address)."
                )
            self._remote.post(Factory(factory))
            limits = _limits(self._params)
            self._supervision = Supervision(self._remote, workers, limits, max_restarts)
            self._await_workers()
        except BaseException:
            self.stop()
            raise

    def submit(self, worker: int, request: bytes) -> int:
        """Send a request; see ``Executor.submit``."""
        return self._supervision.submit(worker, request)

    def next(self, timeout_s: float | None) -> Reply | None:
        """The next reply; watches and replaces workers meanwhile."""
        return self._supervision.next(timeout_s)

    def broadcast(self, blob: bytes, version: int) -> None:
        """Put the blob into the object store once; the newest two are kept.

        Raises:
            WorkerError: The version is not newer than the last, or nothing is running.
        """
        self._supervision.check_newer(version)
        assert self._remote is not None
        self._remote.post(Broadcast(version, pack_blob(blob, version)))
        self._supervision.version = version

    def replace(self, worker: int, reason: str) -> None:
        """End the present incarnation of a worker, which fails for this reason."""
        self._supervision.replace(worker, reason)

    def workers(self) -> Sequence[WorkerState]:
        """The state of every worker; without a place one counts as dead."""
        return self._supervision.states()

    def account(self) -> Sequence[Account]:
        """The numbers of every incarnation so far; ``sent`` is what it said last."""
        return self._supervision.accounts()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End all workers, and a cluster that was started here."""
        with self._supervision.lock:
            remote, self._remote = self._remote, None
            if remote is not None:
                self._supervision.stopped = True
                remote.end(timeout_s)
                self._supervision.bury()
            for folder in self._folders:
                shutil.rmtree(folder, ignore_errors=True)
            self._folders = []

    def _settings(self, needs: Needs, directory: Path) -> Settings:
        params = self._params
        address = allowed_address(params.address, params.allow_addresses)
        if address == LOCAL:
            # Paths of sockets are limited to 107 bytes, which that of a run may exceed.
            self._folders = [
                owned_folder(Path(tempfile.gettempdir()), "empo-ray-"),
                owned_folder(directory, "ray-"),
            ]
        return Settings(
            address=address,
            # A process that starts others may be older than the variables.
            environment={k: v for k, v in os.environ.items() if k.startswith("RAY_")},
            folder=str(self._folders[0]) if self._folders else "",
            spill=str(self._folders[-1]) if self._folders else "",
            object_store_mb=params.object_store_mb,
            needs=needs if params.needs is None else Needs(**params.needs.model_dump()),
            unavailable_s=params.unavailable_s,
            imports=extra_imports(),
        )

    def _await_workers(self) -> None:
        """Wait for a place for all, for a while, and for those that have one to be built."""
        placed = StartDeadline()
        give_up_at = time.monotonic() + self._params.place_timeout_s

        def is_over(states: Sequence[WorkerState]) -> bool:
            homeless = sum(state.pid is None for state in states)
            if homeless and time.monotonic() < give_up_at:
                return False
            return placed.is_over(sum(state.state == "ready" for state in states))

        self._supervision.await_workers(is_over)
        states = self.workers()
        if missing := sum(state.pid is None for state in states):
            log.warning(
                "The cluster has room for %d of %d workers; the others start once there is more.",
                len(states) - missing, len(states),
            )  # fmt: skip


def _limits(params: RayParams) -> Limits:
    return Limits(
        start_timeout_s=params.start_timeout_s,
        unavailable_s=params.heartbeat_s,
        dead_s=params.heartbeat_s + params.unavailable_s,
        silence="heartbeat_s and unavailable_s",
        in_flight=params.in_flight,
    )
