"""Messages of a worker: numbered, checked, and one pipe per worker.

A frame is a header of 64 bytes and a payload. The header says what the payload is, which worker
sent it, how often that worker had been replaced (its incarnation), the frame's number within the
incarnation, the call it belongs to, the broadcast that the worker had loaded, and a CRC32 of all
that. The receiver takes nothing but the next number.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from empo_core.errors import EmpoError, WorkerError
from empo_executors.supervised_process import Pipe

_HEADER = struct.Struct("<4sIIIIQQQQ12x")  # Magic, CRC, then the fields of ``send``.
_MAGIC = b"EMF1"
_CRC_AT = 8
_PREFIX = struct.Struct("<Q")
_ALIGN = 64
_KINDS = "biufc"


class Kind(IntEnum):
    """Meaning of a frame's payload."""

    READY = 0
    """The worker was built."""
    PART = 1
    """Sent ahead of a call's answer."""
    ANSWER = 2
    """Result of a call."""
    RAISED = 3
    """Traceback of a call."""
    FAILED = 4
    """Traceback of a worker that ends."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message.

    Attributes:
        kind: Meaning of the payload.
        number: Position in the sequence of its incarnation, from 0.
        version: The broadcast that the worker had loaded.
        call: Number of the call within the incarnation.
        payload: Writable, so that tensors can be made of it without copying.
    """

    kind: Kind
    number: int
    version: int
    call: int
    payload: bytearray


class Disconnected(Exception):
    """The other side of a pipe is gone."""


class Carrier(Protocol):
    """Takes whole messages, in their order."""

    def send_bytes(self, buf: bytes, /) -> None:
        """Take one; raises OSError where the receiver is gone."""


class Sender:
    """The worker's end: numbers the frames."""

    def __init__(self, pipe: Carrier, worker: int, incarnation: int) -> None:
        self._pipe = pipe
        self._worker = worker
        self._incarnation = incarnation
        self.number = 0
        """The number of the next frame."""

    def send(
        self, kind: Kind, parts: Sequence[bytes | memoryview], *, version: int, call: int = 0
    ) -> None:
        """Send one frame, waiting until the receiver has read most of it.

        Raises:
            Disconnected: The other end is closed.
        """
        length = sum(len(part) for part in parts)
        fields = (
            kind, self._worker, self._incarnation, self.number, version, call, length,
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
    """The caller's end: accepts the next frame of one incarnation, and nothing else."""

    def __init__(self, worker: int, incarnation: int) -> None:
        self._worker = worker
        self._incarnation = incarnation
        self.accepted = 0
        """Frames accepted so far; the number of the next one."""

    def receive(self, pipe: Pipe) -> Frame:
        """Wait for the next frame.

        Raises:
            Disconnected: The worker is gone; part of a frame may have been left behind.
            WorkerError: The frame is damaged or not the next one.
        """
        try:
            message = bytearray(pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise Disconnected from error
        return self.accept(message)

    def accept(self, message: bytearray) -> Frame:
        """The frame in a message, which becomes its payload.

        Raises:
            WorkerError: It is damaged or not the next one.
        """
        if len(message) < _HEADER.size or message[:4] != _MAGIC:
            raise self._refused("is not a frame")
        _, crc, kind, worker, incarnation, number, version, call, length = _HEADER.unpack_from(
            message
        )
        if length != len(message) - _HEADER.size or crc != zlib.crc32(
            memoryview(message)[_CRC_AT:]
        ):
            raise self._refused("is damaged (its CRC32 or length is wrong)")
        if (worker, incarnation, number) != (self._worker, self._incarnation, self.accepted):
            raise self._refused(f"is frame {number} of worker {worker}, incarnation {incarnation}")
        self.accepted += 1
        # Deleting the front of a bytearray moves a pointer and no bytes.
        del message[: _HEADER.size]
        return Frame(Kind(kind), number, version, call, message)

    def _refused(self, why: str) -> WorkerError:
        return WorkerError(
            f"a message of worker {self._worker} (incarnation {self._incarnation}) {why}, where "
            f"frame {self.accepted} was due; nothing of it was used"
        )


def pickled(
    value: object,
    what: str,
    *,
    instead: str = "work without worker processes",
    error: type[EmpoError] = WorkerError,
) -> bytes:
    """A value as it goes to another process.

    Args:
        value: The value.
        what: Its name, for errors.
        instead: Another way, for errors.
        error: Raised where the value cannot be sent.

    Raises:
        EmpoError: As ``error`` says.
    """
    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as reason:
        raise error(
            f"{what} cannot be sent to another process: {type(reason).__name__}: {reason}. "
            f"Leave out open files, locks and the like, or {instead}."
        ) from reason
    return data


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
                f"array {name!r} has dtype {array.dtype}; only booleans and numbers can be sent"
            )
        # A scalar's ascontiguousarray has one axis; the shape is that of the original.
        entries.append([name, array.dtype.str, np.shape(value), position])
        padding = -array.nbytes % _ALIGN
        pieces += [array.reshape(-1).view(np.uint8).data, bytes(padding)]
        position += array.nbytes + padding
    header = json.dumps(entries).encode()
    header += b" " * (-(len(header) + _PREFIX.size) % _ALIGN)
    return [_PREFIX.pack(len(header)), header, *pieces]


def decode_arrays(payload: bytearray | memoryview, start: int = 0) -> dict[str, np.ndarray]:
    """Named arrays from the output of ``encode_arrays``; they share its memory."""
    (length,) = _PREFIX.unpack_from(payload, start)
    base = start + _PREFIX.size + length
    return {
        name: np.frombuffer(payload, np.dtype(dtype), math.prod(shape), base + position).reshape(
            shape
        )
        for name, dtype, shape, position in json.loads(bytes(payload[start + _PREFIX.size : base]))
    }
