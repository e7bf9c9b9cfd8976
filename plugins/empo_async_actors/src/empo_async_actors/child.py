"""What runs in an actor's process."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from empo_async_actors.cells import Cell, Cells
from empo_async_actors.frames import Disconnected, Kind, Sender, encode_arrays
from empo_async_actors.policy import read_policy
from empo_core.errors import WorkerError
from empo_core.parallel import die_with_parent
from empo_core.protocols import Actor

_PAUSE_S = 0.001
"""How often an actor that must wait looks whether it may go on."""


def run_actor(
    pipe: Connection[Any, Any], cells: Path, actor: int, incarnation: int, index: int
) -> None:
    """Build an actor from the factory in the first message, and act until told to stop.

    Args:
        pipe: The only connection to the learner.
        cells: The file of the cells; policies lie in the same folder.
        actor: The actor's number.
        incarnation: How often it has been replaced.
        index: What the factory is called with.
    """
    threading.Thread(target=die_with_parent, daemon=True).start()
    # A signal to the whole process group reaches the learner too, which decides what it means.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    link = _Link(pipe, Cells(cells), cells.parent, Sender(pipe, actor, incarnation))
    try:
        _build_and_act(link, index)
    except Disconnected:
        return
    except BaseException:
        try:
            link.send(Kind.RAISED, [traceback.format_exc().encode(errors="backslashreplace")])
        except Disconnected:
            return


class _Link:
    """What connects the actor with the learner."""

    def __init__(
        self, pipe: Connection[Any, Any], cells: Cells, directory: Path, sender: Sender
    ) -> None:
        self.cells = cells
        self.version = 0
        self._pipe = pipe
        self._directory = directory
        self._sender = sender
        self._messages = 0
        self._answered = 0

    def receive(self) -> Any:
        """The next message of the learner.

        Raises:
            Disconnected: The learner is gone.
        """
        try:
            data = self._pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise Disconnected from error
        return cloudpickle.loads(data)

    def send(self, kind: Kind, parts: list[bytes | memoryview], env_steps: int = 0,
             version: int | None = None) -> None:  # fmt: skip
        """Count and send a frame."""
        self.cells[Cell.SENT] += 1
        version = self.version if version is None else version
        self._sender.send(kind, parts, version=version, env_steps=env_steps)

    def beat(self) -> None:
        """Show that this process is alive."""
        self.cells[Cell.BEAT] += 1

    def follow(self, actor: Actor) -> None:
        """Do what the learner has asked for: load a state, load a policy, send the state."""
        while self._messages < self.cells[Cell.MESSAGES]:
            self._messages += 1
            actor.load_state_dict(self.receive())
        version = self.cells[Cell.VERSION]
        if version != self.version:
            self._load(actor, version)
        asked = self.cells[Cell.STATE_ASKED]
        if asked != self._answered:
            self._answered = asked
            self.send(Kind.STATE, [cloudpickle.dumps(actor.state_dict())])

    def _load(self, actor: Actor, version: int) -> None:
        try:
            weights = read_policy(self._directory, version)
        except FileNotFoundError:
            if self.cells[Cell.VERSION] == version:
                raise
            return  # Two newer ones were published meanwhile; the next look finds them.
        actor.load(weights, version)
        self.version = version
        self.cells[Cell.ACKNOWLEDGED] = version


def _build_and_act(link: _Link, index: int) -> None:
    import torch

    torch.set_num_threads(1)
    actor: Actor = link.receive()(index)
    link.send(Kind.READY, [])
    env_steps = 0
    while not link.cells[Cell.STOP]:
        link.beat()
        # In this order: whoever sees a grant also sees the policy published before it.
        granted = link.cells[Cell.GRANTED]
        link.follow(actor)
        if env_steps >= granted:
            time.sleep(_PAUSE_S)
            continue
        experience = actor.act(link.cells[Cell.TRAINING_STEP])
        if experience.env_steps < 1:
            raise WorkerError(
                f"act returned an experience of {experience.env_steps} environment steps; every "
                "call must take at least 1, or the learner would wait for ever"
            )
        env_steps += experience.env_steps
        parts = encode_arrays(experience.arrays)
        link.send(Kind.EXPERIENCE, parts, experience.env_steps, experience.version)


__all__ = ["run_actor"]
