"""Value-weighted regression: imitate candidates, the better ones more."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Distribution

from empo_awr.params import AwrParams, FixedTemperature, KlBound, TargetEss, Temperature
from empo_awr.trust import TrustRegion
from empo_core.protocols import Critic, PolicyLoss
from empo_core.types import CandidateBatch, LossNeeds, LossOutput
from empo_learning.policy_losses import (
    EntropyBonus,
    RunningScale,
    disagreement,
    joined_heads,
    policy_metrics,
    weighted_mean,
)

POINTS, ROUNDS = 16, 3
"""Temperatures that are tried at once, and how often, each time between two neighbours."""
LOG_RANGE = 4 * math.log(10.0)
"""Temperatures are sought so far around the greatest difference within a start, in logarithms."""


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
        weighed = self.weighting(batch)
        weights = weighed.weights
        if self._max_weight is not None:
            weights = weights.clamp(max=self._max_weight / len(weights))
        score = distribution.log_prob(batch.action)
        nll = -(weights * score).sum(0)
        bonus = self.entropy(distribution, batch.weight, batch.progress)
        per_start = nll - bonus.paid
        metrics = bonus.metrics | policy_metrics(distribution, batch.weight)
        if self.region is not None:
            penalty = self.region(distribution, batch.proposal, batch.weight)
            per_start = per_start + penalty.cost
            metrics |= penalty.metrics
        metrics |= _metrics(weighed, nll, score, metrics["entropy_term"], batch.weight)
        return LossOutput((batch.weight * per_start).mean(), metrics)


class WeighedCandidates(NamedTuple):
    """Candidates of a batch with their weights and qualities.

    Attributes:
        weights: How much each counts; they add up to 1 at each start.
        quality: What each is worth: heads joined, disagreement added.
        scaled: The same divided by its normaliser.
        scale: The normaliser.
        temperature: What scaled qualities are divided by.
    """

    weights: Float[Tensor, "candidate start"]
    quality: Float[Tensor, "candidate start"]
    scaled: Float[Tensor, "candidate start"]
    scale: Float[Tensor, " start"]
    temperature: Float[Tensor, ""]


class CandidateWeighting(nn.Module):
    """``w_in = softmax_n(Q_in / (norm_i * tau))``, with ``Q = join_h(target) + c * std_h(target)``.

    The norm, of start ``i``, is the standard deviation or range of its own ``Q_in``, the running
    spread of the joined heads of all starts (before disagreement is added, which therefore does
    not change it), or 1. The temperature ``tau`` is given, or solves an equation about the batch:

    * ``ess``: ``mean_i 1 / sum_n w_in^2 = share * N``;
    * ``kl``: ``mean_i KL(w_i | uniform) = bound``, which minimises MPO's dual
      ``tau * bound + tau * mean_i log mean_n exp(Q_in / (norm_i * tau))``.

    Means are weighted by ``batch.weight``. Where no temperature solves the equation it is the
    least or greatest that is tried: 1e-4 or 1e4 times the greatest difference within a start.
    """

    def __init__(self, params: AwrParams) -> None:
        super().__init__()
        self._params = params
        running = params.normaliser == "running_scale"
        self.running_scale = RunningScale(params.scale_rate) if running else None

    @torch.no_grad()
    def forward(self, batch: CandidateBatch) -> WeighedCandidates:
        """Weigh the candidates of a batch, which in training mode the running scale follows."""
        joined = joined_heads(batch.target, self._params.reduction)
        quality = joined + self._params.disagreement * disagreement(batch.target)
        if self.running_scale is not None:
            scale = self.running_scale(joined, batch.weight).expand(quality.shape[1])
        else:
            scale = _own_scale(quality, self._params.normaliser)
        # Relative to the best: large numbers would lose their differences.
        scaled = (quality - quality.amax(0)) / scale
        temperature = self._temperature(scaled, batch.weight)
        weights = (scaled / temperature).softmax(0)
        return WeighedCandidates(weights, quality, quality / scale, scale, temperature)

    def _temperature(
        self, scaled: Float[Tensor, "candidate start"], weight: Float[Tensor, " start"]
    ) -> Float[Tensor, ""]:
        rule = self._params.temperature
        if isinstance(rule, FixedTemperature):
            return scaled.new_full((), rule.value)
        widest = (-scaled.amin(0) * (weight > 0)).amax()
        # Where all are equal every temperature does, except 0.
        middle = torch.where(widest > 0, widest, torch.ones_like(widest)).log()
        low, high = middle - LOG_RANGE, middle + LOG_RANGE
        steps = torch.linspace(0, 1, POINTS, dtype=scaled.dtype, device=scaled.device)
        for _ in range(ROUNDS):
            log_temperatures = torch.lerp(low, high, steps)
            excess = self._excess(
                (scaled / log_temperatures.exp()[:, None, None]).softmax(1), weight
            )
            at = ((excess < 0).sum() - 1).clamp(0, POINTS - 2)[None]
            (low,), (high,) = log_temperatures.gather(0, at), log_temperatures.gather(0, at + 1)
            (below,), (above,) = excess.gather(0, at), excess.gather(0, at + 1)
        # Between neighbours it is nearly straight.
        rise = (above - below).clamp(min=torch.finfo(scaled.dtype).tiny)
        return torch.lerp(low, high, (-below / rise).clamp(0, 1)).exp()

    def _excess(
        self, weights: Float[Tensor, "point candidate start"], weight: Float[Tensor, " start"]
    ) -> Float[Tensor, " point"]:
        """Excess evenness of the weights at each temperature; rises with it."""
        rule = self._params.temperature
        if isinstance(rule, TargetEss):
            excess = effective_sample_size(weights) - rule.share * weights.shape[-2]
        else:
            assert isinstance(rule, KlBound)
            excess = rule.bound - divergence_from_even(weights)
        return (excess * weight).sum(-1) / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)


def effective_sample_size(
    weights: Float[Tensor, "*batch candidate start"],
) -> Float[Tensor, "*batch start"]:
    """``1 / sum_n w_n^2``: how many candidates really count, from 1 to all."""
    return 1 / weights.square().sum(-2)


def weight_entropy(weights: Float[Tensor, "candidate start"]) -> Float[Tensor, " start"]:
    """Entropy of the weights of each start, at most ``log N``."""
    return -torch.xlogy(weights, weights).sum(0)


def divergence_from_even(
    weights: Float[Tensor, "*batch candidate start"],
) -> Float[Tensor, "*batch start"]:
    """``KL(w | uniform)`` of each start, in nats."""
    return torch.xlogy(weights, weights * weights.shape[-2]).sum(-2)


def _own_scale(quality: Float[Tensor, "candidate start"], kind: str) -> Float[Tensor, " start"]:
    """Normaliser of each start's qualities, from themselves alone."""
    if kind == "none":
        return torch.ones_like(quality[0])
    if kind == "state_range":
        scale = quality.amax(0) - quality.amin(0)
    else:
        scale = quality.std(0, correction=0)
    # Smaller differences are rounding, which must not be taken for preferences.
    numbers = torch.finfo(quality.dtype)
    return (
        scale.clamp(min=0).maximum(8 * numbers.eps * quality.abs().amax(0)).clamp(min=numbers.tiny)
    )


