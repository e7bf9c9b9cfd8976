"""Named arrays as bytes, without pickle and without copies."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping

import numpy as np

from empo_core.errors import WorkerError

_PREFIX = struct.Struct("<Q")
_ALIGN = 64
_KINDS = "biufc"


def encode_arrays(arrays: Mapping[str, np.ndarray]) -> list[bytes | memoryview]:
    """Named arrays as a JSON header and their raw bytes, in pieces to be sent one after another.

    Raises:
        WorkerError: if an array holds something else than booleans or numbers.
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
