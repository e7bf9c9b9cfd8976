"""Policies that a certificate has, compared with those of the run in every pair."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64, Int64

from empo_bounds.recorded import Contradiction, Recorded
from empo_worlds.policy_checks import checked_human_policy, checked_robot_policy

DOUBLE, SINGLE = (1e-14, 1e-12), (1e-5, 1e-3)
"""Largest difference of chances that are asked for again, and its largest share of them, by their
precision: the last digits may depend on what else is asked about at the same time."""
FAINT = 1e-30
"""Chances below this may differ by any share."""
AT_ONCE = 4096
"""Pairs that policies are asked about at a time."""


def compare_policies(recorded: Recorded) -> None:
    """Ask for all policies again, in every state at every time that was expanded.

    Raises:
        Contradiction: if a policy differs from the recorded one.
    """
    for time in range(recorded.times):
        met = recorded.pairs(time)
        pairs = met.start + np.flatnonzero(recorded.expanded[met.start : met.stop])
        for first in range(0, len(pairs), AT_ONCE):
            _compare(recorded, time, pairs[first : first + AT_ONCE])


def _compare(recorded: Recorded, time: int, pairs: Int64[np.ndarray, " pair"]) -> None:
    question, rows = recorded.question, recorded.states(pairs)
    horizon = question.spec.horizon
    steps_left = torch.full((len(rows),), 1 if horizon is None else horizon - time)
    robots = question.robots.policy(rows, steps_left)
    right = checked_robot_policy(question.world, rows, robots).numpy()
    _require_same(recorded.robot_policy(pairs), right, robots.dtype, time)
    humans = question.humans.policy(rows, steps_left)
    right = checked_human_policy(question.world, rows, humans).numpy()
    stored = recorded.human_policy(pairs)
    actions = min(right.shape[-1], question.num_actions)
    _require_same(stored[..., :actions], right[..., :actions], humans.dtype, time)
    if stored[..., actions:].any() or right[..., actions:].any():
        raise Contradiction(f"a human acts at time {time} as it cannot")


def _require_same(
    stored: Float64[np.ndarray, "pair ..."],
    right: Float64[np.ndarray, "pair ..."],
    dtype: torch.dtype,
    time: int,
) -> None:
    """Refuse other policies than these, which were asked for in a precision."""
    normalised = right / right.sum(-1, keepdims=True)
    is_double = dtype == torch.float64
    if normalised.shape != stored.shape or not _agree(normalised, stored, is_double=is_double):
        raise Contradiction(f"a policy at time {time} is not that of this run")


def _agree(
    recomputed: Float64[np.ndarray, "pair ..."],
    stored: Float64[np.ndarray, "pair ..."],
    *,
    is_double: bool,
) -> bool:
    """True if chances are the same but for rounding; only FAINT ones may then be 0 in one."""
    tolerance, share = DOUBLE if is_double else SINGLE
    difference, larger = np.abs(recomputed - stored), np.maximum(recomputed, stored)
    agree = (difference <= tolerance) & ((difference <= share * larger) | (larger <= FAINT))
    agree &= stored >= 0
    if is_double:
        agree &= (recomputed > 0) == (stored > 0)
    return bool(agree.all())
