"""Which states can be reached after exactly so many steps, and the sizes of the unrolled graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from empo_exact.graph import StateGraph
from empo_worlds.compilation import compiled

Mask = Bool[np.ndarray, " state"]


@compiled
def advance_mask(
    bounds: Int64[np.ndarray, " offset"],
    successor: Int32[np.ndarray, " transition"],
    now: Bool[np.ndarray, " state"],
    after: Bool[np.ndarray, " state"],
) -> None:
    """Mark every successor of a marked state."""
    for state in range(len(bounds) - 1):
        if now[state]:
            for item in range(bounds[state], bounds[state + 1]):
                after[successor[item]] = True


@compiled
def count_edges(
    bounds: Int64[np.ndarray, " offset"],
    successor: Int32[np.ndarray, " transition"],
    last: Int32[np.ndarray, " state"],
    edges: Int64[np.ndarray, " state"],
) -> None:
    """Count the distinct successors of each state; ``last`` starts at -1 everywhere."""
    for state in range(len(bounds) - 1):
        for item in range(bounds[state], bounds[state + 1]):
            if last[successor[item]] != state:
                last[successor[item]] = state
                edges[state] += 1


def reachable_masks(graph: StateGraph, last: int) -> list[Mask]:
    """For each time up to ``last``, which states can be reached after that many steps."""
    bounds, masks = graph.bounds, [np.zeros(graph.num_states, np.bool_)]
    masks[0][: graph.within(0)] = True
    for _ in range(last):
        after = np.zeros(graph.num_states, np.bool_)
        advance_mask(bounds, graph.successor, masks[-1], after)
        masks.append(after)
    return masks


class Unrolled(NamedTuple):
    """Sizes of the graph of (time, state) pairs: nodes, nodes without successors, edges."""

    states: int
    terminal: int
    edges: int


def unrolled_sizes(graph: StateGraph, horizon: int | None) -> Unrolled:
    """Count the (time, state) pairs that can occur, and the steps between distinct ones."""
    edges = np.zeros(graph.num_states, np.int64)
    last = np.full(graph.num_states, -1, np.int32)
    count_edges(graph.bounds, graph.successor, last, edges)
    if horizon is None:
        ends = int((edges == 0).sum())
        return Unrolled(graph.num_states, ends, int(edges.sum()))
    states = terminal = steps = 0
    for time, mask in enumerate(reachable_masks(graph, horizon)):
        states += int(mask.sum())
        here = edges[mask] if time < horizon else np.zeros(int(mask.sum()), np.int64)
        terminal += int((here == 0).sum())
        steps += int(here.sum())
    return Unrolled(states, terminal, steps)
