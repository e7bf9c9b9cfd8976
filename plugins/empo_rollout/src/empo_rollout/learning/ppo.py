"""Policy loss ``ppo``: proximal policy optimisation (Schulman et al. 2017)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from empo_core.protocols import Critic, PolicyLoss
from empo_core.types import LossOutput, RecordedBatch
from empo_learning.policy_losses import EntropyBonus
from empo_rollout.ppo_params import PpoParams

LOG_RATIO_LIMIT = 10.0
"""Ratios beyond exp of this overflow sooner than they tell anything."""


class Ppo(PolicyLoss):
    """Policy loss ``ppo``: the clipped surrogate objective, and a bonus for entropy.

    With the ratio ``r`` of the probabilities of an action under the policy and under the one that
    acted, its advantage ``A`` and entropy ``H``::

        loss = -mean(min(r A, clip(r, 1 - clip, 1 + clip) A)) - coef * mean(H)

    Means are weighted by ``batch.weight``.

    Attributes:
        params: The parameters.
    """

    takes = RecordedBatch

    def __init__(self, params: PpoParams) -> None:
        super().__init__()
        self.params = params
        self.entropy = EntropyBonus(params.entropy)

    def forward(
        self, distribution: Distribution, batch: RecordedBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss of a policy on ``batch``; ``critic`` is not used.

        Metrics: ``policy_loss``, ``entropy`` and its coefficient ``entropy_coef``, and how far the
        policy has moved: ``approx_kl``, ``clip_fraction`` (share of steps whose ratio is beyond
        the clip) and ``importance`` (mean ratio).
        """
        log_ratio = distribution.log_prob(batch.action) - batch.log_prob
        log_ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        ratio = log_ratio.exp()
        surrogate = clipped_surrogate(ratio, batch.advantage, self.params.clip)
        bonus = self.entropy(distribution, batch.weight, batch.progress)
        loss = -(batch.weight * (surrogate + bonus.paid)).mean()

        with torch.no_grad():
            # Schulman's estimate of the divergence: never negative, and less noisy than the mean
            # of the log-ratios (http://joschu.net/blog/kl-approx.html).
            kl = ratio - 1 - log_ratio
            clipped = ((ratio - 1).abs() > self.params.clip).to(ratio)
            metrics = {
                "policy_loss": -(batch.weight * surrogate).mean(),
                "entropy": bonus.metrics["entropy"],
                "entropy_coef": bonus.metrics["entropy_coef"],
                "approx_kl": (batch.weight * kl).mean(),
                "clip_fraction": (batch.weight * clipped).mean(),
                "importance": (batch.weight * ratio).mean(),
            }
        return LossOutput(loss, metrics)


def clipped_surrogate(
    ratio: Float[Tensor, " step"],
    advantage: Float[Tensor, " step"],
    clip: float,
) -> Float[Tensor, " step"]:
    """``min(r A, clip(r, 1 - clip, 1 + clip) A)`` (Schulman et al. 2017, eq. 7).

    Args:
        ratio: Of the probabilities of an action under the new and the old policy.
        advantage: Of the action.
        clip: How far the ratio may move from 1 and still count.
    """
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
