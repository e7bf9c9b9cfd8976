"""Transitions of parts, and where the states of other parts are that follow a part's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Int32, Int64, Shaped

from empo_core.protocols import WorldModel
from empo_exact.parts.exploration import rank_of
from empo_exact.parts.peers import Peers
from empo_exact.parts.store import PartStore
from empo_exact.parts.territory import Territory, transitions_of
from empo_exact.transition_arrays import Codes, Offsets, mark, renumber
from empo_worlds.compilation import compiled
from empo_worlds.contract import achieved_in

GRAPH = "graph"
"""Kind of the stored arrays of a part's transitions."""
HALO = "halo"
"""Kind of the stored arrays that say where the states of other parts are that follow a part's."""

Transitions: TypeAlias = tuple[Offsets, Int32[np.ndarray, " transition"], Codes]


@compiled
def place_transitions(
    offsets: Offsets,
    successor: Int32[np.ndarray, " transition"],
    code: Codes,
    numbers: Int32[np.ndarray, " state"],
    place: Int32[np.ndarray, " address"],
    begins: Int64[np.ndarray, " offset"],
    new_offsets: Offsets,
    new_successor: Int32[np.ndarray, " item"],
    new_code: Shaped[np.ndarray, " item"],
) -> None:
    """Copy the transitions of states to where those of the states with these numbers begin."""
    joint = (len(offsets) - 1) // max(1, len(numbers))
    for state in range(len(numbers)):
        pair, new_pair = state * joint, numbers[state] * joint
        begin, end = np.int64(offsets[pair]), np.int64(offsets[pair + joint])
        shift = begins[numbers[state]] - begin
        for action in range(joint):
            new_offsets[new_pair + action] = np.int64(offsets[pair + action]) + shift
        for item in range(begin, end):
            new_successor[item + shift] = place[successor[item]]
            new_code[item + shift] = code[item]


