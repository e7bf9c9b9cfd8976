"""Proximal policy optimisation: improve on what was done, but not far at a time."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.protocols import Critic, Policy
from empo_core.types import ImaginedBatch, LossOutput
from empo_rollout.learning.values import weighted_mean
from empo_rollout.plugin import PpoParams

LOG_RATIO_LIMIT = 10.0
"""Ratios beyond exp of this overflow sooner than they tell anything."""


class Ppo:
    """The clipped surrogate of all candidates, and a bonus for entropy.

    With the ratio ``r`` of the probabilities of a candidate under the policy and under the one
    that proposed it, and its target ``A`` (the mean over the heads)::

        loss = -mean(min(A r, A clip(r, 1 - clip, 1 + clip))) - entropy_coef * mean(entropy)

    Means are weighted by ``batch.weight``, and so are mean and standard deviation of the targets
    where ``normalise`` is ``batch``.
    """

    needs_critic = False

    def __init__(self, params: PpoParams) -> None:
        self._params = params

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss of ``policy`` on ``batch``; ``critic`` is not used.

        The metrics say how far the policy has moved: ``approx_kl``, ``clip_fraction`` (share of
        candidates that moved beyond the clip) and ``importance`` (mean ratio), besides
        ``entropy`` and ``policy_loss``.
        """
        if batch.action.shape[1] == 0:
            raise ValueError("ppo needs at least one candidate action per start state, got none")
        weight = batch.weight.detach()
        counts = weight > 0
        distribution = policy(batch.start.detach())
        # Candidates go in front, where they broadcast against the distributions.
        log_prob = distribution.log_prob(batch.action.detach().transpose(0, 1)).transpose(0, 1)
        log_ratio = (log_prob - batch.log_prob.detach()).masked_fill(~counts[:, None], 0.0)
        log_ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        ratio = log_ratio.exp()
        target = self._target(batch.target.detach().mean(-1), weight)
        clipped = ratio.clamp(1 - self._params.clip, 1 + self._params.clip)
        surrogate = torch.minimum(target * ratio, target * clipped).mean(1)
        policy_loss = -weighted_mean(surrogate, weight)
        entropy = weighted_mean(distribution.entropy().masked_fill(~counts, 0.0), weight)
        loss = policy_loss - self._params.entropy_coef * entropy
        with torch.no_grad():
            moved = ((ratio - 1).abs() > self._params.clip).to(ratio.dtype)
            numbers = {
                "policy_loss": policy_loss,
                "entropy": entropy,
                # Schulman's estimate: never negative, and less noisy than the mean log-ratio.
                "approx_kl": weighted_mean((ratio - 1 - log_ratio).mean(1), weight),
                "clip_fraction": weighted_mean(moved.mean(1), weight),
                "importance": weighted_mean(ratio.mean(1), weight),
            }
            # One transfer for all: each waits for the device.
            values = torch.stack(list(numbers.values())).tolist()
        return LossOutput(loss, dict(zip(numbers, values, strict=True)))

    def _target(
        self, target: Float[Tensor, "start candidate"], weight: Float[Tensor, " start"]
    ) -> Float[Tensor, "start candidate"]:
        target = target.masked_fill((weight == 0)[:, None], 0.0)
        if self._params.normalise == "none":
            return target
        centred = target - weighted_mean(target.mean(1), weight)
        # Biased, so that parts of a batch could be joined.
        deviation = weighted_mean(centred.square().mean(1), weight).sqrt()
        return centred / (deviation + 1e-8)
