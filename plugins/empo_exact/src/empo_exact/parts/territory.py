"""The states of one process, by part, and where the successors of each part's states are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Int32, Int64, Shaped

from empo_core.protocols import WorldModel
from empo_core.worlds.row_table import RowTable
from empo_exact.expansion import Expand
from empo_exact.graph import chances, joined, narrow, running_offsets
from empo_exact.parts.exploration import Found, blocks_of, rank_of
from empo_exact.parts.partition import Partition
from empo_exact.parts.peers import Peers
from empo_exact.parts.store import PartStore

GRAPH = "graph"
"""Kind of the stored arrays of a part's transitions."""
HALO = "halo"
"""Kind of the stored arrays that say where the states of other parts are that follow a part's."""


class Territory:
    """The states that one process looks after; all of a part are neighbours in its table.

    Attributes:
        partition: Which part has which state.
        parts: Numbers of the parts of this process.
        table: Numbers of its states by row.
        depth: Fewest steps to each of its states [state].
        begins: Number of the first state of each part, and the end of all [part + 1].
    """

    def __init__(self, found: Found, partition: Partition, peers: Peers) -> None:
        every = np.arange(partition.count, dtype=np.int32)
        ranks = rank_of(every, partition.count, peers.size)
        self.partition = partition
        self.parts: list[int] = np.flatnonzero(ranks == peers.rank).tolist()
        self.depth, self.steps = found.depth, found.steps
        self.begins = np.searchsorted(partition.owners(found.rows), np.arange(len(every) + 1))
        self.table = RowTable.of(found.rows)

    def layers(self, part: int) -> Int64[np.ndarray, " depth"]:
        """Number of states of a part that are reachable within each number of steps [depth]."""
        depth = self.depth[self.begins[part] : self.begins[part + 1]]
        return np.searchsorted(depth, np.arange(self.steps + 1), side="right")


