"""Ordering the states of a world that ends by itself, so that successors come first."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int32, Int64, Shaped

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_exact.graph import StateGraph
from empo_worlds.compilation import compiled


@compiled
def count_predecessors(
    bounds: Int64[np.ndarray, " offset"],
    successor: Int32[np.ndarray, " transition"],
    into: Int64[np.ndarray, " state"],
) -> None:
    """Count the transitions that lead into each state."""
    for item in range(bounds[len(bounds) - 1]):
        into[successor[item]] += 1


@compiled
def peel(
    bounds: Int64[np.ndarray, " offset"],
    successor: Int32[np.ndarray, " transition"],
    into: Int64[np.ndarray, " state"],
    order: Int32[np.ndarray, " state"],
    depth: Int32[np.ndarray, " state"],
) -> int:
    """Order states so that each comes after all its predecessors; how many could be."""
    tail = 0
    for state in range(len(into)):
        if into[state] == 0:
            order[tail] = state
            tail += 1
    head = 0
    while head < tail:
        state = order[head]
        head += 1
        for item in range(bounds[state], bounds[state + 1]):
            after = successor[item]
            depth[after] = max(depth[after], depth[state] + 1)
            into[after] -= 1
            if into[after] == 0:
                order[tail] = after
                tail += 1
    return tail


def levels_of(graph: StateGraph, world: WorldModel) -> list[Int32[np.ndarray, " state"]]:
    """Groups of states, last first: all successors of a state lie in earlier groups.

    Raises:
        SolveError: if the world can return to a state, so backward induction does not end.
    """
    bounds, into = graph.bounds, np.zeros(graph.num_states, np.int64)
    count_predecessors(bounds, graph.successor, into)
    order = np.empty(graph.num_states, np.int32)
    depth = np.zeros(graph.num_states, np.int32)
    done = peel(bounds, graph.successor, into, order, depth)
    if done < graph.num_states:
        state = int(np.flatnonzero(into > 0)[0])
        raise cyclic(world, graph.states[state])
    by_depth = np.argsort(depth, kind="stable").astype(np.int32)
    ends = np.searchsorted(depth[by_depth], np.arange(depth.max() + 2))
    return [by_depth[ends[d] : ends[d + 1]] for d in range(int(depth.max()), -1, -1)]


def cyclic(world: WorldModel, row: Shaped[np.ndarray, " word"]) -> SolveError:
    """The error of a world without a horizon that can return to this state, or one behind it."""
    return SolveError(
        f"{world.spec.name!r} has no horizon and can return to states it has been in, so its "
        "values are defined by a fixed point that need not be unique and backward induction "
        "cannot reach. Give it a horizon (max_steps), or put a clock into its states. One "
        f"state on or behind such a cycle:\n{world.describe(torch.from_numpy(row.copy()))}"
    )
