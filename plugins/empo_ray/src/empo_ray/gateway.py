"""The process that is connected to the cluster, for the executor in the process of the run.

Ray ends processes that lose their cluster, and runs once per process. Here it can do no harm:
whatever happens, the run sees a pipe that ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, TypeAlias

from empo_core.errors import WorkerError
from empo_executors.silence import Silence
from empo_ray.connection import connect, disconnect
from empo_ray.messages import (
    Begin,
    Broadcast,
    Command,
    Event,
    Factory,
    Kill,
    Opened,
    Refused,
    Settings,
    Stop,
    Submit,
    Tell,
)

if TYPE_CHECKING:
    from empo_ray.cluster import Cluster

Pipe: TypeAlias = "Connection[Event, Command]"
_TICK_S = 0.05
_LAST_S = 1.0
"""Seconds that actors have to end where the head is lost."""
WATCH_S = 1.0
"""Time between two looks at the nodes."""


def run_gateway(pipe: Pipe, settings: Settings) -> None:
    """Connect, then pass commands and events on until told to stop.

    Args:
        pipe: The connection to the executor.
        settings: What it wants.
    """
    lock = threading.Lock()

    def tell(event: Event, data: memoryview | None) -> None:
        with lock:
            pipe.send(event)
            if data is not None:
                pipe.send_bytes(data)

    os.environ.update(settings.environment)
    # Ray reports every death of a worker at length; the executor does so in a sentence.
    with open(os.devnull, "w") as nowhere:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere.fileno(), stream.fileno())
    try:
        tell(Opened(*connect(settings)), None)
        _serve(pipe, settings, tell)
    except WorkerError as error:
        tell(Refused(str(error)), None)
    except OSError:
        pass  # The executor is gone.
    except BaseException:
        tell(Refused(traceback.format_exc()), None)
    finally:
        os._exit(0)  # Where the head is lost, Ray's own end may wait for it.


def _serve(pipe: Pipe, settings: Settings, tell: Tell) -> None:
    """Pass commands and events on, for as long as the head answers."""
    from empo_ray.cluster import Cluster  # Which imports ray, behind the environment.

    cluster = Cluster(settings, tell)
    looks = _Looks(cluster)
    failures: list[BaseException] = []
    threading.Thread(target=looks.run, daemon=True).start()
    threading.Thread(target=_obey, args=(pipe, cluster, failures), daemon=True).start()
    silence = Silence()
    while not cluster.stopped:
        if failures:
            raise failures[0]
        cluster.collect(_TICK_S)
        if silence.seconds(looks.count) > settings.unavailable_s + WATCH_S:
            reason = (
                f"its head has not answered for {settings.unavailable_s:g} s (unavailable_s); "
                "`ray status` on that machine says whether it runs"
            )
            tell(Refused(reason), None)
            cluster.abandon(_LAST_S)
            return
    disconnect()


class _Looks:
    """Looks at the nodes every second, and counts the answers of the head."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.count = 0

    def run(self) -> None:
        """Thread: look for ever."""
        while True:
            self._cluster.look()
            self.count += 1
            time.sleep(WATCH_S)


def _obey(pipe: Pipe, cluster: Cluster, failures: list[BaseException]) -> None:
    """Thread: do what the executor says, until it says stop."""
    try:
        while not cluster.stopped:
            _do(pipe.recv(), cluster)
    except BaseException as error:
        failures.append(error)


def _do(command: Command, cluster: Cluster) -> None:
    match command:
        case Factory(data):
            cluster.set_factory(data)
        case Begin(key):
            cluster.begin(key)
        case Submit(key, request):
            cluster.submit(key, request)
        case Broadcast(version, data):
            cluster.broadcast(version, data)
        case Kill(key):
            cluster.kill(key)
        case Stop(timeout_s):
            cluster.stop(timeout_s)
