"""Containers: inspections as bytes for pages and other programs; see docs/reference.

A container is compressed by deflate: a magic word, a version, a header in JSON, and arrays.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field, JsonValue, ValidationError

from empo_core.errors import StorageError
from empo_core.inspection import NOT_KEPT, Inspection
from empo_core.storage.atomic import StrictModel

MAGIC, VERSION = b"EMPOVIEW", 1
MOST_BYTES = 1 << 31
"""Size beyond which a container is not unpacked."""
LEVEL = 6
_START = struct.Struct("<8sII")

Arrays = Mapping[str, np.ndarray]


class ArrayEntry(StrictModel):
    """Place of an array: ``offset`` counts bytes from the end of the padded header."""

    name: str
    dtype: Literal["|u1", "|i1", "<i2", "<i4", "<i8", "<u2", "<u4", "<f8"]
    shape: list[int]
    offset: int = Field(ge=0)


class Agent(StrictModel):
    """One agent of the world."""

    name: str
    role: Literal["human", "robot", "other"]
    actions: list[str]


class GoalEntry(StrictModel):
    """One goal: its human is an agent index, its weight a factor in X_h."""

    human: int
    name: str
    weight: float
    features: list[float]


class World(StrictModel):
    """Constants of the world; agent 0 counts fastest in a joint action."""

    name: str
    horizon: int | None
    agents: list[Agent]
    humans: list[int]
    robots: list[int]
    goals: list[GoalEntry]
    strides: list[int]


class Picture(StrictModel):
    """Pictures of states: glyphs on a grid, pixels of a palette, or nothing but texts."""

    kind: Literal["grid", "pixels", "text"]
    width: int = 0
    height: int = 0
    glyphs: list[list[str]] = Field(default_factory=list)
    palette: list[list[int]] = Field(default_factory=list)


class Kept(StrictModel):
    """Part of the run that is in the container; ``start`` is a position among its states."""

    states: int
    of: int
    start: int
    first_time: int
    times: int
    rule: str


class Header(StrictModel):
    """Header of a container."""

    arrays: list[ArrayEntry]
    world: World
    theory: dict[str, JsonValue]
    picture: Picture
    kept: Kept
    decisive: list[list[float]]
    precision: Literal["exact"]
    provenance: dict[str, JsonValue]


def pack(
    inspection: Inspection,
    start: int,
    picture: Picture,
    pictures: Arrays,
    decisive: list[list[float]],
    provenance: Mapping[str, JsonValue],
) -> bytes:
    """A container of an inspection.

    Args:
        inspection: States and values.
        start: Position of the state to begin with.
        picture: Constants of the states' pictures.
        pictures: Arrays of the states' pictures.
        decisive: The most decisive states; see ``empo_inspector.decisive``.
        provenance: Where it comes from.
    """
    arrays = {
        name: np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        for name, array in {**_arrays(inspection), **pictures}.items()
    }
    entries, offset = [], 0
    for name, array in arrays.items():
        shape = list(array.shape)
        entries.append({"name": name, "dtype": array.dtype.str, "shape": shape, "offset": offset})
        offset += array.nbytes + -array.nbytes % 8
    whole = inspection.num_states == inspection.total
    header = Header.model_validate(
        {
            "arrays": entries,
            "world": _world(inspection),
            "theory": inspection.theory.model_dump(mode="json"),
            "picture": picture,
            "kept": {
                "states": inspection.num_states,
                "of": inspection.total,
                "start": start,
                "first_time": inspection.first_time,
                "times": len(inspection.v_r),
                "rule": "all states" if whole else "what episodes visit most, with successors",
            },
            "decisive": decisive,
            "precision": "exact",
            "provenance": dict(provenance),
        }
    )
    text = json.dumps(header.model_dump(), allow_nan=False, separators=(",", ":")).encode()
    packer = zlib.compressobj(LEVEL)
    parts = [_START.pack(MAGIC, VERSION, len(text)), text, bytes(-len(text) % 8)]
    for array in arrays.values():
        parts += [array.tobytes(), bytes(-array.nbytes % 8)]
    return b"".join([*map(packer.compress, parts), packer.flush()])


def unpack(packed: bytes) -> tuple[Header, dict[str, np.ndarray]]:
    """The header and the arrays of a container.

    Raises:
        StorageError: It is damaged, too large, of another version, or no container.
    """
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(packed, MOST_BYTES)
    except zlib.error as error:
        raise StorageError(f"the container is damaged: {error}") from error
    if not unpacker.eof or len(raw) < _START.size:
        raise StorageError("the container is truncated or too large")
    magic, version, length = _START.unpack_from(raw)
    if magic != MAGIC:
        raise StorageError(f"this is no container: it begins with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise StorageError(f"the container has version {version}; this program reads {VERSION}")
    start = _START.size + length + -length % 8
    if start > len(raw):
        raise StorageError("the container is damaged: its header is longer than it")
    try:
        header = Header.model_validate_json(raw[_START.size : _START.size + length])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StorageError(f"the container's header is damaged: {where}: {first['msg']}") from error
    return header, {entry.name: _array(raw, start, entry) for entry in header.arrays}


def _array(raw: bytes, start: int, entry: ArrayEntry) -> np.ndarray:
    dtype, count = np.dtype(entry.dtype), math.prod(entry.shape)
    first = start + entry.offset
    if min(entry.shape, default=0) < 0 or first + count * dtype.itemsize > len(raw):
        raise StorageError(f"the container is damaged: array {entry.name!r} does not fit")
    return np.frombuffer(raw, dtype, count, first).reshape(entry.shape)


def _world(inspection: Inspection) -> dict[str, object]:
    spec = inspection.spec
    agents = [{"name": a.name, "role": a.role, "actions": list(a.actions)} for a in spec.agents]
    return {
        "name": spec.name,
        "horizon": spec.horizon,
        "agents": agents,
        "humans": list(spec.humans),
        "robots": list(spec.robots),
        "goals": [
            {"human": g.human, "name": g.name, "weight": g.weight, "features": list(g.features)}
            for g in spec.goals
        ],
        "strides": list(spec.strides),
    }


def _arrays(kept: Inspection) -> dict[str, np.ndarray]:
    arrays = {
        "rows": kept.rows,
        "number": kept.number.astype(np.int32),
        "offsets": kept.offsets.astype(np.uint32),
        # NOT_KEPT becomes the greatest number.
        "successor": np.where(kept.successor == NOT_KEPT, 2**32 - 1, kept.successor).astype(
            np.uint32
        ),
        "code": kept.code.astype(np.uint16 if len(kept.prob) <= 1 << 16 else np.uint32),
        "prob": kept.prob,
        "duration": kept.duration,
        "achieved": np.packbits(kept.achieved, axis=1, bitorder="little"),
        "v_r": kept.v_r,
        "v_e": kept.v_e,
    }
    if kept.v_m is not None:
        return {**arrays, "v_m": kept.v_m}
    return arrays if kept.pi_h is None else {**arrays, "pi_h": kept.pi_h}
