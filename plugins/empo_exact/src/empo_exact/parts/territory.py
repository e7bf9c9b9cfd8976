"""The states of one process, by part, with the pieces of transitions that they are in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int32, Int64, Shaped

from empo_exact.parts.exploration import FOUND, DiscoveredStates, piece_number, rank_of
from empo_exact.parts.partition import Partition
from empo_exact.parts.peers import Peers
from empo_exact.parts.store import Arrays, PartStore
from empo_exact.transition_arrays import Codes, mark
from empo_worlds.row_table import RowTable

SHARED = "shared"
"""Kind of the stored arrays of a piece of transitions from the process that found them."""

Rows = Shaped[np.ndarray, "state word"]


@dataclass(frozen=True)
class Pieces:
    """Transitions of a territory, in which the states of a part are neighbours in every piece.

    Attributes:
        kind: Kind under which they are stored.
        numbers: Their numbers there [piece].
        cuts: Where in each the states of each part begin, and end [piece offset].
        begins: Where each begins in ``number`` [piece].
        number: Number of each state in the territory's table, piece after piece [state].
        place: The same by address [address].
        codes: Probabilities and durations by code.
    """

    kind: str
    numbers: list[int]
    cuts: Int64[np.ndarray, "piece offset"]
    begins: list[int]
    number: Int32[np.ndarray, " state"]
    place: Int32[np.ndarray, " address"]
    codes: RowTable


@dataclass(frozen=True)
class Territory:
    """The states that one process looks after; all of a part are neighbours in its table.

    Attributes:
        partition: Which part has which state.
        parts: Numbers of the parts of this process.
        table: Numbers of its states by row, and behind them those of others that follow them.
        depth: Fewest steps to each of its states [state].
        begins: Number of the first state of each part, and the end of all [offset].
        steps: For how many steps all processes have looked ahead.
        pieces: Transitions of its states.
    """

    partition: Partition
    parts: list[int]
    table: RowTable
    depth: Int32[np.ndarray, " state"]
    begins: Int64[np.ndarray, " offset"]
    steps: int
    pieces: Pieces

    def layers(self, part: int) -> Int64[np.ndarray, " depth"]:
        """Number of states of a part that are reachable within each number of steps [depth]."""
        depth = self.depth[self.begins[part] : self.begins[part + 1]]
        return np.searchsorted(depth, np.arange(self.steps + 1), side="right")


def hand_over(
    discovered: DiscoveredStates,
    partition: Partition,
    store: PartStore,
    peers: Peers,
    joint: int,
) -> Territory:
    """The states of this process's parts, by part, depth and key.

    Args:
        discovered: States, wherever they were found; its codes become those of all processes.
        partition: Which part each is in; see ``rank_of`` for which process has a part.
        store: Has their transitions.
        peers: All processes.
        joint: Number of joint actions of a state.
    """
    states, follows = discovered, np.zeros(len(discovered.rows), np.bool_)
    if peers.size > 1:
        states, follows = _exchanged(discovered, partition, store, peers, joint)
    part_edges = np.arange(partition.count + 1)
    owner = partition.owners(states.rows)[states.order]
    bounds = [0, *states.ends]
    depth = np.repeat([*states.depths, states.steps], np.diff([*bounds, len(owner)])).astype(
        np.int32
    )
    order = _by_part(states, owner, depth, partition, peers.size > 1)
    table = RowTable.of(states.rows[states.order[order]])
    number = np.empty(table.count, np.int32)
    number[order] = np.arange(table.count)
    place = np.full(len(follows), -1, np.int32)
    place[states.address] = number
    outside = np.flatnonzero(follows & (place < 0))
    rows = peers.ask(
        outside % peers.size, outside // peers.size, lambda index: discovered.rows[index]
    )
    place[outside] = table.number(rows)
    ranks = rank_of(part_edges[:-1], partition.count, peers.size)
    return Territory(
        partition=partition,
        parts=np.flatnonzero(ranks == peers.rank).tolist(),
        table=table,
        depth=depth[order],
        begins=np.searchsorted(owner, part_edges, sorter=order),
        steps=states.steps,
        pieces=Pieces(
            kind=FOUND if peers.size == 1 else SHARED,
            numbers=[piece_number(piece, peers) for piece in range(len(states.ends))],
            cuts=np.array([np.searchsorted(owner[a:b], part_edges) for a, b in pairwise(bounds)]),
            begins=bounds[:-1],
            number=number,
            place=place,
            codes=states.codes,
        ),
    )


def _by_part(
    states: DiscoveredStates,
    owner: Int32[np.ndarray, " state"],
    depth: Int32[np.ndarray, " state"],
    partition: Partition,
    are_mixed: bool,
) -> Int64[np.ndarray, " state"]:
    """The order of states by part, depth and key [state].

    Neighbours by key share successors, which so are in the cache when they are read again. Those
    that one process found are in order of the key; ``are_mixed`` where several did.
    """
    rows = states.rows[states.order] if are_mixed else states.rows[:0]
    keys = [rows[:, word] for word in partition.words[::-1]] if are_mixed else []
    return np.lexsort([*keys, depth, owner])


def _exchanged(
    discovered: DiscoveredStates,
    partition: Partition,
    store: PartStore,
    peers: Peers,
    joint: int,
) -> tuple[DiscoveredStates, Bool[np.ndarray, " address"]]:
    """This process's share of what all have found, and which addresses follow it [address]."""
    follows = np.zeros(peers.size * max(peers.all(len(discovered.rows))), np.bool_)
    translations = merge_codes(discovered.codes, peers)
    ranks = rank_of(partition.owners(discovered.rows), partition.count, peers.size)
    rows: list[Rows] = []
    address: list[Int32[np.ndarray, " state"]] = []
    ends: list[int] = []
    for piece, (first, last) in enumerate(pairwise([0, *discovered.ends, len(discovered.order)])):
        states = discovered.order[first:last]
        cuts = np.searchsorted(ranks[states], np.arange(peers.size + 1)).tolist()
        outgoing = [
            {
                "rows": discovered.rows[states[a:b]],
                "address": discovered.address[first + a : first + b],
            }
            for a, b in pairwise(cuts)
        ]
        has_transitions = piece < len(discovered.ends)  # The last states have none.
        if has_transitions:
            whole = store.get(FOUND, piece_number(piece, peers))
            for message, (a, b) in zip(outgoing, pairwise(cuts), strict=True):
                message |= transitions_of(whole, a * joint, b * joint)
            store.drop(FOUND, [piece_number(piece, peers)])
        for home, got in enumerate(peers.swap(outgoing, lent_as="found")):
            rows.append(got["rows"].copy())
            address.append(got["address"].copy())
            if has_transitions:
                ends.append((ends[-1] if ends else 0) + len(got["rows"]))
                arrays = {name: got[name].copy() for name in ("offsets", "successor", "code")}
                mark(arrays["successor"], follows)
                if home in translations:
                    arrays["code"] = translations[home].take(arrays["code"], mode="clip")
                store.put(SHARED, piece_number(piece * peers.size + home, peers), arrays)
    share = replace(
        discovered,
        rows=np.concatenate(rows),
        order=np.arange(sum(map(len, rows)), dtype=np.int32),
        address=np.concatenate(address),
        ends=ends,
        depths=np.repeat(discovered.depths, peers.size).tolist(),
    )
    return share, follows


def transitions_of(piece: Arrays, first: int, last: int) -> dict[str, np.ndarray]:
    """The transitions of some pairs of a piece."""
    offsets = piece["offsets"][first : last + 1]
    items = slice(int(offsets[0]), int(offsets[-1]))
    return {
        "offsets": offsets - offsets[0],
        "successor": piece["successor"][items],
        "code": piece["code"][items],
    }


def merge_codes(codes: RowTable, peers: Peers) -> dict[int, Codes]:
    """Take in the codes of other processes, behind the own; what each is here, where it differs.

    So all processes agree on whether durations differ, which changes how sums are rounded.
    """
    all_rows = peers.all(codes.rows.copy())
    here = {rank: codes.number(rows) for rank, rows in enumerate(all_rows)}
    dtype = np.uint16 if codes.count <= 1 << 16 else np.int32
    return {
        rank: number.astype(dtype)
        for rank, number in here.items()
        if not np.array_equal(number, np.arange(len(number)))
    }
