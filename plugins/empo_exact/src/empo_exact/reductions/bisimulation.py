# mypy: disable-error-code="no-any-return"
"""One state for all with the same future: the coarsest partition that every joint action respects.

States are apart if they differ in achieved goals, in available joint actions, or in the chances
with which some joint action leads into the parts of the partition, by duration. Starting from goals
alone, each round tells apart what differs in where its actions lead by the partition before; after
``n`` rounds states in one part have equal values with ``n`` steps left.

States are compared by two hashes of 64 bits, and then with the first state of their part itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64, UInt8, UInt64

from empo_core.errors import SolveError
from empo_exact.graph import StateGraph, transitions_of
from empo_exact.images import Images
from empo_exact.reductions.exploration import with_images
from empo_exact.transition_arrays import Codes, Offsets
from empo_worlds.compilation import compiled, inlined
from empo_worlds.row_table import RowTable

GRAIN = float(1 << 44)
"""Chances that differ by less than about 1 over this count as equal: sums are rounded."""


class _Leads(NamedTuple):
    """Ends of all actions, as the kernels read them.

    Attributes:
        offsets: [pair + 1].
        row: Row of the goal tables that each transition leads to [transition].
        code: [transition].
        prob: [code].
        span: Number of the duration behind each code [code].
        joint: Number of joint actions.
    """

    offsets: Offsets
    row: Int32[np.ndarray, " transition"]
    code: Codes
    prob: Float64[np.ndarray, " code"]
    span: Int64[np.ndarray, " code"]
    joint: int


class _Lottery(NamedTuple):
    """Room for the chances of a pair, by the part that they lead to and by duration.

    Attributes:
        part: [item].
        span: [item].
        chance: [item].
    """

    part: Int64[np.ndarray, " item"]
    span: Int64[np.ndarray, " item"]
    chance: Float64[np.ndarray, " item"]


@inlined
def comes_first(room: _Lottery, item: int, part: int, span: int, chance: float) -> bool:
    """True if an entry belongs before these numbers."""
    if room.part[item] != part:
        return room.part[item] < part
    if room.span[item] != span:
        return room.span[item] < span
    return room.chance[item] <= chance


@inlined
def fill(leads: _Leads, parts: Int64[np.ndarray, " row"], pair: int, room: _Lottery) -> int:
    """Write the chances of a pair in a fixed order, equal outcomes added up; how many there are."""
    count = 0
    for item in range(np.int64(leads.offsets[pair]), np.int64(leads.offsets[pair + 1])):
        part, code = parts[leads.row[item]], np.int64(leads.code[item])
        span, chance, place = leads.span[code], leads.prob[code], count
        while place > 0 and not comes_first(room, place - 1, part, span, chance):
            room.part[place] = room.part[place - 1]
            room.span[place] = room.span[place - 1]
            room.chance[place] = room.chance[place - 1]
            place -= 1
        room.part[place], room.span[place], room.chance[place] = part, span, chance
        count += 1
    last = -1
    for item in range(count):
        if last >= 0 and room.part[item] == room.part[last] and room.span[item] == room.span[last]:
            room.chance[last] += room.chance[item]
        else:
            last += 1
            room.part[last], room.span[last] = room.part[item], room.span[item]
            room.chance[last] = room.chance[item]
    return last + 1


@inlined
def mix(value: np.uint64, word: np.int64 | int, factor: np.uint64) -> np.uint64:
    """A hash with one more word in it (multiply-xorshift)."""
    value = (value ^ np.uint64(word)) * factor
    return value ^ (value >> np.uint64(29))


@compiled
def write_signatures(
    leads: _Leads,
    parts: Int64[np.ndarray, " row"],
    room: _Lottery,
    signature: UInt64[np.ndarray, "state 2"],
) -> None:
    """Write two hashes of where the actions of each expanded state lead."""
    first_salt, second_salt = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
    for state in range(signature.shape[0]):
        first, second = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
        for action in range(leads.joint):
            count = fill(leads, parts, state * leads.joint + action, room)
            first, second = mix(first, count, first_salt), mix(second, count, second_salt)
            for item in range(count):
                rounded = np.int64(room.chance[item] * GRAIN + 0.5)
                first = mix(
                    mix(mix(first, room.part[item], first_salt), room.span[item], first_salt),
                    rounded,
                    first_salt,
                )
                second = mix(
                    mix(mix(second, room.part[item], second_salt), room.span[item], second_salt),
                    rounded,
                    second_salt,
                )
        signature[state, 0], signature[state, 1] = first, second


@compiled
def first_differing(
    leads: _Leads,
    parts: Int64[np.ndarray, " row"],
    first: Int64[np.ndarray, " part"],
    part: Int32[np.ndarray, " state"],
    room: _Lottery,
    other: _Lottery,
    expanded: int,
) -> int:
    """The first state whose actions do not lead where those of its part's first do; -1: none."""
    for state in range(expanded):
        if first[part[state]] == state:
            continue
        for action in range(leads.joint):
            count = fill(leads, parts, state * leads.joint + action, room)
            if count != fill(leads, parts, first[part[state]] * leads.joint + action, other):
                return state
            for item in range(count):
                if room.part[item] != other.part[item] or room.span[item] != other.span[item]:
                    return state
                if abs(room.chance[item] - other.chance[item]) * GRAIN > 1.5:
                    return state
    return -1


