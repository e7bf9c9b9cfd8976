"""A worker process with environments as the learner sees it.

The process is one of an executor's (``empo_executors.worker_main``), but the learner reads and
writes the pipe itself: a thread in between would take longer than a step.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from empo_core.errors import CollectError, ConfigError
from empo_environments.env_group import Crash
from empo_environments.env_worker import EnvWorker
from empo_executors.shared_memory import Descriptor
from empo_executors.supervised_process import Context, SupervisedProcess, process_context
from empo_executors.worker_main import RAISED, READY, pack_call, run_worker, unpack_answer

_STEP = pack_call("step")
LOOK_S = 1.0
"""The longest time between two looks at workers, and the longest that counts as one: whoever was
suspended meanwhile cannot blame them."""


def worker_context() -> Context:
    """Start method of workers: never by ``fork``, which copies locks that threads hold."""
    # Loaded once in the server, they cost a worker milliseconds instead of seconds.
    return process_context(
        preload=["empo_environments.env_worker", "empo_environments.gymnasium_env"]
    )


class WaitingTime:
    """Seconds during which the learner has waited for workers."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def add_since(self, begun: float) -> None:
        """Count a wait that began at this time of ``time.monotonic``."""
        self.seconds += min(time.monotonic() - begun, LOOK_S)


class Worker:
    """A process with some environments, and our end of its pipe.

    Attributes:
        number: Which worker it is.
        block: The block that its environments belong to.
        busy: Whether it owes an answer.
        watched: Whether its pipe and its end are selected on.
    """

    def __init__(
        self,
        context: Context,
        number: int,
        block: int,
        make: Callable[[Descriptor], EnvWorker],
        memory: Descriptor,
        waiting_time: WaitingTime,
        answer_limit_s: float | None = None,
    ) -> None:
        """Start the process, which makes its environments.

        Args:
            context: How.
            number: Which worker it is.
            block: The block that its environments belong to.
            make: Makes its environments.
            memory: Shared memory of observations and actions.
            waiting_time: Of the learner, for all its workers.
            answer_limit_s: Seconds of that it may take to answer; None: as long as it likes.
        """
        self._waiting_time, self._limit_s = waiting_time, answer_limit_s
        self.number, self.block = number, block
        self.watched = self._answered = False
        self._process = SupervisedProcess(
            context, run_worker, (None, memory), f"environments-{number}"
        )
        self.pipe, self.pid = self._process.pipe, self._process.pid
        self.sentinel = self._process.sentinel
        self._send(cloudpickle.dumps(make))

    def step(self) -> None:
        """Let its environments act; ``receive`` or ``reply`` tells when they have."""
        self._send(_STEP)

    def request(self, name: str, *arguments: Any) -> None:
        """Let it call a method of its group; ``receive`` or ``reply`` tells the result."""
        self._send(pack_call(name, *arguments))

    def reply(self) -> Any:
        """The result of what was asked for, once it is there.

        Raises:
            Crash: if an environment raised, the process has ended, or it takes too long.
            ConfigError: if an environment does not fit.
            CollectError: if an environment did what it must not.
        """
        limit = None if self._limit_s is None else min(LOOK_S, self._limit_s)
        while True:
            begun = time.monotonic()
            if self._process.has_message(limit):
                return self.receive()
            if self._process.has_ended or limit is None:
                raise Crash(self._obituary())
            self._waiting_time.add_since(begun)
            self.refuse_late()

    def refuse_late(self) -> None:
        """Give up a worker that has owed an answer for too long.

        Raises:
            Crash: if the worker has.
        """
        late_s = self._waiting_time.seconds - self._asked_at
        if self._limit_s is None or not self.busy or late_s < self._limit_s:
            return
        if self._process.has_ended:
            return
        raise Crash(
            f"worker {self.number} (process {self.pid}) has not answered for {late_s:.0f} s: one "
            "of its environments hangs, or takes longer than the limit "
            f"(vectorisation.answer_limit_s: {self._limit_s:g})"
        )

    def receive(self) -> Any:
        """The same as ``reply``, where something is known to be there."""
        try:
            kind = READY
            while kind == READY:
                kind, content = unpack_answer(self.pipe.recv_bytes())
                self._answered = True
        except (EOFError, OSError):
            raise Crash(self._obituary()) from None
        self.busy = False
        if kind == RAISED:
            is_known = isinstance(content, CollectError | ConfigError)
            error = type(content) if is_known else CollectError
            raise error(f"worker {self.number} (process {self.pid}): {content}")
        return content

    def hang_up(self) -> None:
        """Let it close its environments and end; twice does no harm."""
        self.pipe.close()

    def end(self, deadline: float) -> None:
        """Wait until then for it to end, then end it by force; twice does no harm."""
        self.hang_up()
        self._process.end(deadline)

    def _send(self, message: bytes) -> None:
        self.busy, self._asked_at = True, self._waiting_time.seconds
        # Whoever waits for the answer finds out that the process is gone.
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(message)

    def _obituary(self) -> str:
        subject = f"worker {self.number} (process {self.pid})"
        return self._process.obituary(subject, at_start=not self._answered)
