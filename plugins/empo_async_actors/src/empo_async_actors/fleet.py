"""All actors of a run: starting, watching, telling and stopping them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import psutil

from empo_async_actors.cells import Cell
from empo_async_actors.frames import Frame, Kind
from empo_async_actors.plugin import AsyncParams
from empo_async_actors.process import Account, ActorProcess, Context
from empo_async_actors.slot import Slot
from empo_core.errors import CollectError, StorageError
from empo_core.protocols import ActorFactory

_TICK_S = 0.02
"""The longest wait between two looks at the actors."""
_STOP_S = 1.5
"""What actors may take to end by themselves."""
_SHOWN = 3
"""Of how many actors an error shows the traceback."""
_PREFIX = "actors-"


class Fleet:
    """The actors between one ``start`` and one ``stop``."""

    def __init__(self, params: AsyncParams, make_actor: ActorFactory, directory: Path) -> None:
        """Prepare; nothing runs before ``launch``.

        Args:
            params: What the config says.
            make_actor: Builds an actor; every one that is built gets the next number, so that
                a replacement does not repeat the random choices of its predecessor.
            directory: Receives a folder for as long as the fleet exists.

        Raises:
            CollectError: The factory cannot be sent, or the start method does not exist here.
            StorageError: The disk refuses.
        """
        self._params = params
        self._context = _context(params.start_method)
        self._factory = pickled(make_actor, "the actor factory")
        self._events: queue.SimpleQueue[tuple[ActorProcess, Frame | None]] = queue.SimpleQueue()
        self._told: dict[Cell, int] = {}
        self._accounts: list[Account] = []
        self._acknowledged = [0] * params.actors
        self._launched = False
        self.built = 0
        self.states: list[Any] = [None] * params.actors
        self.slots = [
            Slot(actor, self._begin, params.max_restarts) for actor in range(params.actors)
        ]
        self._made_parent = not directory.exists()
        self.directory = _folder(directory)

    @property
    def processes(self) -> list[ActorProcess]:
        """The actors that are ready to act or acting."""
        return [process for process in self._begun if process.ready]

    @property
    def _begun(self) -> list[ActorProcess]:
        return [slot.process for slot in self.slots if slot.process is not None]

    @property
    def restarts(self) -> int:
        """How many processes were started in place of others."""
        return sum(slot.restarts for slot in self.slots)

    def accounts(self) -> list[Account]:
        """What became of the frames of every incarnation so far."""
        for process in self._begun:
            process.count_sent()
        return self._accounts

    def acknowledged(self) -> int:
        """The oldest policy among those that the actors have loaded."""
        for process in self.processes:
            self._acknowledged[process.actor] = process.cells[Cell.ACKNOWLEDGED]
        return min(self._acknowledged)

    def launch(self) -> None:
        """Start all actors, and wait until every one is ready or given up.

        Raises:
            CollectError: One raised while it was built, or none can be started.
        """
        while not all(
            slot.given_up or (slot.process is not None and slot.process.ready)
            for slot in self.slots
        ):
            self.supervise()
            self.receive(wait=True)
        self.supervise()
        self._launched = True

    def supervise(self) -> None:
        """Replace actors that died or hang, as far as the budget reaches.

        Raises:
            CollectError: No actor is left.
        """
        for slot in self.slots:
            slot.run(self._params.heartbeat_s, self._params.start_timeout_s)
        if all(slot.given_up for slot in self.slots):
            shown = [slot.last_failure for slot in self.slots[:_SHOWN]]
            raise CollectError(
                f"none of the {len(self.slots)} actors works any more; each was replaced up to "
                f"{self._params.max_restarts} times (max_restarts). The last failure of each "
                f"(of the first {len(shown)}):\n" + "\n".join(shown)
            )

    def receive(self, *, wait: bool = False) -> list[tuple[ActorProcess, Frame]]:
        """The experience that has arrived, in the order in which it did.

        Args:
            wait: Wait a moment if there is none.

        Raises:
            CollectError: An actor raised while it was built in the first place.
        """
        arrived = []
        with contextlib.suppress(queue.Empty):
            while True:
                process, frame = self._events.get(timeout=_TICK_S if wait else 0)
                wait = False
                if frame is None:
                    self._bury(process)
                elif frame.kind is Kind.READY:
                    process.ready = True
                elif frame.kind is Kind.STATE:
                    process.owes_state = False
                    self.states[process.actor] = cloudpickle.loads(frame.payload)
                elif frame.kind is Kind.EXPERIENCE:
                    arrived.append((process, frame))
        return arrived

    def ask_states(self) -> None:
        """Ask all actors for their states; ``receive`` puts answers into ``states``."""
        for process in self.processes:
            process.cells[Cell.STATE_ASKED] += 1
            process.owes_state = True

    @property
    def owes_states(self) -> bool:
        """Whether an actor that was asked has not answered yet."""
        return any(process.owes_state for process in self.processes)

    def tell(self, cell: Cell, value: int) -> None:
        """Write a number for all actors, also those still to come."""
        self._told[cell] = value
        for process in self._begun:
            process.cells[cell] = value

    def stop(self) -> list[tuple[ActorProcess, Frame]]:
        """End all actors, by force where they do not within a moment.

        Returns:
            The experience that has still arrived.
        """
        processes = [process for process in self._begun if not process.closed]
        try:
            for process in processes:
                process.cells[Cell.STOP] = 1
            deadline = time.monotonic() + _STOP_S
            for process in processes:
                process.join(max(0.0, deadline - time.monotonic()))
        finally:
            # All are killed before the first is waited for.
            for process in processes:
                process.kill()
            for process in processes:
                process.close()
            shutil.rmtree(self.directory, ignore_errors=True)
            if self._made_parent:
                with contextlib.suppress(OSError):  # Others keep something there.
                    self.directory.parent.rmdir()
        for slot in self.slots:
            slot.process, slot.given_up, slot.last_failure = None, True, "it was stopped"
        return self.receive()

    def _bury(self, process: ActorProcess) -> None:
        slot = self.slots[process.actor]
        if slot.process is not process:
            return  # Its slot went on without waiting for its last frames.
        slot.end()
        if process.raised and not process.ready and process.incarnation == 0:
            raise CollectError(
                f"an actor cannot be built, so collecting does not begin: {slot.last_failure}"
            )

    def _begin(self, actor: int, incarnation: int) -> ActorProcess:
        try:
            process = ActorProcess(
                self._context, self.directory, actor, incarnation, self._factory, self.built,
                self._events,
            )  # fmt: skip
        except OSError as error:
            if self._launched:
                raise
            raise CollectError(
                f"actor {actor} of {len(self.slots)} cannot be started: {error}. Choose fewer "
                "actors, or raise what the system allows (ulimit)."
            ) from error
        self._accounts.append(process.account)
        self.built += 1
        for cell, value in self._told.items():
            process.cells[cell] = value
        return process


def pickled(value: object, what: str) -> bytes:
    """A value as it goes to an actor's process.

    Raises:
        CollectError: It cannot be sent.
    """
    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise CollectError(
            f"{what} cannot be sent to an actor process: {type(error).__name__}: {error}. "
            "Leave out open files, locks and the like, or use the collector 'sync'."
        ) from error
    return data


def _context(method: str) -> Context:
    known = multiprocessing.get_all_start_methods()
    name = ("forkserver" if "forkserver" in known else "spawn") if method == "auto" else method
    if name not in known:
        raise CollectError(
            f"start_method {name!r} does not exist on this system; it has {', '.join(known)}. "
            "Use 'auto'."
        )
    if name == "spawn":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Loaded once in the server, torch costs an actor milliseconds instead of seconds.
    context.set_forkserver_preload(["torch", "empo_core.parallel", "empo_async_actors.child"])
    return context


def _folder(directory: Path) -> Path:
    """A folder for cells and policies; those of learners that were killed are removed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob(f"{_PREFIX}*"):
            pid = old.name.removeprefix(_PREFIX).split("-")[0]
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(old, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=directory))
    except OSError as error:
        raise StorageError(
            f"{directory}: the files that actors need cannot be made there: {error}"
        ) from error


__all__ = ["Fleet", "pickled"]
