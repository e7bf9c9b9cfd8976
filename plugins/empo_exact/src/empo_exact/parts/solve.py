"""Solving a world in parts: states, transitions, then backward induction."""

from __future__ import annotations


import numpy as np
from jaxtyping import Shaped

from empo_core.protocols import WorldModel
from empo_exact.expansion import expander
from empo_exact.graph import Progress
from empo_exact.parts.exploration import divide, find_states, hand_over, rank_of
from empo_exact.parts.peers import Peers
from empo_exact.parts.store import PartStore
from empo_exact.parts.sweeps import Parts
from empo_exact.parts.territory import PartBuilder, Territory, halos, merged_codes
from empo_exact.plugin import ExactParams


def build_parts(
    world: WorldModel,
    params: ExactParams,
    count: int,
    store: PartStore,
    peers: Peers,
    *,
    progress: Progress | None = None,
    start: Shaped[np.ndarray, "start word"] | None = None,
) -> Parts:
    """Find all states, cut them into parts, and work out each part's transitions."""
    compute = params.compute
    found = find_states(world, compute, peers, progress, start)
    partition = divide(world, found, count, peers)
    territory = Territory(hand_over(found, partition, peers), partition, peers)
    with expander(world, compute.workers, compute.start_method) as expand:
        builder = PartBuilder(world, territory, store, expand)
        for part in territory.parts:
            builder.build(part)
    every = np.arange(partition.count, dtype=np.int32)
    return Parts(
        world=world,
        numbers=territory.parts,
        ranks=rank_of(every, partition.count, peers.size),
        halos=halos(builder, territory, peers),
        codes=merged_codes(builder, peers),
        store=store,
        peers=peers,
        states=peers.sum(territory.table.count),
        transitions=found.transitions,
    )
