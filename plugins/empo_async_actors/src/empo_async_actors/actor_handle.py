"""One actor as the learner sees it, whichever process it is at the moment."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from empo_async_actors.messages import Message, Request
from empo_core.errors import WorkerError
from empo_core.protocols import Executor, Reply

_LONGEST_LOOK_S = 1.0
"""Time without looking that counts at most: who was suspended cannot blame the actors."""
_CALLS = 2
"""Requests under way: one being answered, and one that makes the actor look up from it."""
_RENEW_S = 0.1
"""Shortest time between two messages that tell an actor nothing but the training step."""
_SLACK = 4
"""A grant is taken back where more than its ``1 / _SLACK`` is too much."""


@dataclass(slots=True)
class ActorAccount:
    """Counts of the messages of one incarnation of an actor.

    Attributes:
        actor: The actor's number.
        incarnation: How often it had been replaced before.
        sent: Messages it began to send, counted by itself before each.
        accepted: Messages that arrived whole and in order; at most 1 less.
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


class ActorHandle:
    """Requests to one incarnation of an actor, and how long it has been silent.

    Attributes:
        account: Its numbers.
        built: Whether the actor was built.
        failing: Whether it is about to be replaced.
        owes_state: Whether it was asked for its state and has not answered.
    """

    def __init__(self, account: ActorAccount) -> None:
        self.account = account
        self.built = self.failing = self.owes_state = False
        self._outbox: deque[Message] = deque()
        self._calls: dict[int, Message] = {}
        self._silence_s = 0.0
        self._looked = self._granted_at = time.monotonic()

    @property
    def ready(self) -> bool:
        """True where it can act."""
        return self.built and not self.failing

    @property
    def idle(self) -> bool:
        """True where it can act and has nothing to do."""
        return self.ready and not self._calls and not self._outbox

    @property
    def silence_s(self) -> float:
        """Seconds, while the learner looked, that it has owed an answer or experience."""
        return self._silence_s

    @property
    def reserved(self) -> int:
        """Environment steps that it may take without being asked again."""
        until = [call.count for call in self._calls.values() if call.kind is Request.ACT]
        return max(0, max(until, default=0) - self.account.env_steps)

    def request(self, message: Message) -> None:
        """Ask for something before the actor acts again."""
        self.owes_state = self.owes_state or message.kind is Request.SEND_STATE
        self._outbox.append(message)

    def pump(self, executor: Executor) -> None:
        """Hand over requests for which there is room, and count the silence."""
        now = time.monotonic()
        busy = bool(self._calls)
        self._silence_s = self._silence_s + min(now - self._looked, _LONGEST_LOOK_S) * busy
        self._looked = now
        while self._outbox and self._submit(executor, self._outbox[0]):
            self._outbox.popleft()

    def grant(self, executor: Executor, until: int, training_step: int) -> None:
        """Let it act until so many environment steps, where that is news to it.

        A second request interrupts the first, so that a grant can also be taken back.
        """
        if self._outbox or not self.ready:
            return
        acting = [call for call in self._calls.values() if call.kind is Request.ACT]
        received = self.account.env_steps
        if acting:
            last, left = acting[-1], acting[-1].count - received
            too_much = last.count - until > left / _SLACK
            now = time.monotonic()
            stale = last.training_step != training_step and now - self._granted_at > _RENEW_S
            if not (until > last.count or too_much or stale):
                return
        elif until <= received:
            return
        if self._submit(executor, Message(Request.ACT, until, training_step)):
            self._granted_at = time.monotonic()

    def answered(self, reply: Reply) -> Message | None:
        """The request that a reply belongs to; of a part it goes on."""
        self._silence_s = 0.0
        if reply.kind == "part":
            return self._calls.get(reply.number)
        return self._calls.pop(reply.number, None)

    def _submit(self, executor: Executor, message: Message) -> bool:
        if len(self._calls) >= _CALLS:
            return False
        if not self._calls:
            self._silence_s = 0.0
        try:
            number = executor.submit(self.account.actor, message.encode())
        except WorkerError:
            return False  # It has no room, or has just ended.
        self._calls[number] = message
        return True


__all__ = ["ActorAccount", "ActorHandle"]
