"""The executor ``ray``: workers on the machines of a cluster."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from empo_core.errors import WorkerError
from empo_core.plugins.imports import extra_imports
from empo_core.protocols.executors import Needs, WorkerFactory, WorkerState
from empo_executors.frames import pickled
from empo_executors.owned_folder import owned_folder
from empo_executors.start_deadline import StartDeadline
from empo_executors.supervised_executor import SupervisedExecutor
from empo_executors.supervision import Limits
from empo_ray.addresses import LOCAL, allowed_address
from empo_ray.messages import Factory, Settings
from empo_ray.plugin import RayParams
from empo_ray.remote_workers import RemoteWorkers

log = logging.getLogger("empo_ray")
_CONNECT_S = 120.0


class RayExecutor(SupervisedExecutor[RemoteWorkers]):
    """Workers in actors of a Ray cluster; see ``empo_core.protocols.Executor``."""

    def __init__(self, params: RayParams) -> None:
        super().__init__(_limits(params))
        self._params = params

    def start(
        self, make: WorkerFactory, workers: int, needs: Needs, directory: Path, max_restarts: int
    ) -> None:
        """Connect, place the workers, and build those that have a place.

        Raises:
            WorkerError: The cluster cannot be reached or was not allowed, has other software or
                no room, or a worker cannot be built.
            StorageError: The disk refuses the folders of a local cluster.
        """
        self._check_stopped()
        if find_spec("ray") is None:
            raise WorkerError("the executor 'ray' needs Ray 2.60: pip install 'ray==2.60.*'")
        factory = pickled(make, "the worker factory")
        settings = self._settings(needs, directory)
        self._backend = remote = RemoteWorkers(settings, self._params.place_timeout_s)
        try:
            cpus = remote.open(_CONNECT_S)
            wanted = workers * settings.needs.cpus
            if settings.address == LOCAL and wanted > cpus:
                raise WorkerError(
                    f"{workers} workers of {settings.needs.cpus:g} CPUs need {wanted:g}, and this "
                    f"machine has {cpus:g}. Take fewer, let each need less (needs.cpus), or join "
                    "a cluster (address)."
                )
            remote.post(Factory(factory))
            self._await_workers(remote, workers, max_restarts, self._start_limit())
        except BaseException:
            self.stop()
            raise
        if missing := sum(state.pid is None for state in self.workers()):
            log.warning(
                "The cluster has room for %d of %d workers; the others start once there is more.",
                workers - missing, workers,
            )  # fmt: skip

    def _settings(self, needs: Needs, directory: Path) -> Settings:
        params = self._params
        address = allowed_address(params.address, params.allow_addresses)
        folder = spill = ""
        if address == LOCAL:
            spill = str(owned_folder(directory, "ray-"))
            # Paths of sockets are limited to 107 bytes, which that of a run may exceed.
            folder = str(owned_folder(Path(tempfile.gettempdir()), "empo-ray-"))
        return Settings(
            address=address,
            # A process that starts others may be older than the variables.
            environment={k: v for k, v in os.environ.items() if k.startswith("RAY_")},
            folder=folder,
            spill=spill,
            object_store_mb=params.object_store_mb,
            needs=needs if params.needs is None else params.needs.needs(),
            unavailable_s=params.unavailable_s,
            imports=extra_imports(),
        )

    def _start_limit(self) -> Callable[[Sequence[WorkerState]], bool]:
        """The rule by which workers are waited for no longer.

        All may find a place for a while; those that have one are to be built.
        """
        placed = StartDeadline()
        give_up_at = time.monotonic() + self._params.place_timeout_s

        def is_over(states: Sequence[WorkerState]) -> bool:
            homeless = sum(state.pid is None for state in states)
            if homeless and time.monotonic() < give_up_at:
                return False
            return placed.is_over(sum(state.state == "ready" for state in states))

        return is_over


def _limits(params: RayParams) -> Limits:
    return Limits(
        start_timeout_s=params.start_timeout_s,
        unavailable_s=params.heartbeat_s,
        dead_s=params.heartbeat_s + params.unavailable_s,
        silence="heartbeat_s and unavailable_s",
        in_flight=params.in_flight,
    )
