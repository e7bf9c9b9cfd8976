"""Hash sums of transition distributions, for fast comparison of many states.

The signature of a distribution over rows and durations is the sum of its probabilities, each times
two numbers in [0, 1) that a hash makes of the row and the duration. Equal distributions have equal
signatures but for rounding; distributions that differ by more than that have equal ones by chance
only, which nobody has to fear.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64, Int, Shaped, UInt64
from torch import Tensor

from empo_core.protocols import WorldModel
from empo_core.types import Expansion
from empo_core.world_structure import RowMap

TOLERANCE = 1e-12
"""Difference of signatures that rounding explains."""


def expansion(world: WorldModel, states: Int[Tensor, "state word"]) -> Expansion:
    """All successors of all joint actions of some states."""
    expansion = world.expand(states)
    return Expansion.of(world.transitions(states)) if expansion is None else expansion


def signatures(
    transitions: Expansion, joint: int, image: RowMap
) -> Float64[np.ndarray, "state joint 2"]:
    """The signature of each joint action's successors; 0 where the action is not available.

    Args:
        transitions: All successors of some states.
        joint: Number of joint actions.
        image: What successors are compared by.
    """
    offsets, index = transitions.offsets.numpy(), transitions.index.numpy()
    prob = transitions.prob.double().numpy()
    ones = torch.ones(len(prob), dtype=torch.float64)
    duration = ones if transitions.duration is None else transitions.duration.double()
    mixed = _hashes(image(transitions.states).numpy(), duration.numpy())
    pair = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    sums = np.empty((len(offsets) - 1, 2))
    for column in range(2):
        weight = prob * ((mixed >> np.uint64(11)) * 2.0**-53)
        sums[:, column] = np.bincount(pair, weight[index], len(sums))
        mixed = _mixed(mixed)
    return sums.reshape(-1, joint, 2)


def _hashes(
    rows: Shaped[np.ndarray, "outcome word"], duration: Float64[np.ndarray, " outcome"]
) -> UInt64[np.ndarray, " outcome"]:
    """A hash of each row and duration."""
    hashes = _mixed((duration + 0.0).view(np.uint64))
    for word in rows.T:
        hashes = _mixed(hashes ^ word.astype(np.int64).view(np.uint64))
    return hashes


def _mixed(numbers: UInt64[np.ndarray, " number"]) -> UInt64[np.ndarray, " number"]:
    """A hash of each number, of which 0 is no fixed point."""
    mixed = (numbers + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    final: UInt64[np.ndarray, " number"] = mixed ^ (mixed >> np.uint64(31))
    return final
