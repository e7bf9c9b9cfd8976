"""A worker on a cluster, as the process of the run sees it."""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from empo_core.errors import EmpoError, LostError, WorkerError
from empo_core.protocols.executors import Needs
from empo_executors.pickles import pickled
from empo_executors.silence import Silence
from empo_executors.worker_main import ANSWER, REPORT
from empo_ray.software import differences, software

log = logging.getLogger("empo_ray")
LARGE_BYTES = 100_000
"""Bytes from which on an argument travels through the object store."""
_TICK_S = 0.5
_LATE_S = 10.0
"""Seconds without a place after which people are told."""


class RemoteWorker:
    """An actor, the calls that it has not answered, and a thread that waits for its answers.

    Attributes:
        needs: Resources of the actor.
        is_built: Whether the actor runs on a node with the right software.
    """

    def __init__(
        self,
        number: int,
        factory: bytes,
        imports: Sequence[str],
        needs: Needs,
        without_place: Callable[[RemoteWorker, float], str],
    ) -> None:
        """Ask for an actor.

        Args:
            number: The worker's number.
            factory: The pickled function that builds the worker.
            imports: Packages that the actor imports first.
            needs: Resources of the actor.
            without_place: From this worker and the seconds without a place to the reason to wait
                no longer; empty to wait on.
        """
        import ray

        from empo_ray.host import Host

        self.needs, self.is_built = needs, False
        self._who, self._end = f"worker {number}", ""
        self._error: type[EmpoError] = LostError
        self._lock = threading.Lock()
        self._number = 0
        self._calls: deque[tuple[Future[Any], Callable[[object], None] | None, Any]] = deque()
        self._news: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True for every call; False at the end."""
        # Never restarted by Ray, which would lose the state of a worker without a word.
        host = ray.remote(max_restarts=0, max_task_retries=0, concurrency_groups={"io": 1})(Host)
        self._actor = host.options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, memory=(needs.memory_mb or 0) * 2**20 or None,
            label_selector=dict(needs.labels) or None, scheduling_strategy="SPREAD",
        ).remote(factory, imports)  # fmt: skip
        self._silence, self._signs = Silence(), 0
        self._hello = self._io("hello")
        self._reader = threading.Thread(target=self._read, args=(without_place,), daemon=True)
        self._reader.start()

    @property
    def is_alive(self) -> bool:
        """True unless the worker has ended."""
        return not self._end

    def call(
        self,
        method: str,
        arguments: tuple[object, ...],
        on_report: Callable[[object], None] | None,
        put: Callable[[bytes], Any],
    ) -> Future[Any]:
        """Send a call; ``put`` makes references to large arguments; see ``Executor.call``."""
        from empo_ray.host import Large

        large: list[Any] = []
        small: list[object] = []
        for argument in arguments:
            is_large = isinstance(argument, bytes) and len(argument) >= LARGE_BYTES
            small.append(Large(len(large)) if is_large else argument)
            if isinstance(argument, bytes) and is_large:
                large.append(put(argument))
        data = pickled(small, f"the arguments of {method!r}")
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if not self._end:
                number, self._number = self._number, self._number + 1
                done = self._io("submit", number, method, data, on_report is not None, *large)
                stream = self._actor.stream.options(num_returns="streaming").remote(number, done)
                self._calls.append((future, on_report, stream))
                self._news.put(True)
                return future
        future.set_exception(self._error(self._end))
        return future

    def watch(self, heartbeat_s: float) -> None:
        """End the worker if it shows no sign of life."""
        import ray

        if not self.is_built or self._end:
            return
        if ray.wait([self._hello], timeout=0)[0]:
            self._signs += 1
            self._hello = self._io("hello")
        if self._silence.seconds(self._signs) > heartbeat_s:
            self.end(f"showed no sign of life for {heartbeat_s:g} s (heartbeat_s) and was killed")

    def end(self, reason: str) -> None:
        """End the worker by force, for this reason."""
        import ray

        if not self._end:
            self.lose_calls(f"{self._who} {reason}")
            with contextlib.suppress(Exception):  # Where the head is lost, too.
                ray.kill(self._actor)

    def join(self, deadline: float) -> None:
        """Wait until ``deadline`` (of ``time.monotonic``) for the thread to end."""
        self._reader.join(max(0.0, deadline - time.monotonic()))

    def lose_calls(self, reason: str, error: type[EmpoError] = LostError) -> None:
        """End all calls that have not been answered, and all later ones."""
        with self._lock:
            if not self._end:
                self._end, self._error = reason, error
            calls, self._calls = self._calls, deque()
        self._news.put(False)
        for future, _, _ in calls:
            future.set_exception(self._error(self._end))

    def _io(self, method: str, *arguments: object) -> Any:
        call = getattr(self._actor, method).options(concurrency_group="io")
        return call.remote(*arguments)

    def _read(self, without_place: Callable[[RemoteWorker, float], str]) -> None:
        """Thread: wait for a place, then pass on what comes of one call after the other."""
        import ray

        try:
            self._settle(without_place)
            while self._news.get() and self._calls:
                future, on_report, stream = self._calls[0]
                for reference in stream:
                    kind, value = cloudpickle.loads(ray.get(reference))
                    if kind != REPORT:
                        self._finish(future, kind, value)
                    elif on_report is not None and not self._end:
                        on_report(value)
        except WorkerError as error:
            self.lose_calls(f"{self._who} {error}", WorkerError)
        except Exception as error:
            missing = "" if self.is_built else _missing(error)
            if missing:
                self.lose_calls(f"{self._who} {missing}", WorkerError)
            self.lose_calls(f"{self._who} {_death(error)}")
        finally:
            with contextlib.suppress(Exception):
                ray.kill(self._actor)

    def _settle(self, without_place: Callable[[RemoteWorker, float], str]) -> None:
        """Wait for a place, and compare the software there with that here.

        Raises:
            WorkerError: if there is no place for any worker, or the software differs.
        """
        import ray

        begun, is_told = time.monotonic(), False
        while not ray.wait([self._hello], timeout=_TICK_S)[0]:
            if self._end:
                return
            seconds = time.monotonic() - begun
            if reason := without_place(self, seconds):
                raise WorkerError(f"was not started: {reason}")
            if seconds > _LATE_S and not is_told:
                is_told = True
                log.warning("%s has no place on the cluster yet, or starts slowly.", self._who)
        node, pid, theirs = ray.get(self._hello)
        self._who += f" (process {pid} on {node})"
        if different := differences(software(), theirs):
            raise WorkerError(f"runs on a node with other software: {'; '.join(different)}")
        self._silence, self.is_built = Silence(), True

    def _finish(self, future: Future[Any], kind: int, value: Any) -> None:
        with self._lock:
            if self._end:
                return
            self._calls.popleft()
        if kind == ANSWER:
            future.set_result(value)
        else:
            future.set_exception(value)


def _missing(error: Exception) -> str:
    """The package that a node lacks, as a clause; empty where the error is another one."""
    match = re.search(
        r"\bip=([^,)]+)(?s:.*)ModuleNotFoundError: (No module named '\S+')", str(error)
    )
    if not match:
        return ""
    return f"ended: node {match[1]} has other software ({match[2]}); install the same there as here"


def _death(error: Exception) -> str:
    """One clause of the several sentences in which Ray says why an actor is gone."""
    text = " ".join(str(error).split()).partition(" Some common causes")[0]
    return f"ended: {text.partition('The actor is dead because ')[2] or text}"
