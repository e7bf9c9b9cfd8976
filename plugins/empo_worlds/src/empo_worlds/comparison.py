"""Comparison of the successors of some pairs of state and joint action with those of others."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from empo_core.types import Successors, WorldSpec
from empo_worlds import signatures
from empo_worlds.row_table import RowTable
from empo_worlds.samples import joint_actions

TOLERANCE = 1e-12
"""Difference of probabilities that rounding explains."""
POLICY_TOLERANCE = 1e-6
"""The same for a human prior, which may answer in single precision."""
MOST_PAIRS = 10_000
"""Pairs of a state and a joint action whose successors are compared."""


def first_difference(
    successors: Successors,
    rows: Int[Tensor, "item word"],
    other: Successors,
    other_rows: Int[Tensor, "_item word"],
) -> int | None:
    """The first pair whose successors differ; None where they are the same for all.

    Args:
        successors: Successors of some pairs.
        rows: What their states are compared by.
        other: Successors of as many pairs, in the same order.
        other_rows: The same for those.
    """
    keys = np.concatenate([_keys(successors, rows), _keys(other, other_rows)])
    mass = np.concatenate([successors.prob.double().numpy(), -other.prob.double().numpy()])
    table = RowTable(keys.shape[1], keys.dtype)
    total = np.bincount(table.number(keys), mass, table.count)
    wrong = np.abs(total) > TOLERANCE
    return int(table.rows[wrong, 0].min()) if wrong.any() else None


def _keys(
    successors: Successors, rows: Int[Tensor, "item word"]
) -> Float64[np.ndarray, "item key"]:
    """Pair, words and duration of each item."""
    duration = torch.ones(len(rows)) if successors.duration is None else successors.duration
    columns = (successors.segments.index[:, None], rows, duration[:, None])
    # Adding 0 leaves no -0, whose bits are others.
    return np.concatenate([column.double().numpy() for column in columns], 1) + 0.0


def different_pairs(
    spec: WorldSpec,
    first: Float64[np.ndarray, "state joint 2"],
    second: Float64[np.ndarray, "state joint 2"],
) -> tuple[Int[Tensor, " pair"], Int[Tensor, "pair agent"]]:
    """Pairs of a state's position and a joint action with different signatures, up to a limit."""
    differs = (np.abs(first - second) > signatures.TOLERANCE).any(-1)
    item, joint = (torch.from_numpy(indices[:MOST_PAIRS]) for indices in np.nonzero(differs))
    return item, joint_actions(spec)[joint]


def sampled_pairs(
    spec: WorldSpec, states: int, seed: int = 0
) -> tuple[Int[Tensor, " pair"], Int[Tensor, "pair agent"]]:
    """Pairs of a state's position and a joint action: all, or ``MOST_PAIRS`` at random."""
    count = states * spec.num_joint_actions
    pairs = torch.arange(min(count, MOST_PAIRS))
    if count > MOST_PAIRS:
        pairs = torch.randint(count, pairs.shape, generator=torch.Generator().manual_seed(seed))
    joint = pairs % spec.num_joint_actions
    return pairs // spec.num_joint_actions, joint_actions(spec)[joint]
