"""How much candidates count: the better, the more."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from empo_awr.params import AwrParams, FixedTemperature, TargetEss
from empo_core.training.policy_losses import (
    RunningScale,
    disagreement,
    joined_heads,
    weighted_mean,
)
from empo_core.types import ImaginedBatch

HALVINGS = 24
"""Steps in which a temperature is found, among 18 powers of e: to 1e-6 of itself."""
RANGE = 1e-4
"""The least temperature is this times the greatest difference within a start, the greatest that
divided by this."""


class Weighed(NamedTuple):
    """What was found about the candidates of a batch.

    Attributes:
        weights: How much each counts; they add up to 1 at each start.
        quality: What each is worth: heads joined, disagreement added.
        scaled: The same divided by its normaliser.
        scale: The normaliser.
        temperature: What scaled qualities are divided by.
        moved: The running scale after this batch; None where there is none.
    """

    weights: Float[Tensor, "start candidate"]
    quality: Float[Tensor, "start candidate"]
    scaled: Float[Tensor, "start candidate"]
    scale: Float[Tensor, "start 1"]
    temperature: Float[Tensor, ""]
    moved: Float[Tensor, ""] | None


class Weighting:
    """``w_in = softmax_n(Q_in / (norm_i * tau))``, with ``Q = join_h(target) + c * std_h(target)``.

    The norm, of start ``i``, is the standard deviation or range of its own ``Q_in``, the running
    spread of the joined heads of all starts (before disagreement is added, which therefore does
    not change it), or 1. The temperature ``tau`` is given, or solves an equation about the batch:

    * ``ess``: ``mean_i 1 / sum_n w_in^2 = share * N``;
    * ``kl``: ``mean_i KL(w_i | uniform) = bound``, which minimises MPO's dual
      ``tau * bound + tau * mean_i log mean_n exp(Q_in / (norm_i * tau))``.

    Means are weighted by ``batch.weight``. Where no temperature solves the equation it is the
    extreme one that comes nearest.
    """

    def __init__(self, params: AwrParams) -> None:
        self._params = params
        running = params.normaliser == "running_scale"
        self.scale = RunningScale(params.scale_rate) if running else None

    @torch.no_grad()
    def __call__(self, batch: ImaginedBatch) -> Weighed:
        """Weigh the candidates of a batch; nothing changes, not even the running scale."""
        joined = joined_heads(batch.target, self._params.reduction)
        quality = joined
        if self._params.disagreement:
            quality = joined + self._params.disagreement * disagreement(batch.target)
        weight = batch.weight.unsqueeze(1)
        moved = None if self.scale is None else self.scale.moved(joined, weight)
        scale = _own_scale(quality, self._params.normaliser) if moved is None else moved
        scale = scale.expand(len(quality), 1)
        # Relative to the best: large numbers would lose their differences.
        scaled = (quality - quality.amax(1, keepdim=True)) / scale
        temperature = self._temperature(scaled, batch.weight)
        weights = (scaled / temperature).softmax(1)
        return Weighed(weights, quality, quality / scale, scale, temperature, moved)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly so."""
        return {} if self.scale is None else self.scale.state_dict()

    def _temperature(
        self, scaled: Float[Tensor, "start candidate"], weight: Float[Tensor, " start"]
    ) -> Float[Tensor, ""]:
        rule = self._params.temperature
        if isinstance(rule, FixedTemperature):
            return scaled.new_full((), rule.value)
        widest = (-scaled.amin(1) * (weight > 0)).amax()
        # Where all are equal every temperature does, except 0.
        widest = torch.where(widest > 0, widest, torch.ones_like(widest))
        low, high = widest * RANGE, widest / RANGE
        for _ in range(HALVINGS):
            middle = (low * high).sqrt()
            weights = (scaled / middle).softmax(1)
            if isinstance(rule, TargetEss):
                samples = weighted_mean(effective_sample_size(weights), weight)
                too_hot = samples > rule.share * scaled.shape[1]
            else:
                too_hot = weighted_mean(divergence_from_even(weights), weight) < rule.bound
            low, high = torch.where(too_hot, low, middle), torch.where(too_hot, middle, high)
        return (low * high).sqrt()


def effective_sample_size(
    weights: Float[Tensor, "start candidate"],
) -> Float[Tensor, " start"]:
    """``1 / sum_n w_n^2``: how many candidates really count, from 1 to all."""
    return 1 / weights.square().sum(1)


def weight_entropy(weights: Float[Tensor, "start candidate"]) -> Float[Tensor, " start"]:
    """Entropy of the weights of each start, at most ``log N``."""
    return -torch.xlogy(weights, weights).sum(1)


def divergence_from_even(weights: Float[Tensor, "start candidate"]) -> Float[Tensor, " start"]:
    """``KL(w | uniform)`` of each start, in nats."""
    return torch.xlogy(weights, weights * weights.shape[1]).sum(1)


def _own_scale(quality: Float[Tensor, "start candidate"], kind: str) -> Float[Tensor, "start 1"]:
    """What each start's qualities are divided by, from themselves alone."""
    if kind == "none":
        return torch.ones_like(quality[:, :1])
    if kind == "state_range":
        scale = quality.amax(1, keepdim=True) - quality.amin(1, keepdim=True)
    else:
        scale = quality.std(1, correction=0, keepdim=True)
    # Smaller differences are rounding, which must not be taken for preferences.
    numbers = torch.finfo(quality.dtype)
    return (
        scale.clamp(min=0)
        .maximum(8 * numbers.eps * quality.abs().amax(1, keepdim=True))
        .clamp(min=numbers.tiny)
    )
