"""Advantages as their equations are written, step by step; slow, to check the fast ones by."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from empo_rollout.buffer import Rollout
from empo_rollout.params import AdvantageParams


def advantages_reference(
    rollout: Rollout,
    params: AdvantageParams,
    gamma: float,
    ratio: Float[Tensor, "time segment"] | None = None,
) -> tuple[Float[Tensor, "time segment"], Float[Tensor, "time segment"]]:
    """Reference for ``advantages``, in float64."""
    horizon, segments = rollout.value.shape
    value = rollout.value.double()
    advantage = torch.zeros_like(value)
    for segment in range(segments):
        later = 0.0
        for time in reversed(range(horizon)):
            if not (rollout.valid[time, segment] and rollout.is_known[time, segment]):
                later = 0.0
                continue
            weight = 1.0 if ratio is None else float(ratio[time, segment])
            now = float(value[time, segment])
            surprise = float(rollout.reward[time, segment]) - now
            surprise += gamma * _worth(rollout, params, time, segment)
            reach = gamma * params.gae_lambda * min(weight, params.c_clip)
            if rollout.terminated[time, segment] or rollout.truncated[time, segment]:
                reach = 0.0
            later = min(weight, params.rho_clip) * surprise + reach * later
            advantage[time, segment] = later
    return advantage, advantage + value


def _worth(rollout: Rollout, params: AdvantageParams, time: int, segment: int) -> float:
    """Bootstrap value after a step."""
    if rollout.terminated[time, segment]:
        return 0.0
    if rollout.truncated[time, segment]:
        if params.truncation == "zero":
            return 0.0
        if params.truncation == "self" or rollout.unseen[time, segment]:
            return float(rollout.value[time, segment])
    return float(rollout.next_value[time, segment])
