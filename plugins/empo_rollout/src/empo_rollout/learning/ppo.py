"""Policy loss ``ppo``: proximal policy optimisation (Schulman et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.protocols import Critic, Policy, PolicyLoss
from empo_core.trees import StateDict
from empo_core.types import ImaginedBatch, LossNeeds, LossOutput
from empo_learning.policy_losses import EntropyCoefficient
from empo_rollout.ppo_params import PpoParams

LOG_RATIO_LIMIT = 10.0
"""Ratios beyond exp of this overflow sooner than they tell anything."""


class Ppo(PolicyLoss):
    """Policy loss ``ppo``: the clipped surrogate objective, and a bonus for entropy.

    With the ratio ``r`` of the probabilities of a candidate action under the policy and under the
    one that proposed it, its advantage ``A`` (mean over the heads of ``batch.target``) and
    entropy ``H``::

        loss = -mean(min(r A, clip(r, 1 - clip, 1 + clip) A)) - coef * mean(H)

    Means are weighted by ``batch.weight``.

    Attributes:
        params: The parameters.
    """

    is_adaptive = True

    def __init__(self, params: PpoParams) -> None:
        self.params, self._clip = params, params.clip
        self._entropy = EntropyCoefficient(params.entropy)
        tuned = params.entropy.target_entropy is not None
        self.needs = LossNeeds(whole_minibatch=tuned)

    @property
    def entropy_coef(self) -> Float[Tensor, ""]:
        """The factor of the entropy now."""
        return self._entropy.value

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss of ``policy`` on ``batch``; ``critic`` is not used.

        Metrics: ``policy_loss``, ``entropy`` and its coefficient ``entropy_coef``, and how far the
        policy has moved: ``approx_kl``, ``clip_fraction`` (share of candidates whose ratio is
        beyond the clip) and ``importance`` (mean ratio).
        """
        if len(batch.action) == 0:
            raise ValueError("ppo needs at least one candidate action per start state, got none")
        weight = batch.weight.detach()
        ignored = weight <= 0
        # What a start and a candidate count in means; 0 where nothing has weight.
        of_start = weight / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        share = of_start / len(batch.action)
        advantage = batch.target.detach().mean(-1).masked_fill(ignored, 0.0)

        distribution = policy(batch.start.detach())
        log_prob = distribution.log_prob(batch.action.detach())
        # Replaced before anything is computed: 0 * NaN would be NaN.
        log_ratio = (log_prob - batch.log_prob.detach()).masked_fill(ignored, 0.0)
        log_ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        ratio = log_ratio.exp()
        policy_loss = -clipped_surrogate(ratio, advantage * share, self._clip).sum()
        bonus = self._entropy.bonus(distribution, weight)
        paid = (bonus.paid.masked_fill(ignored, 0.0) * of_start).sum()

        with torch.no_grad():
            # Schulman's estimate of the divergence: never negative, and less noisy than the mean
            # of the log-ratios (http://joschu.net/blog/kl-approx.html).
            kl = ratio - 1 - log_ratio
            clipped = ((ratio - 1).abs() > self._clip).to(ratio.dtype)
            means = (torch.stack((kl, clipped, ratio)) * share).sum((1, 2))
            entropy = (bonus.entropy.masked_fill(ignored, 0.0) * of_start).sum()
            scalars = torch.stack((policy_loss, entropy, bonus.coefficient))
            # One transfer for all: each waits for the device.
            numbers = torch.cat((scalars, means)).tolist()
        names = (
            "policy_loss", "entropy", "entropy_coef", "approx_kl", "clip_fraction", "importance"
        )  # fmt: skip
        metrics = dict(zip(names, numbers, strict=True))
        return LossOutput(policy_loss - paid, metrics, {"entropy_coef": bonus.next_value})

    def adapt(self, statistics: Mapping[str, Tensor], progress: float) -> None:
        """Move the entropy coefficient."""
        self._entropy.adapt(statistics["entropy_coef"], progress)

    def state_dict(self) -> StateDict:
        """The entropy coefficient."""
        return self._entropy.state_dict()

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._entropy.load_state_dict(state_dict)


def clipped_surrogate(
    ratio: Float[Tensor, "candidate start"],
    advantage: Float[Tensor, "candidate start"],
    clip: float,
) -> Float[Tensor, "candidate start"]:
    """``min(r A, clip(r, 1 - clip, 1 + clip) A)`` (Schulman et al. 2017, eq. 7).

    Args:
        ratio: Of the probabilities of an action under the new and the old policy.
        advantage: Of the action; a factor of at least 0 may be multiplied in.
        clip: How far the ratio may move from 1 and still count.
    """
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
