"""Value-weighted regression: imitate candidates, the better ones more."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from empo_awr.candidate_weights import (
    CandidateWeighting,
    WeighedCandidates,
    effective_sample_size,
    weight_entropy,
)
from empo_awr.params import AwrParams, TargetEss, Temperature
from empo_awr.trust import TrustRegion
from empo_core.protocols import Critic, PolicyLoss
from empo_core.types import CandidateBatch, LossNeeds, LossOutput
from empo_learning.policy_losses import EntropyBonus, policy_metrics, weighted_mean


class Awr(PolicyLoss):
    """Advantage-weighted regression, the M-step of MPO.

    With ``weight_i`` of start ``i``, candidates ``u_in`` and their weights ``w_in`` (constants, see
    ``CandidateWeighting``), entropy ``H`` with its coefficient ``alpha``::

        loss = mean_i weight_i [ -sum_n w_in log pi(u_in | z_i) - alpha * A^p * H(pi(. | z_i)) ]

    The log-probability is the score: its gradient goes through the policy's parameters at a
    constant ``u``. That of a sample as it is drawn has the same value and another gradient, which
    does not know which candidates are good.
    """

    takes = CandidateBatch

    def __init__(self, params: AwrParams) -> None:
        super().__init__()
        self._max_weight = params.max_weight
        self.weighting = CandidateWeighting(params)
        self.entropy = EntropyBonus(params.entropy)
        self.region = TrustRegion(params.trust_region) if params.trust_region else None
        self.needs = LossNeeds(
            proposal=self.region is not None,
            min_candidates=_fewest(params.temperature),
            candidates=params.candidates,
        )

    def forward(
        self, distribution: Distribution, batch: CandidateBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss of a policy on ``batch``; ``critic`` is not used.

        Raises:
            ValueError: if there is a trust region, and policy or proposal is not normal.
        """
        weighed = self.weighting(batch, follow=True)
        score = distribution.log_prob(batch.action)
        nll = -(self._cut(weighed.weights) * score).sum(0)
        bonus = self.entropy(distribution, batch.weight, batch.progress)
        per_start = nll - bonus.paid
        metrics = bonus.metrics | policy_metrics(distribution, batch.weight)
        if self.region is not None:
            penalty = self.region(distribution, batch.proposal, batch.weight)
            per_start = per_start + penalty.cost
            metrics |= penalty.metrics
        metrics |= _fit_metrics(nll, score, metrics["entropy_term"], batch.weight)
        metrics |= _weight_metrics(weighed, batch.weight)
        return LossOutput((batch.weight * per_start).mean(), metrics)

    def _cut(self, weights: Float[Tensor, "candidate start"]) -> Float[Tensor, "candidate start"]:
        greatest = self._max_weight
        return weights if greatest is None else weights.clamp(max=greatest / len(weights))


def _fewest(rule: Temperature) -> int:
    """The fewest candidates that can differ, and of which more than one can count."""
    return max(2, math.floor(1 / rule.share) + 1) if isinstance(rule, TargetEss) else 2


@torch.no_grad()
def _fit_metrics(
    nll: Float[Tensor, " start"],
    score: Float[Tensor, "candidate start"],
    entropy_term: Float[Tensor, ""],
    weight: Float[Tensor, " start"],
) -> dict[str, Tensor]:
    """How well the policy fits the candidates, means over the starts that count."""
    mean = weighted_mean(nll, weight)
    return {
        "nll": mean,
        "entropy_ratio": entropy_term.abs() / mean.abs().clamp(min=1e-8),
        "log_prob": weighted_mean(score, weight),
    }


def _weight_metrics(
    weighed: WeighedCandidates, weight: Float[Tensor, " start"]
) -> dict[str, Tensor]:
    """Numbers about weights and qualities, means over the starts that count."""
    counts, weights = weight > 0, weighed.weights
    mean = weighted_mean(weighed.scaled, weight)
    return {
        "weight_entropy": weighted_mean(weight_entropy(weights), weight),
        "ess": weighted_mean(effective_sample_size(weights), weight),
        "weight_max": weights.masked_fill(~counts, 0.0).amax(),
        "weight_min": weights.masked_fill(~counts, 1.0).amin(),
        "state_std": weighted_mean(weighed.quality.std(0, correction=0), weight),
        "scaled_mean": mean,
        "scaled_std": weighted_mean((weighed.scaled - mean).square(), weight).sqrt(),
        "scale": weighted_mean(weighed.scale, weight),
        "temperature": weighed.temperature,
    }
