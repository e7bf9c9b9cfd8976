"""Containers: inspections as bytes for pages and other programs; see docs/reference.

A container is compressed by deflate: a magic word, a version, a header in JSON, and arrays.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, JsonValue, ValidationError

from empo_core.errors import StorageError
from empo_core.runs.atomic import StrictModel
from empo_inspector.action_keys import signs_of
from empo_inspector.decision import Digits
from empo_inspector.why import Reasons
from empo_theory.diagnostics import PowerFindings
from empo_theory.inspection import NOT_KEPT, Inspection, InspectionScope

MAGIC, VERSION = b"EMPOVIEW", 1
MOST_BYTES = 1 << 31
"""Size beyond which a container is not unpacked."""
LEVEL = 6
_START = struct.Struct("<8sII")

Arrays = Mapping[str, np.ndarray]


class ArrayEntry(StrictModel):
    """Place of an array: ``offset`` counts bytes from the end of the padded header."""

    name: str
    dtype: Literal["|u1", "|i1", "<i2", "<i4", "<i8", "<u2", "<u4", "<f4", "<f8"]
    shape: list[int]
    offset: int = Field(ge=0)


class Agent(StrictModel):
    """One agent of the world; ``keys`` has what stands for each action: an arrow, a digit or ""."""

    name: str
    role: Literal["human", "robot", "other"]
    actions: list[str]
    keys: list[str]


class GoalEntry(StrictModel):
    """One goal: its human is an agent index, its weight a factor in X_h."""

    human: int
    name: str
    weight: float
    features: list[float]


class World(StrictModel):
    """Constants of the world; agent 0 counts fastest in a joint action.

    The robots' joint actions, and the humans', count their first agent fastest. ``joint`` has the
    joint action of all agents of each pair of them, the robots' counting fastest. ``goal_names``
    have the human in front.
    """

    name: str
    horizon: int | None
    agents: list[Agent]
    humans: list[int]
    robots: list[int]
    goals: list[GoalEntry]
    goal_names: list[str]
    strides: list[int]
    robot_actions: list[str]
    robot_digits: list[list[int]]
    human_digits: list[list[int]]
    joint: list[int]


class Shape(StrictModel):
    """A path in the notation of SVG, or a text in the middle of a place, drawn on a glyph."""

    path: str = ""
    text: str = ""
    x: float = 0.0
    y: float = 0.0
    size: float = 0.0
    fill: str = ""
    stroke: str = ""
    width: float = 1.0
    opacity: float = 1.0


class Glyph(StrictModel):
    """A square picture of one thing; ``side`` counts units of its shapes."""

    name: str
    side: float
    shapes: list[Shape]


class Picture(StrictModel):
    """Pictures of states: glyphs on a grid, pixels of a palette, or nothing but texts."""

    kind: Literal["grid", "pixels", "text"]
    width: int = 0
    height: int = 0
    glyphs: list[Glyph] = Field(default_factory=list)
    palette: list[list[int]] = Field(default_factory=list)


class Kept(StrictModel):
    """Part of the run that is in the container; ``start`` is a position among its states.

    Decisions are known at the ``times`` one step later than which there are values, too.
    """

    states: int
    of: int | None
    start: int
    times: list[int]
    rule: str


class Histogram(StrictModel):
    """Sizes of errors: ``counts`` of those up to 1e-8, 1e-7 and so on, to 1, and of the rest."""

    of: Literal["errors_of_v_r", "errors_of_v_e"]
    mean: float
    worst: float
    counts: list[int]


class OriginEntry(StrictModel):
    """Where the part of a goal arises; ``state`` is what the run calls it."""

    step: int
    state: int
    chances: list[float]


class Why(StrictModel):
    """Why two of the robots' joint actions differ at the start, over all states of the run.

    ``parts`` have a row of goals for each future step, and ``ends`` a number.
    """

    first: int
    second: int
    gap: float
    parts: list[list[float]]
    ends: list[float]
    origins: list[OriginEntry]
    achieved: list[bool]

    @classmethod
    def of(cls, reasons: Reasons) -> Why:
        """The entry of some reasons."""
        return cls(
            first=reasons.first,
            second=reasons.second,
            gap=reasons.gap,
            parts=reasons.parts.tolist(),
            ends=reasons.ends.tolist(),
            origins=[
                OriginEntry(step=o.step, state=o.state, chances=list(o.chances))
                for o in reasons.origins
            ],
            achieved=reasons.achieved,
        )


class Power(PowerFindings):
    """Who holds the power at the start of the run, with a sentence for each finding."""

    sentences: list[str]


class Header(StrictModel):
    """Header of a container."""

    arrays: list[ArrayEntry]
    world: World
    theory: dict[str, JsonValue]
    picture: Picture
    coverage: Kept = Field(alias="kept")
    why: Why | None = Field(description="The default pair at the start, if states are left out.")
    power: Power | None = Field(None, description="Who holds the power, if that was measured.")
    decisive: list[list[float]]
    errors: list[list[float]]
    histograms: list[Histogram]
    precision: Literal["exact", "compact"]
    provenance: dict[str, JsonValue]


class Lists(NamedTuple):
    """States that are worth a look; see ``empo_inspector.decisive``."""

    decisive: list[list[float]]
    errors: list[list[float]]


def pack(
    inspection: Inspection,
    scope: InspectionScope,
    start: int,
    picture: Picture,
    pictures: Arrays,
    lists: Lists,
    histograms: Sequence[Histogram],
    provenance: Mapping[str, JsonValue],
    reasons: Reasons | None = None,
) -> bytes:
    """A container of an inspection.

    Args:
        inspection: States and values.
        scope: Times and precision.
        start: Position of the state to begin with.
        picture: Constants of the states' pictures.
        pictures: Arrays of the states' pictures.
        lists: States that are worth a look.
        histograms: Sizes of errors.
        provenance: Where it comes from.
        reasons: Why the robots prefer an action at the start, if anything is known of it.
    """
    times = scope.kept_times(inspection.spec.horizon)
    arrays = {
        name: np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        for name, array in {
            **_states(inspection),
            **_values(inspection, times, scope.compact),
            **pictures,
        }.items()
    }
    entries, offset = [], 0
    for name, array in arrays.items():
        shape = list(array.shape)
        entries.append({"name": name, "dtype": array.dtype.str, "shape": shape, "offset": offset})
        offset += array.nbytes + -array.nbytes % 8
    whole = inspection.num_states == inspection.total and len(times) == len(inspection.v_r)
    header = Header.model_validate(
        {
            "arrays": entries,
            "world": _world(inspection),
            "theory": _theory(inspection),
            "picture": picture,
            "kept": {
                "states": inspection.num_states,
                "of": inspection.total,
                "start": start,
                "times": times,
                "rule": "all states"
                if inspection.num_states == inspection.total
                else "what episodes visit most, with successors",
            },
            "why": None if whole or reasons is None else Why.of(reasons),
            "power": None if inspection.power is None else inspection.power.data(),
            **{
                name: [e for e in listed if e[1] in times]
                for name, listed in lists._asdict().items()
            },
            "histograms": list(histograms),
            "precision": "compact" if scope.compact else "exact",
            "provenance": dict(provenance),
        }
    )
    text = json.dumps(
        header.model_dump(by_alias=True), allow_nan=False, separators=(",", ":")
    ).encode()
    packer = zlib.compressobj(LEVEL)
    parts = [_START.pack(MAGIC, VERSION, len(text)), text, bytes(-len(text) % 8)]
    for array in arrays.values():
        parts += [array.tobytes(), bytes(-array.nbytes % 8)]
    return b"".join([*map(packer.compress, parts), packer.flush()])


def unpack(packed: bytes) -> tuple[Header, dict[str, np.ndarray]]:
    """The header and the arrays of a container.

    Raises:
        StorageError: if the container is damaged, too large, of another version, or no container.
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
    spec, digits = inspection.spec, Digits.of(inspection.spec)
    agents = [
        {"name": a.name, "role": a.role, "actions": list(a.actions), "keys": signs_of(a.actions)}
        for a in spec.agents
    ]
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
        "goal_names": [f"{spec.agents[g.human].name}: {g.name}" for g in spec.goals],
        "strides": list(spec.strides),
        "robot_actions": list(spec.robot_action_names),
        "robot_digits": digits.robots.T.tolist(),
        "human_digits": digits.human_action.T.tolist(),
        "joint": digits.slot.argsort().tolist(),
    }


