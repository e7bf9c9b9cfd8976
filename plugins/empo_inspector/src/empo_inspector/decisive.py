"""States in which it matters most which action the robots take."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from empo_core.inspection import NOT_KEPT, Inspection
from empo_inspector.decision import OneStep

MOST = 50
"""States that are listed."""
NEGLIGIBLE = 1e-6
"""Chance of being in a state, below which episodes are not followed."""


def decisive(inspection: Inspection, start: int) -> list[list[float]]:
    """The states where chance of being there times relative gap of Q_r is greatest.

    Each has its position, the time, the chance, and the gap between the best and the second best
    Q_r divided by the best. Humans act by their averages over goals. The chance is counted from
    state ``start``, at the inspection's first time.
    """
    step, found = OneStep(inspection), []
    closed = _closed(inspection)
    states, chance = torch.tensor([start]), torch.ones(1).double()
    last = inspection.spec.horizon or inspection.num_states
    for time in range(inspection.first_time, last):
        now = 0 if inspection.spec.horizon is None else time
        follows = step.alive(states, now) & closed[states] & (chance > NEGLIGIBLE)
        states, chance = states[follows], chance[follows]
        if not len(states):
            break
        policies = step.policies(states, now)
        ranked = policies.q_r.nan_to_num(nan=-torch.inf).sort(1, descending=True).values
        gap = torch.zeros_like(chance)
        if ranked.shape[1] > 1:
            gap = (ranked[:, 0] - ranked[:, 1]) / ranked[:, 0].abs()
            gap[gap.isinf()] = 0.0  # Only one action is available.
        found += [
            [float(state), float(now), float(there), float(matters)]
            for state, there, matters in zip(states, chance, gap, strict=True)
        ]
        mass = chance[:, None, None] * policies.pi_r[:, None]
        states, reached = step.follow(states, policies.chance, mass, discounted=False)
        chance = reached[:, 0]
    found.sort(key=lambda each: -each[2] * each[3])
    return [each for each in found[:MOST] if each[3] > 0]


def _closed(inspection: Inspection) -> Bool[Tensor, " state"]:
    """True for states all of whose successors are kept [state]."""
    joint = inspection.spec.num_joint_actions
    lost = np.concatenate([[0], np.cumsum(inspection.successor == NOT_KEPT)])
    bounds = lost[inspection.offsets[::joint]]
    return torch.from_numpy(np.diff(bounds) == 0)
