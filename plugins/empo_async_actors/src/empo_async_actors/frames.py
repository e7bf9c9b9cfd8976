"""Messages from an actor: numbered, checked, and one pipe per actor.

A frame is a header of 64 bytes and a payload. The header says what the payload is, which actor
sent it, how often that actor had been replaced (its incarnation), the frame's number within the
incarnation, the policy it was acted with, and a CRC32 of all that. The receiver takes nothing
but the next number.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from empo_core.errors import WorkerError

_HEADER = struct.Struct("<4sIIIIQQQQ12x")  # Magic, CRC, then the fields of ``send``.
_MAGIC = b"EMF1"
_CRC_AT = 8
_PREFIX = struct.Struct("<Q")
_ALIGN = 64
_KINDS = "biufc"


class Kind(IntEnum):
    """What a frame carries."""

    READY = 0
    EXPERIENCE = 1
    STATE = 2
    RAISED = 3


@dataclass(frozen=True, slots=True)
class Frame:
    """One message.

    Attributes:
        kind: What the payload is.
        number: Position in the sequence of its incarnation, from 0.
        version: The policy that the actor acted with.
        env_steps: Environment steps in the payload.
        payload: Writable, so that tensors can be made of it without copying.
    """

    kind: Kind
    number: int
    version: int
    env_steps: int
    payload: bytearray


class Disconnected(Exception):
    """The other side of a pipe is gone."""


class Sender:
    """The actor's end: numbers the frames."""

    def __init__(self, pipe: Connection[Any, Any], actor: int, incarnation: int) -> None:
        self._pipe = pipe
        self._actor = actor
        self._incarnation = incarnation
        self.number = 0
        """The number of the next frame."""

    def send(
        self, kind: Kind, parts: Sequence[bytes | memoryview], *, version: int, env_steps: int = 0
    ) -> None:
        """Send one frame, waiting until the receiver has read most of it.

        Raises:
            Disconnected: Nobody reads any more.
        """
        length = sum(len(part) for part in parts)
        fields = (
            kind, self._actor, self._incarnation, self.number, version, env_steps, length,
        )  # fmt: skip
        crc = zlib.crc32(_HEADER.pack(_MAGIC, 0, *fields)[_CRC_AT:])
        for part in parts:
            crc = zlib.crc32(part, crc)
        self.number += 1
        try:
            self._pipe.send_bytes(b"".join([_HEADER.pack(_MAGIC, crc, *fields), *parts]))
        except OSError as error:
            raise Disconnected from error


class Receiver:
    """The learner's end: accepts the next frame of one incarnation, and nothing else."""

    def __init__(self, pipe: Connection[Any, Any], actor: int, incarnation: int) -> None:
        self._pipe = pipe
        self._actor = actor
        self._incarnation = incarnation
        self.accepted = 0
        """How many frames were accepted; the number of the next one."""

    def receive(self) -> Frame:
        """Wait for the next frame.

        Raises:
            Disconnected: The actor is gone; part of a frame may have been left behind.
            WorkerError: The frame is damaged or not the next one.
        """
        try:
            message = bytearray(self._pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise Disconnected from error
        return self._accept(message)

    def _accept(self, message: bytearray) -> Frame:
        if len(message) < _HEADER.size or message[:4] != _MAGIC:
            raise self._refused("is not a frame")
        _, crc, kind, actor, incarnation, number, version, env_steps, length = _HEADER.unpack_from(
            message
        )
        if length != len(message) - _HEADER.size or crc != zlib.crc32(
            memoryview(message)[_CRC_AT:]
        ):
            raise self._refused("is damaged (its CRC32 or length is wrong)")
        if (actor, incarnation, number) != (self._actor, self._incarnation, self.accepted):
            raise self._refused(f"is frame {number} of actor {actor}, incarnation {incarnation}")
        self.accepted += 1
        # Deleting the front of a bytearray moves a pointer and no bytes.
        del message[: _HEADER.size]
        return Frame(Kind(kind), number, version, env_steps, message)

    def _refused(self, why: str) -> WorkerError:
        return WorkerError(
            f"a message of actor {self._actor} (incarnation {self._incarnation}) {why}, where "
            f"frame {self.accepted} was due; nothing of it was used"
        )


def encode_arrays(arrays: Mapping[str, np.ndarray]) -> list[bytes | memoryview]:
    """Named arrays as a JSON header and their raw bytes, in pieces to be sent one after another.

    Raises:
        WorkerError: An array holds something else than booleans or numbers.
    """
    entries, pieces, position = [], list[bytes | memoryview](), 0
    for name, value in arrays.items():
        array = np.ascontiguousarray(value)
        if array.dtype.kind not in _KINDS:
            raise WorkerError(
                f"array {name!r} of an actor's experience has dtype {array.dtype}; only booleans "
                "and numbers can be sent"
            )
        # A scalar's ascontiguousarray has one axis; the shape is that of the original.
        entries.append([name, array.dtype.str, np.shape(value), position])
        padding = -array.nbytes % _ALIGN
        pieces += [array.reshape(-1).view(np.uint8).data, bytes(padding)]
        position += array.nbytes + padding
    header = json.dumps(entries).encode()
    header += b" " * (-(len(header) + _PREFIX.size) % _ALIGN)
    return [_PREFIX.pack(len(header)), header, *pieces]


def decode_arrays(payload: bytearray) -> dict[str, np.ndarray]:
    """What ``encode_arrays`` was given; the arrays share the memory of ``payload``."""
    (length,) = _PREFIX.unpack_from(payload)
    base = _PREFIX.size + length
    return {
        name: np.frombuffer(payload, np.dtype(dtype), math.prod(shape), base + position).reshape(
            shape
        )
        for name, dtype, shape, position in json.loads(payload[_PREFIX.size : base])
    }


__all__ = [
    "Disconnected",
    "Frame",
    "Kind",
    "Receiver",
    "Sender",
    "decode_arrays",
    "encode_arrays",
]
