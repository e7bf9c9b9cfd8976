"""All reachable states, found by all processes together: each has those that a hash gives it.

No transitions are kept here, since it is not known yet which part a state will be in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64, Shaped

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.types import Successors
from empo_core.worlds.row_table import RowTable
from empo_exact.expansion import Block, Expand
from empo_exact.graph import ITEMS_PER_BLOCK, Explored, Progress, refuse_wrong_probabilities
from empo_exact.parts.partition import Partition, change_counts, choose_partition, slow_words
from empo_exact.parts.peers import Peers

SAMPLED = 1 << 17
"""About how many rows each process offers when parts are chosen."""

Rows = Shaped[np.ndarray, "state word"]


@dataclass(frozen=True)
class Found:
    """States of one process.

    Attributes:
        rows: Their rows [state word].
        depth: The fewest steps to each [state].
        steps: For how many steps all processes have looked ahead.
        transitions: How many transitions lead from all states of all processes.
    """

    rows: Rows
    depth: Int32[np.ndarray, " state"]
    steps: int
    transitions: int


def find_states(
    world: WorldModel,
    expand: Expand,
    max_states: int,
    peers: Peers,
    progress: Progress,
) -> Found:
    """Find everything that is reachable within the horizon, by breadth-first search.

    Raises:
        SolveError: There are too many states, or probabilities do not sum to 1.
        WorkerError: A process is gone.
    """
    horizon = world.spec.horizon
    initial = world.initial_state().numpy()[None]
    table = RowTable(world.spec.state_words, initial.dtype)
    table.number(initial[_homes(initial, peers.size) == peers.rank])
    expanded, transitions, ends, layers = 0, 0, [table.count], [1]
    while expanded < layers[-1] and (horizon is None or len(ends) <= horizon):
        frontier = table.rows[ends[-2] if len(ends) > 1 else 0 :].copy()
        # Most successors come more than once, so that their homes are found afterwards.
        layer = table if peers.size == 1 else RowTable(world.spec.state_words, initial.dtype)
        for block, found in _expanded(world, expand, frontier):
            rows = found.states.numpy()
            layer.number(rows)
            transitions += len(rows)
            expanded += len(block)
            progress(Explored(layers, expanded, table.count, transitions))
        if peers.size > 1:
            _bring_home(layer.rows, table, peers)
        ends.append(table.count)
        counts = np.sum(peers.all(ends[-2:]), axis=0).tolist()
        expanded = counts[0]
        layers.append(counts[1])
        if layers[-1] > max_states:
            raise SolveError(
                f"{world.spec.name!r} has more than {max_states} reachable states "
                f"({layers[-1]} after {len(layers) - 1} complete steps). Use a smaller "
                "max_steps or raise max_states."
            )
    depth = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0)).astype(np.int32)
    return Found(table.rows, depth, len(ends) - 1, peers.sum(transitions))


def _homes(rows: Rows, size: int) -> Int64[np.ndarray, " state"]:
    """The process that looks after each row, by a hash of it [state]."""
    mixed = np.zeros(len(rows), np.uint64)
    for word in rows.T if size > 1 else ():
        mixed = (mixed ^ word.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(size)).astype(np.int64)


def _bring_home(rows: Rows, table: RowTable, peers: Peers) -> None:
    """Give others the rows that they look after, and take in those that this process does."""
    homes = _homes(rows, peers.size)
    outgoing = [{"rows": rows[homes == rank]} for rank in range(peers.size)]
    for arrays in peers.swap(outgoing):
        table.number(arrays["rows"])


def blocks_of(rows: Rows, joint: int) -> Iterator[Block]:
    """Rows in blocks of about ``ITEMS_PER_BLOCK`` transitions."""
    size = max(1, ITEMS_PER_BLOCK // joint)
    return (rows[first : first + size] for first in range(0, len(rows), size))


def _expanded(
    world: WorldModel, expand: Expand, frontier: Rows
) -> Iterator[tuple[Block, Successors]]:
    """The blocks of a layer with their successors, checked."""
    joint = world.spec.num_joint_actions
    blocks = blocks_of(frontier, joint)
    for block, found in zip(blocks, expand(blocks_of(frontier, joint)), strict=True):
        refuse_wrong_probabilities(world, block, found)
        yield block, found


def divide(world: WorldModel, found: Found, parts: int, peers: Peers) -> Partition:
    """The same partition in all processes, from samples of their states."""
    counts = np.sum(peers.all(change_counts(world, found.rows)), axis=0)
    # A hash gave the states to the processes, so all have about equally many.
    samples = peers.all(found.rows[:: max(1, len(found.rows) // SAMPLED)].copy())
    return choose_partition(samples, parts, slow_words(counts))


def hand_over(found: Found, partition: Partition, peers: Peers) -> Found:
    """The states of this process's parts, by part, depth and key.

    Args:
        found: States, wherever they were found.
        partition: Which part each is in; see ``rank_of`` for which process has a part.
        peers: All processes.
    """
    rows, depth = found.rows, found.depth
    if peers.size > 1:
        ranks = rank_of(partition.owners(rows), partition.count, peers.size)
        outgoing = [
            {"rows": rows[ranks == rank], "depth": depth[ranks == rank]}
            for rank in range(peers.size)
        ]
        incoming = peers.swap(outgoing)
        rows = np.concatenate([arrays["rows"] for arrays in incoming])
        depth = np.concatenate([arrays["depth"] for arrays in incoming])
    order = partition.order(rows, depth)
    return Found(rows[order], depth[order], found.steps, found.transitions)


def rank_of(part: Int32[np.ndarray, " item"], parts: int, size: int) -> Int64[np.ndarray, " item"]:
    """The process that has each part: neighbouring parts are together [item]."""
    return part.astype(np.int64) * size // parts
