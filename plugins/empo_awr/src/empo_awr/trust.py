"""A trust region around the policy that proposed the candidates."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Distribution

from empo_awr.params import TrustRegionParams
from empo_learning.policy_losses import normal_parameters, num_numbers, weighted_mean

LOG_MULTIPLIERS = (math.log(1e-6), math.log(1e6))
"""Bounds of the multipliers' logarithms."""


class TrustPenalty(NamedTuple):
    """Penalty for the distance of a policy from the proposal.

    Attributes:
        cost: Of each start; its gradient is the policy's.
        metrics: ``kl_mean``, ``kl_std``, ``multiplier_mean`` and ``multiplier_std``, for people.
    """

    cost: Float[Tensor, " start"]
    metrics: dict[str, Tensor]


class TrustRegion(nn.Module):
    """Decoupled bounds on how far mean and standard deviation move (MPO, Abdolmaleki 2018).

    With the proposal ``N(m, s)`` and the policy ``N(m', s')`` of a start, per number::

        KL_mean = (m' - m)^2 / (2 s^2)
        KL_std  = log(s' / s) + s^2 / (2 s'^2) - 1/2

    the cost is ``l_mean * KL_mean + l_std * KL_std``. The multipliers are dual variables, each of
    which follows how far its mean divergence is beyond its bound ``e``, at a bounded speed::

        log l <- log l + rate * (KL - e) / (KL + e)

    Attributes:
        multipliers: ``l_mean`` and ``l_std``, a buffer that changes in training mode.
    """

    multipliers: Float[Tensor, " 2"]

    def __init__(self, params: TrustRegionParams) -> None:
        super().__init__()
        self._params = params
        self.register_buffer("multipliers", torch.full((2,), params.multiplier))

    def forward(
        self, distribution: Distribution, proposal: Distribution, weight: Float[Tensor, " start"]
    ) -> TrustPenalty:
        """Distance of a policy from the proposal, and its penalty.

        Raises:
            ValueError: if a distribution is not normal.
        """
        loc, log_std = normal_parameters(distribution)
        old_loc, old_log_std = normal_parameters(proposal)
        old_variance = (2 * old_log_std).exp()
        by_mean = (loc - old_loc).square() / (2 * old_variance)
        log_ratio = log_std - old_log_std
        by_std = log_ratio + 0.5 * torch.expm1(-2 * log_ratio)
        divergences = torch.stack((by_mean, by_std))
        active = getattr(distribution, "active", None)
        if active is not None:
            divergences = divergences.masked_fill(~active, 0.0)
        divergences = divergences.sum(-1) / num_numbers(distribution)
        multipliers = self.multipliers.to(divergences, copy=True)
        cost = (multipliers[:, None] * divergences).sum(0)
        means = torch.stack([weighted_mean(part.detach(), weight) for part in divergences])
        metrics = {
            "kl_mean": means[0],
            "kl_std": means[1],
            "multiplier_mean": multipliers[0],
            "multiplier_std": multipliers[1],
        }
        if self.training:
            self.multipliers.copy_(self._updated(multipliers, means, weight))
        return TrustPenalty(cost, metrics)

    def _updated(self, multipliers: Tensor, means: Tensor, weight: Tensor) -> Tensor:
        bound = torch.stack(
            (
                means.new_full((), self._params.mean),
                means.new_full((), self._params.std),
            )
        )
        # KL_std is at least 0, but for rounding.
        divergence = means.clamp(min=0)
        excess = (divergence - bound) / (divergence + bound)
        updated = (multipliers.log() + self._params.rate * excess).clamp(*LOG_MULTIPLIERS).exp()
        return torch.where((weight > 0).any(), updated, multipliers)