@torch.no_grad()
def _metrics(
    weighed: WeighedCandidates,
    nll: Float[Tensor, " start"],
    score: Float[Tensor, "candidate start"],
    entropy_term: Float[Tensor, ""],
    weight: Float[Tensor, " start"],
) -> dict[str, Tensor]:
    """How well the policy fits the candidates, and their weights: means over starts that count."""
    counts, weights = weight > 0, weighed.weights
    mean_nll, mean_scaled = weighted_mean(nll, weight), weighted_mean(weighed.scaled, weight)
    return {
        "nll": mean_nll,
        "entropy_ratio": entropy_term.abs() / mean_nll.abs().clamp(min=1e-8),
        "log_prob": weighted_mean(score, weight),
        "weight_entropy": weighted_mean(weight_entropy(weights), weight),
        "ess": weighted_mean(effective_sample_size(weights), weight),
        "weight_max": weights.masked_fill(~counts, 0.0).amax(),
        "weight_min": weights.masked_fill(~counts, 1.0).amin(),
        "state_std": weighted_mean(weighed.quality.std(0, correction=0), weight),
        "scaled_mean": mean_scaled,
        "scaled_std": weighted_mean((weighed.scaled - mean_scaled).square(), weight).sqrt(),
        "scale": weighted_mean(weighed.scale, weight),
        "temperature": weighed.temperature,
    }


def _fewest(rule: Temperature) -> int:
    """The fewest candidates that can differ, and of which more than one can count."""
    return max(2, math.floor(1 / rule.share) + 1) if isinstance(rule, TargetEss) else 2
