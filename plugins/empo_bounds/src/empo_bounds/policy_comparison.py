"""Policies that a certificate has, compared with those of the run in every pair."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64, Int32
from torch import Tensor

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
        pairs = recorded.pairs(time)
        moments = recorded.arrays["pair_moment"][pairs.start : pairs.stop]
        moments = moments[moments >= 0]
        for first in range(0, len(moments), AT_ONCE):
            _compare(recorded, time, moments[first : first + AT_ONCE])


def _compare(recorded: Recorded, time: int, moment: Int32[np.ndarray, " pair"]) -> None:
    question, arrays = recorded.question, recorded.arrays
    state, robot, *humans = arrays["moments"][moment].T
    rows = torch.from_numpy(arrays["states"][state].copy())
    horizon = question.spec.horizon
    left = 1 if horizon is None else horizon - time
    steps_left = torch.full((len(rows),), left)
    robot_policy = question.robots.policy(rows, steps_left)
    checked = checked_robot_policy(question.world, rows, robot_policy)
    _require_same(arrays["robot_policy"][robot], checked, robot_policy.dtype, time)
    human_policy = question.humans.policy(rows, steps_left)
    policies = checked_human_policy(question.world, rows, human_policy)
    for human, number in enumerate(humans):
        of_human = policies[:, question.goals[human]]
        actions = min(of_human.shape[-1], question.num_actions)
        stored = arrays[f"human_policy_{human}"][number]
        _require_same(stored[..., :actions], of_human[..., :actions], human_policy.dtype, time)
        if (stored[..., actions:] != 0).any() or bool((of_human[..., actions:] != 0).any()):
            raise Contradiction(f"a human acts at time {time} as it cannot")


def _require_same(
    stored: Float64[np.ndarray, "pair ..."], policies: Tensor, dtype: torch.dtype, time: int
) -> None:
    """Refuse other policies than these, which were asked for in a precision."""
    normalised = policies.numpy()
    normalised = normalised / normalised.sum(-1, keepdims=True)
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
