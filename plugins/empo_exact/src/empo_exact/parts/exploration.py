"""All reachable states and their transitions, found by all processes together.

A hash of its row says which process finds a state, since which part it will be in is not known
before all are found. Until then that process keeps the state's transitions, in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Int32, Int64, Shaped

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.types import Expansion
from empo_exact.expansion import Block, Expand
from empo_exact.graph import ITEMS_PER_BLOCK, Explored, Progress
from empo_exact.parts.partition import Partition, choose_partition, key_order
from empo_exact.parts.peers import Peers
from empo_exact.parts.store import PartStore
from empo_exact.transition_arrays import TransitionArrays, renumber
from empo_worlds.row_table import RowTable

FOUND = "found"
"""Kind of the stored arrays of a piece of the transitions that a process found."""
PIECE = 1 << 21
"""Transitions after which a piece ends."""
SAMPLED = 1 << 17
"""About how many rows each process offers when parts are chosen."""

Rows = Shaped[np.ndarray, "state word"]


@dataclass(frozen=True)
class DiscoveredStates:
    """States of one process, with their transitions in pieces.

    The address of a state says which process found it, and its number there:
    ``number * size + rank``. Transitions lead to addresses. A piece is of states of one depth.

    Attributes:
        rows: Rows of the states, by number [state word].
        order: Their numbers by depth, then by piece, then by key [state].
        address: Their addresses, in that order [state].
        ends: Where in that order each piece ends; states behind the last were not expanded [piece].
        depths: How many steps lead to the states of each piece [piece].
        layers: How many states all processes have found within each number of steps [depth].
        transitions: How many transitions lead from all states of all processes.
        codes: Probabilities and durations by code.
    """

    rows: Rows
    order: Int32[np.ndarray, " state"]
    address: Int32[np.ndarray, " state"]
    ends: list[int]
    depths: list[int]
    layers: list[int]
    transitions: int
    codes: RowTable

    @property
    def steps(self) -> int:
        """For how many steps all processes have looked ahead."""
        return len(self.layers) - 1


def find_states(
    world: WorldModel,
    expand: Expand,
    words: Int64[np.ndarray, " word"],
    max_states: int,
    store: PartStore,
    peers: Peers,
    progress: Progress,
    start: Rows,
) -> DiscoveredStates:
    """Find everything that is reachable within the horizon, by breadth-first search.

    Args:
        world: The world.
        expand: Expands blocks of its states.
        words: Order of the words of a key.
        max_states: Give up beyond this many states.
        store: Keeps transitions.
        peers: All processes.
        progress: Told after every block.
        start: Distinct rows in which episodes start.

    Raises:
        SolveError: if there are too many states.
        BrokenWorldError: if the world breaks its contract.
        StorageError: if the disk refuses.
        WorkerError: if a process is gone.
    """
    horizon = world.spec.horizon
    finder = _Finder(world, expand, words, store, peers, progress, start)
    layers, is_growing = [len(start)], True
    while is_growing and (horizon is None or len(layers) <= horizon):
        layers.append(finder.look_ahead())
        is_growing = layers[-1] > layers[-2]
        if layers[-1] > max_states:
            raise SolveError(
                f"{world.spec.name!r} has more than {max_states} reachable states "
                f"({layers[-1]} after {len(layers) - 1} complete steps). Use a smaller "
                "max_steps or raise max_states."
            )
    order = np.concatenate([*finder.order, finder.unexpanded()])
    return DiscoveredStates(
        rows=finder.table.rows,
        order=order,
        address=order * np.int32(peers.size) + np.int32(peers.rank),
        ends=finder.ends,
        depths=finder.depths,
        layers=layers,
        transitions=peers.sum(finder.transitions),
        codes=finder.codes,
    )


class _Finder:
    """Finds the states that a hash gives to this process, layer by layer.

    Attributes:
        table: Their numbers by row.
        layers: How many there are within each number of steps, at least 1.
        order, ends, depths, codes: As in ``DiscoveredStates``; the order layer by layer.
        transitions: How many transitions lead from them.
    """

    def __init__(
        self,
        world: WorldModel,
        expand: Expand,
        words: Int64[np.ndarray, " word"],
        store: PartStore,
        peers: Peers,
        progress: Progress,
        start: Rows,
    ) -> None:
        self._world, self._expand, self._words = world, expand, words
        self._store, self._peers, self._progress = store, peers, progress
        self._row = world.spec.state_words, start.dtype
        self.table = RowTable(*self._row)
        self.table.number(start[_homes(start, peers.size) == peers.rank])
        self.codes = RowTable(2, np.dtype(np.float64))
        self.layers = [self._num_states]
        self.order: list[Int32[np.ndarray, " state"]] = []
        self.ends: list[int] = []
        self.depths: list[int] = []
        self.transitions = 0

    @property
    def _num_states(self) -> int:
        """Number of states; 1 where a hash gave the first ones to others, as growth has a rate."""
        return max(1, self.table.count)

    def unexpanded(self) -> Int32[np.ndarray, " state"]:
        """Numbers of the states of the last layer, by key."""
        first = self.ends[-1] if self.ends else 0
        return (first + key_order(self.table.rows[first:], self._words)).astype(np.int32)

    def look_ahead(self) -> int:
        """Expand the last layer; how many states all processes have found then."""
        order = self.unexpanded()
        self.order.append(order)
        blocks = _expanded(self._world, self._expand, self.table.rows[order])
        reports = [(True, 0)]
        while any(goes_on for goes_on, _ in reports):
            goes_on = self._find_piece(blocks)
            reports = self._peers.all((goes_on, self.table.count))
        self.layers.append(self._num_states)
        return sum(count for _, count in reports)

    def _find_piece(self, blocks: Iterator[tuple[Block, Expansion]]) -> bool:
        """Expand blocks until a piece is full; True if it is before there are no more."""
        before, arrays = self.transitions, TransitionArrays(self.codes, PIECE, PIECE)
        is_alone, is_full = self._peers.size == 1, False
        expanded = self.ends[-1] if self.ends else 0
        # Most successors come more than once, so that their homes are found afterwards.
        layer = self.table if is_alone else RowTable(*self._row)
        for block, expansion in blocks:
            arrays.append(expansion, layer.number(expansion.states.numpy()))
            expanded += len(block)
            self.transitions += len(expansion.index)
            self._progress(Explored(self.layers, expanded, self._num_states, self.transitions))
            is_full = self.transitions - before >= PIECE
            if is_full:
                break
        offsets, successor, code = arrays.whole()
        if not is_alone:
            renumber(successor, self._brought_home(layer.rows))
        piece = {"offsets": offsets, "successor": successor, "code": code}
        self._store.put(FOUND, piece_number(len(self.ends), self._peers), piece)
        self.ends.append(expanded)
        self.depths.append(len(self.layers) - 1)
        return is_full

    def _brought_home(self, rows: Rows) -> Int32[np.ndarray, " state"]:
        """The addresses that the processes which look after them give to rows."""
        size = self._peers.size
        homes = _homes(rows, size)
        number = self._peers.ask(homes, rows, self.table.number)
        address: Int32[np.ndarray, " state"] = (number * size + homes).astype(np.int32)
        return address


def piece_number(number: int, peers: Peers) -> int:
    """The number under which a piece is stored, another in each process."""
    return number * peers.size + peers.rank


def _homes(rows: Rows, size: int) -> Int64[np.ndarray, " state"]:
    """The process that looks after each row, by a hash of it [state]."""
    mixed = np.zeros(len(rows), np.uint64)
    for word in rows.T if size > 1 else ():
        mixed = (mixed ^ word.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(size)).astype(np.int64)


def blocks_of(rows: Rows, joint: int) -> Iterator[Block]:
    """Rows in blocks of about ``ITEMS_PER_BLOCK`` transitions."""
    size = max(1, ITEMS_PER_BLOCK // joint)
    return (rows[first : first + size] for first in range(0, len(rows), size))


def _expanded(
    world: WorldModel, expand: Expand, frontier: Rows
) -> Iterator[tuple[Block, Expansion]]:
    """The blocks of a layer with their successors."""
    joint = world.spec.num_joint_actions
    return zip(blocks_of(frontier, joint), expand(blocks_of(frontier, joint)), strict=True)


def divide(
    discovered: DiscoveredStates, words: Int64[np.ndarray, " word"], parts: int, peers: Peers
) -> Partition:
    """The same partition in all processes, from samples of their states."""
    # A hash gave the states to the processes, so all have about equally many.
    samples = peers.all(discovered.rows[:: max(1, len(discovered.rows) // SAMPLED)].copy())
    return choose_partition(samples, parts, words)


def rank_of(part: Int[np.ndarray, " item"], parts: int, size: int) -> Int64[np.ndarray, " item"]:
    """The process that has each part: neighbouring parts are together [item]."""
    return part.astype(np.int64) * size // parts
