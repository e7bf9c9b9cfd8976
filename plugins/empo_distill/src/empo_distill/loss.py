"""Imitation of an expert: the policy moves towards the expert's distributions."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from empo_core.protocols import Critic, PolicyLoss
from empo_core.types import CandidateBatch, LossNeeds, LossOutput
from empo_distill.params import DistillParams
from empo_learning.distributions import BoundedNormal
from empo_learning.policy_losses import (
    EntropyBonus,
    RunningScale,
    normal_parameters,
    policy_metrics,
    weighted_mean,
)


class Distill(PolicyLoss):
    """The divergence of the policy from an expert (BMPC, Wang 2025).

    With ``d_i`` the mean, over the numbers of an action that are active, of the divergence of two
    normal distributions of the number before it is bounded::

        L = mean_i w_i [ d_i / S - alpha H(z_i) ]

    where ``d`` is ``KL(policy || expert)``, or the other way round. Bounding both alike does not
    change it. No gradient goes through the scale ``S``, which follows the spread of ``d``, and none
    into the expert. Candidates and their values are not used.
    """

    takes = CandidateBatch
    needs = LossNeeds(expert=True, targets=False)

    def __init__(self, params: DistillParams) -> None:
        super().__init__()
        self._params = params
        self.scale = RunningScale(params.scale_rate if params.normaliser != "none" else 0.0)
        self.entropy = EntropyBonus(params.entropy)

    def forward(
        self, distribution: Distribution, batch: CandidateBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss: the weighted mean over starts of the divergence from the expert.

        Raises:
            ValueError: if a distribution is not normal.
        """
        assert batch.expert is not None
        divergence = self._divergence(distribution, batch.expert)
        scale = self.scale.value.to(divergence, copy=True)
        bonus = self.entropy(distribution, batch.weight, batch.progress)
        loss = (batch.weight * (divergence / scale - bonus.paid)).mean()

        self.scale(divergence.detach(), batch.weight)
        metrics = {
            "divergence": weighted_mean(divergence.detach(), batch.weight),
            "scale": scale,
        }
        return LossOutput(
            loss, metrics | policy_metrics(distribution, batch.weight) | bonus.metrics
        )

    def _divergence(self, policy: Distribution, expert: Distribution) -> Float[Tensor, " start"]:
        """Divergence of policy and expert, per number of an action."""
        mean, log_std = normal_parameters(expert)
        target = mean, log_std.clamp(min=math.log(self._params.min_expert_std))
        learned = normal_parameters(policy)
        if self._params.direction == "policy_from_expert":
            divergence = normal_divergence(*learned, *target)
        else:
            divergence = normal_divergence(*target, *learned)
        active = policy.active if isinstance(policy, BoundedNormal) else None
        if active is None:
            return divergence.mean(-1)
        return divergence.masked_fill(~active, 0.0).sum(-1) / active.sum(-1)


def normal_divergence(
    mean: Float[Tensor, "*shape"],
    log_std: Float[Tensor, "*shape"],
    other_mean: Float[Tensor, "*shape"],
    other_log_std: Float[Tensor, "*shape"],
) -> Float[Tensor, "*shape"]:
    """``KL(N(mean, std) || N(other_mean, other_std))``, of each number.

    ``log(s'/s) + (s^2 + (m - m')^2) / (2 s'^2) - 1/2``
    """
    ratio = log_std - other_log_std
    offset = (mean - other_mean) * torch.exp(-other_log_std)
    return 0.5 * (torch.exp(2 * ratio) + offset.square() - 1) - ratio
