"""All actors of a run: building, watching, asking and stopping them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch
from numpy.random import SeedSequence

from empo_async_actors.actor_handle import ActorAccount, ActorHandle
from empo_async_actors.actor_worker import ActorWorker
from empo_async_actors.messages import Message, Request, env_steps_of
from empo_async_actors.plugin import AsyncParams
from empo_core.errors import CollectError, WorkerError
from empo_core.experiment import build
from empo_core.protocols import (
    Actor,
    ActorFactory,
    Executor,
    Needs,
    Reply,
    Worker,
    WorkerFactory,
    WorkerState,
)
from empo_core.random_streams import seed_globals
from empo_executors.frames import pickled
from empo_executors.start_deadline import StartDeadline

_TICK_S = 0.02
"""The longest wait between two looks at the actors."""
_LONGEST_LOOK_S = 1.0
_SHOWN = 3
"""Of how many actors an error shows the traceback."""


@dataclass(frozen=True, slots=True)
class ReceivedExperience:
    """Experience that has come.

    Attributes:
        account: Of the incarnation that it came from.
        env_steps: Environment steps in it.
        payload: See ``messages.decode_experience``.
    """

    account: ActorAccount
    env_steps: int
    payload: bytearray


class ActorPool:
    """The actors between one ``start`` and one ``stop``.

    Attributes:
        states: The newest known state of each actor; None where there is none.
        restarts: Actors that were built in place of others.
    """

    def __init__(self, params: AsyncParams, make_actor: ActorFactory, directory: Path) -> None:
        """Start the executor; ``build`` builds the actors.

        Args:
            params: What the config says.
            make_actor: Builds an actor; every one that is built gets the next number, so that
                a replacement does not repeat the random choices of its predecessor.
            directory: Receives files of the executor as long as the pool exists.

        Raises:
            CollectError: The factory cannot be sent, or no process can be started.
            StorageError: The disk refuses.
        """
        self._params = params
        self.executor: Executor = build(params.executor)
        self.states: list[Any] = [None] * params.actors
        self.restarts = self._built = 0
        self._handles: list[ActorHandle | None] = [None] * params.actors
        self._accounts: dict[tuple[int, int], ActorAccount] = {}
        self._acknowledged = [0] * params.actors
        self._failure: CollectError | None = None
        self._stalled_s, self._looked = 0.0, time.monotonic()
        factory = _worker_factory(_pickled(make_actor, "the actor factory"))
        try:
            self.executor.start(factory, params.actors, Needs(), directory, params.max_restarts)
        except CollectError:
            raise
        except WorkerError as error:
            raise CollectError(f"the actors cannot be started: {error}") from error

    @property
    def handles(self) -> list[ActorHandle]:
        """The actors that are ready to act or acting."""
        return [handle for handle in self._handles if handle is not None and handle.ready]

    @property
    def owes_states(self) -> bool:
        """True where an actor that was asked has not answered yet."""
        return any(handle.owes_state for handle in self.handles)

    def accounts(self) -> list[ActorAccount]:
        """Counts of the messages of every incarnation so far."""
        for found in self.executor.account():
            account = self._account(found.worker, found.incarnation)
            account.sent, account.accepted = found.sent, found.accepted
        return list(self._accounts.values())

    def acknowledged(self) -> int:
        """The oldest policy among those that the actors have loaded."""
        for state in self.executor.workers():
            handle = self._handles[state.number]
            if state.pid is not None and handle is not None and handle.built:
                self._acknowledged[state.number] = state.version
        return min(self._acknowledged)

    def pids(self) -> list[int]:
        """The processes of actors, also of those that are being built."""
        return [state.pid for state in self.executor.workers() if state.pid is not None]

    def build_actors(self) -> None:
        """Build all actors; one that hangs is waited for no longer than the others took.

        Raises:
            CollectError: One raised while it was built, or none can be started.
        """
        deadline = StartDeadline()
        while True:
            self.supervise()
            self.receive(wait=True)
            given_up = [s.number for s in self.executor.workers() if s.state == "given_up"]
            ready = [h.account.actor for h in self.handles]
            settled = len({*given_up, *ready}) == self._params.actors and ready
            if settled or deadline.is_over(len(ready)):
                break
        self.supervise()

    def supervise(self) -> None:
        """Build actors in new processes, and replace those that hang.

        Raises:
            CollectError: No actor is left, none can make progress, or one cannot be built.
        """
        states = self.executor.workers()
        for state in states:
            self._follow(state)
        if self._failure is not None:
            raise self._failure
        if all(state.state == "given_up" for state in states):
            shown = [state.last_failure for state in states[:_SHOWN]]
            raise CollectError(
                f"none of the {len(states)} actors works any more; each was replaced up to "
                f"{self._params.max_restarts} times (max_restarts). The last failure of each "
                f"(of the first {len(shown)}):\n" + "\n".join(shown)
            )
        self._check_progress(states)

    def receive(self, *, wait: bool = False) -> list[ReceivedExperience]:
        """The experience that has arrived, in the order in which it did.

        Args:
            wait: Wait a moment if there is none.
        """
        received: list[ReceivedExperience] = []
        while (reply := self.executor.next(_TICK_S if wait else 0.0)) is not None:
            wait = False
            self._take(reply, received)
        return received

    def ask_states(self) -> None:
        """Ask all actors for their states; ``receive`` puts answers into ``states``."""
        for handle in self.handles:
            handle.request(Message(Request.SEND_STATE))

    def pump(self) -> None:
        """Hand over requests for which there is room."""
        for handle in self.handles:
            handle.pump(self.executor)

    def load_states(self, states: list[Any]) -> None:
        """Let each actor go on from its state where there is one."""
        for actor, state in enumerate(states[: len(self._handles)]):
            self.states[actor] = state
            handle = self._handles[actor]
            if state is not None and handle is not None:
                body = _pickled(state, f"the state of actor {actor}")
                handle.request(Message(Request.LOAD_STATE, body=body))
                handle.pump(self.executor)

    def stop(self) -> list[ReceivedExperience]:
        """End all actors, by force where they do not within a moment.

        Returns:
            The experience that has still arrived.
        """
        self.executor.stop()
        received = self.receive()
        self.accounts()
        return received

    def _account(self, actor: int, incarnation: int) -> ActorAccount:
        key = actor, incarnation
        return self._accounts.setdefault(key, ActorAccount(actor, incarnation))

    def _follow(self, state: WorkerState) -> None:
        """Ask a new process to build its actor, and replace one that hangs."""
        handle = self._handles[state.number]
        if state.pid is None:
            if handle is not None:
                handle.failing = True
            return
        if handle is None or handle.account.incarnation != state.incarnation:
            handle = ActorHandle(self._account(state.number, state.incarnation))
            handle.request(Message(Request.BUILD, self._built))
            self._handles[state.number] = handle
            self._built += 1
            self.restarts += state.incarnation > 0
        handle.pump(self.executor)
        if handle.failing:
            return
        acted = handle.account.experiences > 0
        name = "heartbeat_s" if acted else "start_timeout_s"
        limit = self._params.heartbeat_s if acted else self._params.start_timeout_s
        if handle.silence_s > limit:
            doing = "showed no sign of life" if acted else "was not ready"
            if handle.built and not acted:
                doing = "did not end its first round"
            self._replace(handle, f"{doing} for {limit:g} s ({name}) and was killed")

    def _replace(self, handle: ActorHandle, reason: str) -> None:
        handle.failing = True
        self.executor.replace(handle.account.actor, reason)

    def _check_progress(self, states: Sequence[WorkerState]) -> None:
        """Raise where there was time enough, and work to do, but nothing has come."""
        now = time.monotonic()
        self._stalled_s += min(now - self._looked, _LONGEST_LOOK_S)
        self._looked = now
        if any(handle.idle for handle in self.handles):
            self._stalled_s = 0.0  # They wait for the learner.
        if self._stalled_s > self._params.stall_timeout_s:
            shown = [
                f"actor {state.number}: {state.state}; last failure: {state.last_failure or '-'}"
                for state in states[:_SHOWN]
            ]
            raise CollectError(
                f"no actor has brought anything for {self._params.stall_timeout_s:g} s "
                f"(stall_timeout_s), although all may act. Of the first {len(shown)}:\n"
                + "\n".join(shown)
            )

    def _take(self, reply: Reply, received: list[ReceivedExperience]) -> None:
        account = self._account(reply.worker, reply.incarnation)
        handle = self._handles[reply.worker]
        if handle is not None and handle.account is not account:
            handle = None
        request = None if handle is None else handle.answered(reply)
        if reply.kind == "part":
            self._stalled_s = 0.0
            env_steps = env_steps_of(reply.payload)
            account.experiences += 1
            account.env_steps += env_steps
            received.append(ReceivedExperience(account, env_steps, reply.payload))
        if handle is None or request is None or handle.failing:
            return
        if reply.kind == "raised":
            self._fail(handle, request, reply.traceback)
        elif reply.kind == "answer" and request.kind is Request.BUILD:
            handle.built = True
        elif reply.kind == "answer" and request.kind is Request.SEND_STATE:
            handle.owes_state = False
            self.states[reply.worker] = cloudpickle.loads(reply.payload)

    def _fail(self, handle: ActorHandle, request: Message, traceback: str) -> None:
        account = handle.account
        if request.kind is Request.BUILD and account.incarnation == 0:
            handle.failing = True
            self._failure = CollectError(
                f"an actor cannot be built, so collecting does not begin: actor {account.actor} "
                f"raised\n{traceback}"
            )
        else:
            self._replace(handle, f"raised\n{traceback}")


def _pickled(value: object, what: str) -> bytes:
    return pickled(value, what, instead="use the collector 'sync'", error=CollectError)


def _worker_factory(make_actor: bytes) -> WorkerFactory:
    # The run's, by which this process's generators were seeded; nothing is drawn from them.
    seed = torch.initial_seed()

    def make(number: int, incarnation: int) -> Worker:
        def make_later(index: int) -> Actor:
            # What actors draw from global generators differs between them, and from run to run
            # as the seed does; no index is given twice.
            seed_globals(SeedSequence(seed, spawn_key=(index,)))
            make: ActorFactory = cloudpickle.loads(make_actor)
            return make(index)

        return ActorWorker(make_later)

    return make


__all__ = ["ActorPool", "ReceivedExperience"]
