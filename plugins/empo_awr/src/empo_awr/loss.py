"""Value-weighted regression: imitate candidates, the better ones more."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from empo_awr.candidate_weights import (
    CandidateWeighting,
    WeighedCandidates,
    effective_sample_size,
    weight_entropy,
)
from empo_awr.params import AwrParams, TargetEss, Temperature
from empo_awr.trust import TrustRegion
from empo_core.protocols import Critic, Policy, PolicyLoss
from empo_core.trees import StateDict
from empo_core.types import ImaginedBatch, LossNeeds, LossOutput
from empo_learning.policy_losses import (
    EntropyCoefficient,
    constants,
    entropy_metrics,
    policy_metrics,
    require_needs,
    weighted_mean,
)

ENOUGH = 8
"""Fewer candidates say hardly anything about which actions are good."""


class Awr(PolicyLoss):
    """Advantage-weighted regression, the M-step of MPO.

    With ``weight_i`` of start ``i``, candidates ``u_in`` and their weights ``w_in`` (constants, see
    ``CandidateWeighting``), entropy ``H`` with its coefficient ``alpha``::

        loss = mean_i weight_i [ -sum_n w_in log pi(u_in | z_i) - alpha * A^p * H(pi(. | z_i)) ]

    The log-probability is the score: its gradient goes through the policy's parameters at a
    constant ``u``. That of a sample as it is drawn has the same value and another gradient, which
    does not know which candidates are good.
    """

    is_adaptive = True
    weighs_candidates = True

    def __init__(self, params: AwrParams) -> None:
        self._params = params
        self._weighting = CandidateWeighting(params)
        self._entropy = EntropyCoefficient(params.entropy)
        self._region = TrustRegion(params.trust_region) if params.trust_region else None
        self.needs = LossNeeds(
            proposal=self._region is not None,
            min_candidates=_fewest(params.temperature),
            candidates=params.candidates,
        )

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss of ``policy`` on ``batch``; ``critic`` is not used.

        Raises:
            ValueError: if there are too few candidates, or the proposal that a trust region needs
                is missing or not normal.
        """
        self._require_candidates(batch)
        batch = constants(batch)
        weight, ignored = batch.weight, batch.weight <= 0
        weighed = self._weighting(batch)
        distribution = policy(batch.start)
        score = distribution.log_prob(batch.action)
        nll = -(self._cut(weighed.weights) * score).sum(0).masked_fill(ignored, 0.0)
        bonus = self._entropy.bonus(distribution, weight)
        per_start = nll - bonus.paid
        statistics = {"entropy_coef": bonus.next_value}
        metrics = entropy_metrics(bonus)
        if self._region is not None:
            assert batch.proposal is not None
            distance = self._region.distance(distribution, batch.proposal, weight)
            per_start = per_start + distance.cost
            statistics["multipliers"] = distance.new_multipliers
            metrics |= distance.metrics
        if weighed.new_scale is not None:
            statistics["scale"] = weighed.new_scale
        with torch.no_grad():
            metrics["nll"] = weighted_mean(nll, weight)
            metrics["entropy_ratio"] = metrics["entropy_term"].abs() / metrics["nll"].abs().clamp(
                min=1e-8
            )
            metrics["log_prob"] = weighted_mean(score.masked_fill(ignored, 0.0), weight)
            metrics |= policy_metrics(distribution, weight)
            metrics |= _weight_metrics(weighed, weight)
        loss = (weight * per_start.masked_fill(ignored, 0.0)).mean()
        return LossOutput(loss, metrics, statistics)

    def weights(self, batch: ImaginedBatch) -> Float[Tensor, "candidate start"]:
        """Weights of the candidates, before any is cut to ``max_weight``.

        Raises:
            ValueError: if there are too few candidates.
        """
        self._require_candidates(batch)
        return self._weighting(constants(batch)).weights

    def adapt(self, statistics: Mapping[str, Tensor], progress: float) -> None:
        """Move running scale, entropy coefficient and multipliers."""
        self._entropy.adapt(statistics["entropy_coef"], progress)
        if self._region is not None:
            self._region.adapt(statistics["multipliers"])
        if self._weighting.scale is not None:
            self._weighting.scale.adapt(statistics["scale"])

    def state_dict(self) -> StateDict:
        """State of running scale, entropy coefficient and multipliers."""
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        for name, part in self._parts().items():
            part.load_state_dict(state_dict[name])

    def _parts(self) -> dict[str, Any]:
        parts = {
            "entropy": self._entropy,
            "region": self._region,
            "scale": self._weighting.scale,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def _cut(self, weights: Float[Tensor, "candidate start"]) -> Float[Tensor, "candidate start"]:
        greatest = self._params.max_weight
        return weights if greatest is None else weights.clamp(max=greatest / len(weights))

    def _require_candidates(self, batch: ImaginedBatch) -> None:
        candidates, rule = len(batch.action), self._params.temperature
        if isinstance(rule, TargetEss) and 2 <= candidates < self.needs.min_candidates:
            raise ValueError(
                f"awr: an effective sample size of {rule.share:g} times {candidates} candidates is "
                "impossible, since 1 is the least; propose more, or raise temperature.share"
            )
        require_needs("awr", self.needs, batch)
        if candidates < ENOUGH:
            _warn_of_few(candidates)


def _fewest(rule: Temperature) -> int:
    """The fewest candidates that can differ, and of which more than one can count."""
    return max(2, math.floor(1 / rule.share) + 1) if isinstance(rule, TargetEss) else 2


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _warn_of_few(candidates: int) -> None:
    """Warn once per process; compiled losses warn while they are compiled."""
    _say(candidates)


@cache
def _say(candidates: int) -> None:
    logging.getLogger(__name__).warning(
        "awr compares only %d candidate actions per start; below %d their weights are mostly "
        "noise, 16 or more are recommended",
        candidates,
        ENOUGH,
    )


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