class PartBuilder:
    """Works out the transitions of parts, one after another.

    Attributes:
        is_implicit: They are not stored, but worked out whenever they are wanted.
        codes: Probabilities and durations by code.
        abroad: By part, rows of its halo that other processes have; behind those of this one.
        terminal: Depth and row of a terminal state that the fewest steps lead to.
    """

    def __init__(
        self,
        world: WorldModel,
        territory: Territory,
        store: PartStore,
        expand: Expand,
        *,
        is_implicit: bool,
    ) -> None:
        self.is_implicit = is_implicit
        self._world = world
        self._territory = territory
        self._store = store
        self._expand = expand
        self._place = np.full(territory.table.count, -1, np.int32)
        self.codes = RowTable(2, np.dtype(np.float64))
        self.abroad: dict[int, RowTable] = {}
        self.terminal: tuple[int, Shaped[np.ndarray, " word"]] | None = None

    def build(self, part: int) -> None:
        """Store a part's transitions unless they are implicit, and where its halo states are."""
        arrays = self.graph(part)
        self._note_terminal(part, arrays)
        if not self.is_implicit:
            self._store.put(GRAPH, part, arrays)
        territory = self._territory
        own = int(territory.begins[part + 1] - territory.begins[part])
        behind = len(arrays["states"]) - (self.abroad[part].count if part in self.abroad else 0)
        near = territory.table.find(arrays["states"][own:behind])
        owner = np.searchsorted(territory.begins, near, side="right") - 1
        halo = halo_arrays(owner, near - territory.begins[owner])
        self._store.put(HALO, part, {**halo, "own": np.array(own)})

    def graph(self, part: int) -> dict[str, np.ndarray]:
        """The transitions of a part, with halo states behind its own."""
        world, territory = self._world, self._territory
        first, last = (int(end) for end in territory.begins[part : part + 2])
        rows = territory.table.rows[first:last]
        layers = territory.layers(part)
        expanded = int(layers[-2]) if territory.steps else 0
        abroad = RowTable(world.spec.state_words, rows.dtype)
        counts, target, code = [], [], []
        for found in self._expand(blocks_of(rows[:expanded], world.spec.num_joint_actions)):
            number = territory.table.find(found.states.numpy())
            away = number < 0
            if away.any():
                number[away] = -1 - abroad.number(found.states.numpy()[away])
            target.append(number)
            code.append(narrow(self.codes.number(chances(found))))
            counts.append(np.diff(found.offsets.numpy()))
        targets = joined(target, np.int32)
        near = self._neighbours(targets, first, last)
        successor = self._settled(targets, first, last, near)
        halo = np.concatenate([territory.table.rows[near], abroad.rows])
        states = np.concatenate([rows, halo])
        wide = np.uint16 if self.codes.count <= 1 << 16 else np.int32
        if abroad.count:
            self.abroad[part] = abroad
        return {
            "states": states,
            "layers": layers,
            "num_expanded": np.array(expanded),
            "offsets": running_offsets(counts),
            "successor": successor,
            "code": joined(code, wide),
            "achieved": world.achieved(torch.from_numpy(states)).numpy(),
        }

    def _note_terminal(self, part: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Note the first state of a part that has no transitions."""
        bounds = arrays["offsets"][:: self._world.spec.num_joint_actions]
        for state in np.flatnonzero(bounds[1:] == bounds[:-1])[:1]:
            depth = int(np.searchsorted(arrays["layers"], state, side="right"))
            if self.terminal is None or depth < self.terminal[0]:
                self.terminal = depth, arrays["states"][state].copy()

    def _neighbours(
        self, targets: Int32[np.ndarray, " transition"], first: int, last: int
    ) -> Int64[np.ndarray, " state"]:
        """The states of other parts of this process among the targets, ascending."""
        seen = np.zeros(len(self._place) + 1, np.bool_)
        seen[np.maximum(targets, -1)] = True  # The last entry stands for other processes.
        seen[first:last] = seen[-1] = False
        return np.flatnonzero(seen)

    def _settled(
        self,
        targets: Int32[np.ndarray, " transition"],
        first: int,
        last: int,
        near: Int64[np.ndarray, " state"],
    ) -> Int32[np.ndarray, " transition"]:
        """Targets as numbers of the part: own states, those of neighbours, those abroad."""
        own = last - first
        self._place[first:last] = np.arange(own)
        self._place[near] = own + np.arange(len(near))
        away = targets < 0
        found: Int32[np.ndarray, " transition"] = self._place.take(targets, mode="clip")
        found[away] = own + len(near) - 1 - targets[away]
        return found


def halo_arrays(
    part: Int64[np.ndarray, " halo_state"], index: Int64[np.ndarray, " halo_state"]
) -> dict[str, np.ndarray]:
    """Halo states by part and by number there, with their positions in the halo [halo_state]."""
    slot = np.lexsort((index, part))
    arrays = {"part": part[slot], "index": index[slot], "slot": slot}
    return {name: array.astype(np.int32) for name, array in arrays.items()}


def complete_halos(
    builder: PartBuilder, territory: Territory, store: PartStore, peers: Peers
) -> None:
    """Store where those halo states are that other processes have."""
    if peers.size == 1:
        return
    asked = [_asked(builder, territory, rank, peers.size) for rank in range(peers.size)]
    answers: list[dict[str, np.ndarray]] = []
    for questions in peers.swap(asked):
        replies: dict[str, np.ndarray] = {}
        for name, rows in questions.items():
            number = territory.table.find(rows)
            replies[name] = number - territory.begins[territory.partition.owners(rows)]
        answers.append(replies)
    told = peers.swap(answers)
    for part, abroad in builder.abroad.items():
        owners = territory.partition.owners(abroad.rows)
        ranks = rank_of(owners, territory.partition.count, peers.size)
        index = np.empty(len(owners), np.int64)
        for rank, numbers in enumerate(told):
            index[ranks == rank] = numbers.get(str(part), np.empty(0))
        near = store.get(HALO, part)  # In their order, since there were no others.
        halo = halo_arrays(
            np.concatenate([near["part"], owners]), np.concatenate([near["index"], index])
        )
        store.put(HALO, part, {**halo, "own": near["own"]})


def _asked(
    builder: PartBuilder, territory: Territory, rank: int, size: int
) -> dict[str, Shaped[np.ndarray, "state word"]]:
    """The rows that each part wants to know of a process, by part."""
    asked = {}
    for part, abroad in builder.abroad.items():
        ranks = rank_of(territory.partition.owners(abroad.rows), territory.partition.count, size)
        if (ranks == rank).any():
            asked[str(part)] = abroad.rows[ranks == rank]
    return asked


def merged_codes(builder: PartBuilder, peers: Peers) -> Shaped[np.ndarray, "code 2"]:
    """Probabilities and durations by code, those of other processes behind [code 2].

    So all processes agree on whether durations differ, which changes how sums are rounded.
    """
    table = builder.codes
    for rows in peers.all(table.rows.copy()):
        table.number(rows)
    return table.rows.copy()
