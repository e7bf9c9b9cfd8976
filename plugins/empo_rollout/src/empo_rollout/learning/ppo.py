"""Proximal policy optimisation: improve on what was done, but not far at a time."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.protocols import Critic, Policy
from empo_core.types import ImaginedBatch, LossNeeds, LossOutput
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

    needs = LossNeeds()

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
        clip, candidates = self._params.clip, batch.action.shape[1]
        weight = batch.weight.detach().unsqueeze(1)
        ignored = weight <= 0
        # What a start and a candidate count in means; 0 where nothing has weight.
        of_start = weight / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        share = of_start / candidates
        distribution = policy(batch.start.detach())
        # Candidates go in front, where they broadcast against the distributions.
        log_prob = distribution.log_prob(batch.action.detach().transpose(0, 1)).transpose(0, 1)
        # Replaced before anything is computed: 0 * NaN would be NaN.
        log_ratio = (log_prob - batch.log_prob.detach()).masked_fill(ignored, 0.0)
        log_ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        ratio = log_ratio.exp()
        target = self._target(batch.target.detach().mean(-1).masked_fill(ignored, 0.0), share)
        # The lesser of A r and A clip(r): ratios are cut on one side, where A would gain by more.
        most = torch.full_like(target, torch.inf).masked_fill_(target > 0, 1 + clip)
        least = torch.zeros_like(target).masked_fill_(target < 0, 1 - clip)
        policy_loss = -(ratio.clamp(least, most) * (target * share)).sum()
        # Where nothing is paid for it, entropy is only reported.
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._params.entropy_coef > 0):
            entropy = distribution.entropy().unsqueeze(1).masked_fill(ignored, 0.0)
            entropy = (entropy * of_start).sum()
        with torch.no_grad():
            # Schulman's estimate of the divergence: never negative, and less noisy than the mean
            # of the log-ratios.
            kl = ratio - 1 - log_ratio
            moved = ((ratio - 1).abs() > clip).to(ratio.dtype)
            means = (torch.stack((kl, moved, ratio)) * share).sum((1, 2))
            # One transfer for all: each waits for the device.
            numbers = torch.cat((torch.stack((policy_loss, entropy)), means)).tolist()
        names = ("policy_loss", "entropy", "approx_kl", "clip_fraction", "importance")
        loss = policy_loss - self._params.entropy_coef * entropy
        return LossOutput(loss, dict(zip(names, numbers, strict=True)))

    def _target(
        self, target: Float[Tensor, "start candidate"], share: Float[Tensor, "start 1"]
    ) -> Float[Tensor, "start candidate"]:
        if self._params.normalise == "none":
            return target
        centred = target - (target * share).sum()
        # Biased, so that parts of a batch could be joined.
        deviation = (centred.square() * share).sum().sqrt()
        return centred / (deviation + 1e-8)
