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
        Contradiction: One is another.
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
    asked = question.robots.policy(rows, steps_left)
    checked = checked_robot_policy(question.world, rows, asked)
    _require_same(arrays["robot_policy"][robot], checked, asked.dtype, time)
    asked = question.humans.policy(rows, steps_left)
    policies = checked_human_policy(question.world, rows, asked)
    for human, number in enumerate(humans):
        own = policies[:, question.goals[human]]
        actions = min(own.shape[-1], question.num_actions)
        stored = arrays[f"human_policy_{human}"][number]
        _require_same(stored[..., :actions], own[..., :actions], asked.dtype, time)
        if (stored[..., actions:] != 0).any() or bool((own[..., actions:] != 0).any()):
            raise Contradiction(f"a human acts at time {time} as it cannot")


def _require_same(
    stored: Float64[np.ndarray, "pair ..."], policies: Tensor, dtype: torch.dtype, time: int
) -> None:
    """Refuse other policies than these, which were asked for in a precision."""
    found = policies.numpy()
    found = found / found.sum(-1, keepdims=True)
    is_double = dtype == torch.float64
    if found.shape != stored.shape or not _agree(found, stored, is_double=is_double):
        raise Contradiction(f"a policy at time {time} is not that of this run")


def _agree(
    found: Float64[np.ndarray, "pair ..."],
    stored: Float64[np.ndarray, "pair ..."],
    *,
    is_double: bool,
) -> bool:
    """True if chances are the same but for rounding; only FAINT ones may then be 0 in one."""
    most, share = DOUBLE if is_double else SINGLE
    difference, larger = np.abs(found - stored), np.maximum(found, stored)
    agree = (difference <= most) & ((difference <= share * larger) | (larger <= FAINT))
    agree &= stored >= 0
    if is_double:
        agree &= (found > 0) == (stored > 0)
    return bool(agree.all())
