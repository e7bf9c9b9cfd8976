"""One actor process as the learner sees it.

A thread reads the process's pipe. Were the learner to read by itself, a process that is stopped
half-way through a message would block it for ever.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path

from empo_async_actors.cells import Cell, Cells
from empo_async_actors.child import run_actor
from empo_async_actors.frames import Disconnected, Frame, Kind, Receiver
from empo_core.errors import WorkerError

Context = ForkServerContext | SpawnContext
_KILL_S = 1.0
_LONGEST_LOOK_S = 1.0
"""Time without looking that counts at most: who was suspended cannot blame the actors."""


@dataclass(slots=True)
class Account:
    """What became of the frames of one incarnation of an actor.

    Attributes:
        actor: The actor's number.
        incarnation: How often it had been replaced before.
        sent: Frames it began to send, counted by itself before each.
        accepted: Frames that arrived whole and in order; at most 1 less.
        experiences: Those among them that carry experience.
        env_steps: Environment steps in them.
        delivered: Experiences that ``collect`` has returned.
        delivered_env_steps: Environment steps in those.
    """

    actor: int
    incarnation: int
    sent: int = 0
    accepted: int = 0
    experiences: int = 0
    env_steps: int = 0
    delivered: int = 0
    delivered_env_steps: int = 0


class ActorProcess:
    """A running actor, its pipe, its cells, and the thread that reads from it."""

    def __init__(
        self, context: Context, directory: Path, actor: int, incarnation: int, factory: bytes,
        index: int, events: queue.SimpleQueue[tuple[ActorProcess, Frame | None]],
    ) -> None:  # fmt: skip
        """Start the process.

        Args:
            context: How to start it.
            directory: Where cells and policies lie.
            actor: The actor's number.
            incarnation: How often it has been replaced.
            factory: The pickled actor factory.
            index: What the factory is called with.
            events: Receives every accepted frame, and None once there are no more.

        Raises:
            OSError: The system refuses a process, a pipe or a file.
        """
        self.actor = actor
        self.incarnation = incarnation
        self.account = Account(actor, incarnation)
        self.ready = False
        self.raised = False
        self.owes_state = False
        self.trouble = ""
        self._events = events
        self._path = directory / f"actor-{actor}-{incarnation}.cells"
        self._beat = (0, 0.0, time.monotonic())  # Last count, seconds without change, last look.
        self.cells = Cells.create(self._path)
        try:
            self._pipe, theirs = context.Pipe()
            # The process must be told by us when to end, so that no exit of ours waits for it.
            self._process = context.Process(
                target=run_actor, args=(theirs, self._path, actor, incarnation, index),
                daemon=True, name=f"actor-{actor}",
            )  # fmt: skip
            try:
                self._process.start()
            except BaseException:
                self._pipe.close()
                raise
            finally:
                # With our copy open, the pipe would not end when the process does.
                theirs.close()
        except BaseException:
            self._remove_cells()
            raise
        self._receiver = Receiver(self._pipe, actor, incarnation)
        self._pid = self._process.pid or 0
        self._sending = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=self._read, args=(factory,), name=f"actor-{actor}", daemon=True
        )
        self._thread.start()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._pid

    @property
    def closed(self) -> bool:
        """Whether everything was released; its cells are gone then."""
        return self._closed

    def count_sent(self) -> None:
        """Bring ``account.sent`` up to date."""
        if not self._closed:
            self.account.sent = self.cells[Cell.SENT]

    def silence_s(self) -> float:
        """For how long it has shown no sign of life."""
        count, silence, looked = self._beat
        now, beat = time.monotonic(), self.cells[Cell.BEAT] + self.cells[Cell.SENT]
        silence = 0.0 if beat != count else silence + min(now - looked, _LONGEST_LOOK_S)
        self._beat = (beat, silence, now)
        return silence

    def send_state(self, message: bytes) -> None:
        """Let the actor go on from a state, before it acts again."""
        # The pipe may be full, so somebody else waits.
        threading.Thread(target=self._send, args=(message,), daemon=True).start()
        self.cells[Cell.MESSAGES] += 1

    def kill(self) -> None:
        """End the process by force; even one that is stopped."""
        if not self._closed:
            self._process.kill()

    def join(self, timeout_s: float) -> bool:
        """Wait for the process to end, and say whether it has."""
        if self._closed:
            return True
        self._process.join(timeout_s)
        return self._process.exitcode is not None

    def obituary(self) -> str:
        """Why the process ended, with the actor's traceback where there is one."""
        who = f"actor {self.actor} (process {self.pid}, incarnation {self.incarnation})"
        if self.trouble:
            return f"{who} {self.trouble}"
        code = self._process.exitcode
        if code is None:
            return f"{who} closed its pipe"
        if code < 0:
            advice = "; signal 9 often means that memory ran out" if code == -9 else ""
            return f"{who} was killed by signal {-code}{advice}"
        advice = "" if self.ready else (
            "; at the start this often means that a script starts actors outside of "
            "`if __name__ == '__main__':`"
        )  # fmt: skip
        return f"{who} exited with code {code} without being asked to{advice}"

    def close(self) -> None:
        """Kill the process if it lives, and release everything; twice does no harm."""
        if self._closed:
            return
        self.kill()
        ended = self.join(_KILL_S)
        self._thread.join(_KILL_S)
        self.count_sent()
        self._closed = True
        self._remove_cells()
        if not self._thread.is_alive():
            self._pipe.close()
        if ended:
            self._process.close()

    def _remove_cells(self) -> None:
        self.cells.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _send(self, message: bytes) -> None:
        # Where the process is gone, the reading thread finds out.
        with self._sending, contextlib.suppress(OSError):
            self._pipe.send_bytes(message)

    def _read(self, factory: bytes) -> None:
        """Thread: send the factory, then accept frames for as long as there are any."""
        self._send(factory)
        try:
            # A process that the actor started may hold the pipe open, so both are watched.
            while self._pipe in wait([self._pipe, self._process.sentinel]):
                frame = self._receiver.receive()
                self.account.accepted += 1
                if frame.kind is Kind.RAISED:
                    self.raised = True
                    self.trouble = f"raised\n{frame.payload.decode()}"
                elif frame.kind is Kind.EXPERIENCE:
                    self.account.experiences += 1
                    self.account.env_steps += frame.env_steps
                self._events.put((self, frame))
        except Disconnected:
            pass
        except (WorkerError, OSError, ValueError) as error:
            self.trouble = f"was cut off: {error}"
        finally:
            self._events.put((self, None))


__all__ = ["Account", "ActorProcess", "Context"]
