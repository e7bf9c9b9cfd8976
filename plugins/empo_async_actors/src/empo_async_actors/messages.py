"""Requests to actors and the experience that they send, as bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from empo_core.protocols.executors import Payload
from empo_core.types import Experience
from empo_executors.frames import decode_arrays, encode_arrays

_REQUEST = struct.Struct("<Bqq")
_EXPERIENCE = struct.Struct("<qq48x")  # As wide as the alignment of the arrays behind it.


class Request(IntEnum):
    """Kind of a request; two numbers and a body follow."""

    BUILD = 0
    """Build the actor with this number."""
    LOAD_STATE = 1
    """Go on from the pickled state in the body."""
    SEND_STATE = 2
    """Answer with the pickled state."""
    ACT = 3
    """Act until so many environment steps in all, in this training step."""


@dataclass(frozen=True, slots=True)
class Message:
    """A request.

    Attributes:
        kind: What is asked for.
        count: Of ``BUILD`` the actor's number, of ``ACT`` the environment step to act until.
        training_step: Of ``ACT`` the training steps so far.
        body: Of ``LOAD_STATE`` the state.
    """

    kind: Request
    count: int = 0
    training_step: int = 0
    body: bytes = b""

    def encode(self) -> bytes:
        """The request as bytes."""
        return _REQUEST.pack(self.kind, self.count, self.training_step) + self.body

    @classmethod
    def decode(cls, data: bytes) -> Message:
        """The inverse of ``encode``."""
        kind, count, training_step = _REQUEST.unpack_from(data)
        return cls(Request(kind), count, training_step, data[_REQUEST.size :])


def encode_experience(experience: Experience) -> Payload:
    """Experience as bytes in pieces; the arrays are not copied.

    Raises:
        WorkerError: An array holds something else than booleans or numbers.
    """
    head = _EXPERIENCE.pack(experience.env_steps, experience.version)
    return [head, *encode_arrays(experience.arrays)]


def env_steps_of(payload: bytearray) -> int:
    """Environment steps of an encoded experience."""
    env_steps: int = _EXPERIENCE.unpack_from(payload)[0]
    return env_steps


def decode_experience(payload: bytearray, actor: int) -> Experience:
    """The experience of an actor; its arrays share the memory of ``payload``."""
    env_steps, version = _EXPERIENCE.unpack_from(payload)
    return Experience(decode_arrays(payload, _EXPERIENCE.size), env_steps, actor, version)


__all__ = ["Message", "Request", "decode_experience", "encode_experience", "env_steps_of"]
