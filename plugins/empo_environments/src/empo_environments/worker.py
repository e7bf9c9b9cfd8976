"""A worker process as the learner sees it."""

from __future__ import annotations

import contextlib
import os
import time
from multiprocessing.reduction import send_handle
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from empo_core.protocols.environments import EnvSpec
from empo_environments.env_group import Crash
from empo_environments.worker_main import DONE, RAISED, REQUEST, STEP, run_worker
from empo_executors.supervised_process import Context, SupervisedProcess, process_context


def worker_context() -> Context:
    """Start method of workers: never by ``fork``, which copies locks that threads hold."""
    # Loaded once in the server, they cost a worker milliseconds instead of seconds.
    return process_context(
        preload=["empo_environments.worker_main", "empo_environments.gymnasium_env"]
    )


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
        places: tuple[int, int],
        globals_seed: tuple[int, ...] = (0,),
        answer_limit_s: float | None = None,
    ) -> None:
        """Start the process.

        Args:
            context: How.
            number: Which worker it is.
            block: The block that its environments belong to.
            places: Place of its first environment, and number of the vector's first one.
            globals_seed: Seed of its process-wide generators, and the key of their stream.
            answer_limit_s: Seconds that it may take to answer; None: as long as it likes.
        """
        self._limit_s, self._asked_at = answer_limit_s, time.monotonic()
        self.number, self.block = number, block
        self.busy = self.watched = self._answered = False
        self._process = SupervisedProcess(
            context, run_worker, (*places, globals_seed), f"environments-{number}"
        )
        self.pipe, self.pid = self._process.pipe, self._process.pid
        self.sentinel = self._process.sentinel

    def make(self, payload: bytes) -> None:
        """Let it make its environments; ``reply`` tells what they are like."""
        self._send(b"", payload)

    def attach(self, env_spec: EnvSpec, descriptor: int) -> None:
        """Let it read and write the shared memory behind a file descriptor."""
        self._send(b"", cloudpickle.dumps(env_spec))
        with contextlib.suppress(OSError):
            send_handle(self.pipe, descriptor, self.pid)

    def step(self) -> None:
        """Let its environments act; ``receive`` or ``reply`` tells when they have."""
        self._send(STEP)

    def request(self, name: str, *arguments: Any) -> None:
        """Let it call a method of its group; ``receive`` or ``reply`` tells the result."""
        self._send(REQUEST, cloudpickle.dumps((name, arguments)))

    def reply(self) -> Any:
        """The result of what was asked for, once it is there.

        Raises:
            Crash: if an environment raised, or the process has ended.
            ConfigError: if an environment does not fit.
            CollectError: if an environment did what it must not.
        """
        if not self._process.has_message(self._limit_s):
            self.refuse_late()
            raise Crash(self._obituary())
        return self.receive()

    def refuse_late(self) -> None:
        """Give up a worker that has owed an answer for too long.

        Raises:
            Crash: if it has.
        """
        late_s = time.monotonic() - self._asked_at
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
        """The same, where something is known to be there."""
        try:
            kind = os.read(self.pipe.fileno(), 1)
            content: Any = None
            if kind != DONE:
                content = cloudpickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            raise Crash(self._obituary()) from None
        self.busy, self._answered = False, True
        if kind == RAISED:
            error, text = content
            raise error(f"worker {self.number} (process {self.pid}): {text}")
        return content

    def hang_up(self) -> None:
        """Let it close its environments and end; twice does no harm."""
        self.pipe.close()

    def end(self, deadline: float) -> None:
        """Wait until then for it to end, then end it by force; twice does no harm."""
        self.hang_up()
        self._process.end(deadline)

    def _send(self, kind: bytes, content: bytes | None = None) -> None:
        self.busy, self._asked_at = True, time.monotonic()
        # Whoever waits for the answer finds out that the process is gone.
        with contextlib.suppress(OSError):
            os.write(self.pipe.fileno(), kind)
            if content is not None:
                self.pipe.send_bytes(content)

    def _obituary(self) -> str:
        subject = f"worker {self.number} (process {self.pid})"
        return self._process.obituary(subject, at_start=not self._answered)