class PartBuilder:
    """Works out the transitions of parts, one after another.

    Attributes:
        codes: Probabilities and durations by code.
        terminal: Depth and row of a terminal state that the fewest steps lead to.
    """

    def __init__(self, world: WorldModel, territory: Territory, store: PartStore) -> None:
        self.codes = territory.pieces.codes
        self._world = world
        self._territory = territory
        self._store = store
        self.terminal: tuple[int, Shaped[np.ndarray, " word"]] | None = None

    def build(self, part: int) -> None:
        """Store a part's transitions, and which states are its halo."""
        arrays, halo = self._built(part)
        self._note_terminal(part, arrays)
        self._store.put(GRAPH, part, arrays)
        num_own = np.diff(self._territory.begins)[part]
        self._store.put(HALO, part, {"number": halo, "own": np.array(num_own)})

    def _built(self, part: int) -> tuple[dict[str, np.ndarray], Int64[np.ndarray, " halo_state"]]:
        """A graph, and the numbers of its halo states in the territory."""
        territory = self._territory
        first, last = (int(end) for end in territory.begins[part : part + 2])
        layers = territory.layers(part)
        expanded = int(layers[-2])
        offsets, successor, code = self._collected(part, first, expanded)
        halo = self._halo(successor, first, last)
        rows = territory.table.rows
        states = np.concatenate([rows[first:last], rows[halo]])
        self._renumber(successor, first, last, halo)
        arrays = {
            "states": states,
            "layers": layers,
            "num_expanded": np.array(expanded),
            "offsets": offsets,
            "successor": successor,
            "code": code,
            "achieved": achieved_in(self._world, torch.from_numpy(states)).numpy(),
        }
        return arrays, halo

    def _collected(self, part: int, first: int, count: int) -> Transitions:
        """The transitions of a part's states, from all pieces."""
        pieces, joint = self._territory.pieces, self._world.spec.num_joint_actions
        begins = np.zeros(count + 1, np.int64)
        for numbers, share in self._shares(part, first):
            begins[numbers + 1] = np.diff(share["offsets"][::joint])
        np.cumsum(begins, out=begins)
        total = int(begins[-1])
        offsets = np.empty(count * joint + 1, np.uint32 if total < 1 << 32 else np.int64)
        offsets[-1] = total
        successor = np.empty(total, np.int32)
        code = np.empty(total, np.uint16 if self.codes.count <= 1 << 16 else np.int32)
        is_last = part == self._territory.parts[-1]
        for numbers, share in self._shares(part, first, drop=is_last):
            arrays = share["offsets"], share["successor"], share["code"]
            new = offsets, successor, code
            place_transitions(*arrays, numbers, pieces.place, begins, *new)
        return offsets, successor, code

    def _shares(
        self, part: int, first: int, *, drop: bool = False
    ) -> Iterator[tuple[Int32[np.ndarray, " state"], dict[str, np.ndarray]]]:
        """Of every piece, the transitions of a part's states, and their numbers in it.

        Pieces need not be kept any longer if ``drop``.
        """
        pieces, joint = self._territory.pieces, self._world.spec.num_joint_actions
        ranges = zip(pieces.numbers, pieces.begins, pieces.cuts.tolist(), strict=True)
        for piece, begin, cuts in ranges:
            low, high = cuts[part : part + 2]
            transitions = transitions_of(
                self._store.view(pieces.kind, piece), low * joint, high * joint
            )
            yield pieces.number[begin + low : begin + high] - np.int32(first), transitions
            if drop:
                self._store.drop(pieces.kind, [piece])

    def _note_terminal(self, part: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Note the first state of a part that has no transitions."""
        bounds = arrays["offsets"][:: self._world.spec.num_joint_actions]
        for state in np.flatnonzero(bounds[1:] == bounds[:-1])[:1]:
            depth = int(np.searchsorted(arrays["layers"], state, side="right"))
            if self.terminal is None or depth < self.terminal[0]:
                self.terminal = depth, arrays["states"][state].copy()

    def _halo(
        self, successor: Int32[np.ndarray, " transition"], first: int, last: int
    ) -> Int64[np.ndarray, " halo_state"]:
        """The successors that are not of the part, ascending."""
        is_successor = np.zeros(self._territory.table.count, np.bool_)
        mark(successor, is_successor)
        is_successor[first:last] = False
        return np.flatnonzero(is_successor)

    def _renumber(
        self,
        successor: Int32[np.ndarray, " transition"],
        first: int,
        last: int,
        halo: Int64[np.ndarray, " halo_state"],
    ) -> None:
        """Number successors in the part: own states, then its halo."""
        num_own = last - first
        place = np.empty(self._territory.table.count, np.int32)
        place[first:last] = np.arange(num_own)
        place[halo] = num_own + np.arange(len(halo))
        renumber(successor, place)


def complete_halos(territory: Territory, store: PartStore, peers: Peers) -> None:
    """Store of each part where its halo states are: in which part, and with which number."""
    begins, count = territory.begins, len(territory.depth)
    outside = territory.table.rows[count:]
    owner = territory.partition.owners(outside)

    def index(rows: Shaped[np.ndarray, "query word"]) -> Int64[np.ndarray, " query"]:
        number = territory.table.find(rows).astype(np.int64)
        number -= begins[territory.partition.owners(rows)]
        return number

    ranks = rank_of(owner, territory.partition.count, peers.size)
    theirs = peers.ask(ranks, outside, index)
    for part in territory.parts:
        halo = store.get(HALO, part)
        near, away = np.split(halo["number"], [np.searchsorted(halo["number"], count)])
        of = np.searchsorted(begins, near, side="right") - 1
        of, number = (
            np.concatenate([of, owner[away - count]]),
            np.concatenate([near - begins[of], theirs[away - count]]),
        )
        slot = np.lexsort((number, of))
        places = {"part": of[slot], "index": number[slot], "slot": slot}
        arrays = {name: array.astype(np.int32) for name, array in places.items()}
        store.put(HALO, part, {**arrays, "own": halo["own"]})
