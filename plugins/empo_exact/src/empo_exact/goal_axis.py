"""The humans' goals in the order of the sweep: human by human, padded for ``simd``."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, Shaped

from empo_core.types import WorldSpec
from empo_exact.game import LANES


def goal_order(spec: WorldSpec) -> Int64[np.ndarray, " padded_goal"]:
    """Position on the world's goal axis of each goal of the sweep; -1 for padding."""
    order: list[int] = []
    for human in spec.humans:
        goals = list(spec.goals_of(human))
        order += goals + [-1] * (-len(goals) % LANES)
    return np.array(order, np.int64)


def goal_places(spec: WorldSpec) -> Int64[np.ndarray, " goal"]:
    """Position among the goals of the sweep of each goal on the world's goal axis."""
    order = goal_order(spec)
    place = np.zeros(len(spec.goals), np.int64)
    place[order[order >= 0]] = np.flatnonzero(order >= 0)
    return place


def padded(
    values: Shaped[np.ndarray, "*batch goal"], spec: WorldSpec
) -> Shaped[np.ndarray, "*batch padded_goal"]:
    """Values on the world's goal axis (the last one) as the sweep wants them."""
    order = goal_order(spec)
    ordered = values[..., order].copy()
    ordered[..., order < 0] = 0
    return np.ascontiguousarray(ordered)