def partition(
    graph: StateGraph, images: Images, achieved: Bool[np.ndarray, "state goal"]
) -> Int32[np.ndarray, " state"]:
    """The part of each state, numbered by their first states [state].

    Args:
        graph: The graph.
        images: The images that its transitions mean.
        achieved: Which goals each state achieves.
    """
    status = graph.alive.astype(np.uint8)
    status[graph.num_expanded :] = 2
    part = _numbered(np.concatenate([achieved.astype(np.uint8), status[:, None]], 1))
    spans = np.unique(graph.duration, return_inverse=True)[1].astype(np.int64).ravel()
    joint = graph.spec.num_joint_actions
    leads = _Leads(graph.offsets, images.successor, graph.code, graph.prob, spans, joint)
    state = images.states
    variant = np.zeros(images.rows, np.int64)
    variant[graph.num_states :] = images.variant
    widest = int(np.diff(graph.offsets.astype(np.int64)).max(initial=1))
    room, other = (
        _Lottery(np.zeros(widest, np.int64), np.zeros(widest, np.int64), np.zeros(widest))
        for _ in range(2)
    )
    rounds = graph.num_states if graph.spec.horizon is None else graph.spec.horizon
    for _ in range(rounds):
        parts = part[state] * np.int64(len(images.columns)) + variant
        described = np.zeros((graph.num_states, 3), np.uint64)
        described[:, 2] = part
        signature = np.zeros((graph.num_expanded, 2), np.uint64)
        write_signatures(leads, parts, room, signature)
        described[: graph.num_expanded, :2] = signature
        finer = _numbered(described)
        first = np.unique(finer, return_index=True)[1].astype(np.int64)
        wrong = first_differing(leads, parts, first, finer, room, other, graph.num_expanded)
        if wrong >= 0:
            raise SolveError(
                f"reduce: lump took states {wrong} and {first[finer[wrong]]} of "
                f"{graph.spec.name!r} for alike by a hash of 128 bits, which they are not: leave "
                "lump out of reduce"
            )
        is_stable = finer.max(initial=0) == part.max(initial=0)
        part = finer
        if is_stable:
            break
    return part


def _numbered(
    rows: UInt8[np.ndarray, "state word"] | UInt64[np.ndarray, "state word"],
) -> Int32[np.ndarray, " state"]:
    """The number of each row among the distinct ones, in order of first appearance."""
    return RowTable(rows.shape[1], rows.dtype).number(rows)


def lumped(
    graph: StateGraph, images: Images, part: Int32[np.ndarray, " state"]
) -> tuple[StateGraph, Images]:
    """The graph of the first states of all parts, which stand for the others."""
    first = np.unique(part, return_index=True)[1].astype(np.int64)
    offsets, items = transitions_of(graph, first)
    expanded = int(np.searchsorted(first, graph.num_expanded))
    rows, position = np.unique(images.successor[items], return_inverse=True)
    variant = np.zeros(images.rows, np.int32)
    variant[graph.num_states :] = images.variant
    pairs = np.stack([part[images.states[rows]], variant[rows]], -1)
    table = RowTable(2, np.dtype(np.int32))
    number = table.number(pairs)
    smaller = replace(
        graph,
        states=graph.states[first],
        layers=np.searchsorted(first, graph.layers).astype(np.int64),
        num_expanded=expanded,
        offsets=offsets[: expanded * graph.spec.num_joint_actions + 1].astype(graph.offsets.dtype),
        successor=number[position.ravel()],
        code=graph.code[items],
    )
    return with_images(smaller, table.rows.copy(), images.columns)