def _theory(inspection: Inspection) -> dict[str, JsonValue]:
    """The parameters, without those of humans that act otherwise."""
    if inspection.q_r is None:
        counts = {} if inspection.counts is None else {"counts": list(inspection.counts)}
        return inspection.theory.model_dump(mode="json") | counts
    parameters = inspection.theory.model_dump(mode="json", exclude={"beta_h", "nu", "robot_model"})
    return {**parameters, "x_h_floor": inspection.x_h_floor}


def _states(inspection: Inspection) -> dict[str, np.ndarray]:
    """Arrays of states and transitions."""
    return {
        "rows": inspection.rows,
        "number": inspection.number.astype(np.int32),
        "offsets": inspection.offsets.astype(np.uint32),
        # NOT_KEPT becomes the greatest number.
        "successor": np.where(
            inspection.successor == NOT_KEPT, 2**32 - 1, inspection.successor
        ).astype(np.uint32),
        "code": inspection.code.astype(np.uint16 if len(inspection.prob) <= 1 << 16 else np.uint32),
        "prob": inspection.prob,
        "duration": inspection.duration,
        "achieved": np.packbits(inspection.achieved, axis=1, bitorder="little"),
    }


def _values(inspection: Inspection, times: Sequence[int], compact: bool) -> dict[str, np.ndarray]:
    """Arrays of values at some times."""
    right = inspection.right
    values = {
        "v_r": inspection.v_r,
        "v_e": inspection.v_e,
        "v_m": inspection.v_m,
        "pi_h": inspection.pi_h if inspection.v_m is None else None,
        "q_r": inspection.q_r,
        "exact_v_r": None if right is None else right.v_r,
        "exact_v_e": None if right is None else right.v_e,
    }
    places = [time - inspection.first_time for time in times]
    dtype = np.float32 if compact else np.float64
    return {
        name: np.stack([by_time[place] for place in places]).astype(dtype)
        for name, by_time in values.items()
        if by_time is not None
    }
