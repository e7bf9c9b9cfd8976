"""One actor as a worker of an executor."""

from __future__ import annotations

import cloudpickle  # type: ignore[import-untyped]

from empo_async_actors.messages import Message, Request, encode_experience
from empo_async_actors.policy import decode_policy
from empo_core.errors import WorkerError
from empo_core.protocols import Actor, ActorFactory, Payload, Send, Weights


class ActorWorker:
    """Builds an actor when it is told to, and lets it act as far as it may."""

    def __init__(self, make_actor: ActorFactory) -> None:
        self._make_actor = make_actor
        self._actor: Actor | None = None
        self._failed = False
        self._policy: tuple[Weights, int] | None = None
        self._env_steps = 0

    def load(self, blob: memoryview, version: int) -> None:
        """Act with these weights, once there is an actor."""
        weights = decode_policy(blob)
        if self._actor is None:
            self._policy = weights, version
        else:
            self._actor.load(weights, version)

    def call(self, request: bytes, send: Send) -> Payload:
        """Do what was asked for; experience is sent as soon as there is any.

        Raises:
            WorkerError: The actor failed before, or acted without taking a step.
        """
        if self._failed:
            raise WorkerError("this actor has failed and waits for its end")
        try:
            return self._answer(Message.decode(request), send)
        except BaseException:
            self._failed = True
            raise

    def close(self) -> None:
        """An actor has nothing to release."""

    def _answer(self, message: Message, send: Send) -> Payload:
        if message.kind is Request.BUILD:
            self._actor = self._make_actor(message.count)
            if self._policy is not None:
                self._actor.load(*self._policy)
                self._policy = None
            return []
        assert self._actor is not None
        if message.kind is Request.LOAD_STATE:
            self._actor.load_state_dict(cloudpickle.loads(message.body))
            return []
        if message.kind is Request.SEND_STATE:
            return [cloudpickle.dumps(self._actor.state_dict())]
        return self._act(self._actor, message, send)

    def _act(self, actor: Actor, message: Message, send: Send) -> Payload:
        while self._env_steps < message.count:
            experience = actor.act(message.training_step)
            if experience.env_steps < 1:
                raise WorkerError(
                    f"act returned an experience of {experience.env_steps} environment steps; "
                    "every call must take at least 1, or the learner would wait for ever"
                )
            self._env_steps += experience.env_steps
            # Another request means that the learner knows better by now how far to go.
            if send(encode_experience(experience)):
                break
        return []


__all__ = ["ActorWorker"]
