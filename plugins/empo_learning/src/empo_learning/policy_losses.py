"""Parts that policy losses share, as pure functions and small modules.

Everything compiles into one graph: shapes are static, and nothing asks a tensor for its value.
What changes in the course of training (``RunningScale``, ``EntropyBonus``) is a module with a
buffer, which changes in training mode alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal

from empo_learning.distributions import BoundedNormal

if TYPE_CHECKING:
    from empo_learning.entropy_params import EntropyParams

Heads = Literal["mean", "min", "max"]
"""Reduction of the values of several heads."""

NEAR_BOUND = 0.95
"""Actions beyond this are called saturated."""
LOG_COEFFICIENTS = (-20.0, 10.0)
"""Bounds of a tuned coefficient's logarithm: a target that cannot be reached ends here."""


def weighted_mean(
    values: Float[Tensor, "*shape"], weight: Shaped[Tensor, "*#shape"]
) -> Float[Tensor, ""]:
    """Mean of numbers that count differently; 0 where none counts.

    Args:
        values: The numbers.
        weight: At least 0; broadcast against the numbers.
    """
    weight = weight.expand_as(values)
    return (weight * values).sum() / weight.sum().clamp(min=torch.finfo(values.dtype).tiny)


def weighted_means(
    weight: Float[Tensor, " start"], **values: Float[Tensor, " start"]
) -> dict[str, Tensor]:
    """Means of several numbers of each start, which count differently; 0 where none counts."""
    normalised_weight = weight / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
    means = (torch.stack(list(values.values())) * normalised_weight).sum(1)
    return dict(zip(values, means.unbind(), strict=True))


def joined_heads(
    values: Float[Tensor, "*shape"], mode: Heads, axes: int | tuple[int, ...] = -1
) -> Float[Tensor, "*rest"]:
    """One number for those of all heads, which are on these axes: their mean, least or greatest."""
    if mode == "mean":
        return values.mean(axes)
    return values.amin(axes) if mode == "min" else values.amax(axes)


def disagreement(values: Float[Tensor, "*batch head"]) -> Float[Tensor, "*batch"]:
    """Standard deviation over the heads (unbiased variance); 0 where there is one head.

    Its gradient is 0, not NaN, where heads agree exactly.
    """
    if values.shape[-1] == 1:
        return torch.zeros_like(values[..., 0])
    return values.std(-1)


def spread(values: Float[Tensor, "*shape"], weight: Shaped[Tensor, "*#shape"]) -> Float[Tensor, ""]:
    """Distance of the 5th and the 95th percentile, as ``torch.quantile`` interpolates them.

    Args:
        values: The numbers.
        weight: Those with a weight of 0 do not count, all others alike; broadcast against the
            numbers.

    Returns:
        The distance; 0 where nothing counts.
    """
    counts = (weight > 0).expand_as(values).flatten()
    # The others go to the end, so that no shape depends on how many there are.
    ordered = values.detach().flatten().masked_fill(~counts, math.inf).sort().values
    last = (counts.sum() - 1).clamp(min=0)
    place = last.double() * torch.tensor([0.05, 0.95], dtype=torch.float64, device=last.device)
    below, above = (ordered[at.long()] for at in (place.floor(), place.ceil()))
    low, high = torch.lerp(below, above, place.frac().to(ordered.dtype))
    distance = high - low
    return torch.where(counts.any(), distance, torch.zeros_like(distance))


class RunningScale(nn.Module):
    """Running scale: a slow average of the values' spread, at least 1, by which they are divided.

    ``S <- S + rate * (max(spread, 1) - S)``, from 1 on (TD-MPC2).

    Attributes:
        value: The scale, a buffer.
    """

    value: Float[Tensor, ""]

    def __init__(self, rate: float) -> None:
        """Follow with this rate, in (0, 1]; 0 never moves."""
        super().__init__()
        self._rate = rate
        self.register_buffer("value", torch.ones(()))

    def forward(
        self, values: Float[Tensor, "*shape"], weight: Shaped[Tensor, "*#shape"]
    ) -> Float[Tensor, ""]:
        """The scale after these values; in training mode it is the scale from now on.

        Args:
            values: The numbers.
            weight: As ``spread`` takes it; where nothing counts the scale stays.
        """
        value = self.value.to(values, copy=True)
        aim = spread(values, weight).clamp(min=1.0)
        scale = torch.where((weight > 0).any(), torch.lerp(value, aim, self._rate), value)
        if self.training:
            self.value.copy_(scale)
        return scale


def scheduled(params: EntropyParams, progress: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """The coefficient when this share of the run is done.

    ``coef`` up to ``begin``, ``end`` from ``finish`` on, and between, with ``x`` from 0 to 1,
    ``coef + (end - coef) * x`` or ``coef * (end / coef) ** x``. Where ``begin`` equals ``finish``
    it jumps behind it.
    """
    start, end = params.coef, params.end
    if end is None:
        return torch.full_like(progress, start)
    if params.finish > params.begin:
        x = ((progress - params.begin) / (params.finish - params.begin)).clamp(0.0, 1.0)
    else:
        x = (progress > params.begin).to(progress)
    if params.schedule == "exponential":
        return start * (end / start) ** x
    return start + (end - start) * x


class EntropyTerm(NamedTuple):
    """What entropy is worth.

    Attributes:
        paid: Coefficient times scaled entropy of each start; its gradient is the policy's.
        metrics: Means of ``entropy`` (summed over the numbers of an action), ``entropy_scaled``
            (times a power of how many there are) and ``entropy_term``; ``entropy_coef``.
    """

    paid: Float[Tensor, " start"]
    metrics: dict[str, Tensor]


class EntropyBonus(nn.Module):
    """A bonus for entropy, with a coefficient that is constant, scheduled, or tuned.

    A tuned one follows the gradient of ``log(coefficient) * (entropy - target)``, as in SAC, with
    entropies per number of an action::

        coefficient <- coefficient * exp(-rate * (entropy - target))

    It moves with each call in training mode: who takes no step after one puts the buffer back.

    Attributes:
        tuned: The tuned coefficient, a buffer; None where it is not tuned.
    """

    tuned: Float[Tensor, ""] | None

    def __init__(self, params: EntropyParams) -> None:
        super().__init__()
        self._params = params
        is_tuned = params.target_entropy is not None
        self.register_buffer("tuned", torch.tensor(params.coef) if is_tuned else None)

    def forward(
        self,
        distribution: Distribution,
        weight: Float[Tensor, " start"],
        progress: Float[Tensor, ""],
    ) -> EntropyTerm:
        """What the entropy of policies is worth at each start.

        Args:
            distribution: The policy at each start.
            weight: How much each start counts, in metrics and for tuning.
            progress: Share of the run that is done, for schedules.
        """
        params = self._params
        worthless = params.coef == 0 and params.end is None
        # Where nothing is ever paid, entropy is only reported.
        with torch.set_grad_enabled(torch.is_grad_enabled() and not worthless):
            scaled = entropy = policy_entropy(distribution, params.jacobian)
            if params.action_power:
                scaled = entropy * num_numbers(distribution) ** params.action_power
        coefficient = scheduled(params, progress.to(scaled))
        if self.tuned is not None:
            coefficient = self.tuned.to(scaled, copy=True)
            if self.training:
                self.tuned.copy_(self._tuned_by(entropy.detach(), distribution, weight))
        paid = coefficient * scaled
        with torch.no_grad():
            metrics = weighted_means(
                weight, entropy=entropy, entropy_scaled=scaled, entropy_term=paid
            )
            metrics["entropy_coef"] = coefficient
        return EntropyTerm(paid, metrics)

    def _tuned_by(
        self,
        entropy: Float[Tensor, " start"],
        distribution: Distribution,
        weight: Float[Tensor, " start"],
    ) -> Float[Tensor, ""]:
        """The coefficient after these entropies."""
        assert self.tuned is not None
        assert self._params.target_entropy is not None
        per_number = entropy / num_numbers(distribution)
        # 0 where nothing counts, which leaves the coefficient as it is.
        excess = weighted_mean(per_number - self._params.target_entropy, weight)
        log_coefficient = self.tuned.to(entropy).log() - self._params.rate * excess
        return log_coefficient.clamp(*LOG_COEFFICIENTS).exp()


def policy_entropy(distribution: Distribution, jacobian: float) -> Float[Tensor, "*batch"]:
    """``(1 - j) * entropy() + j * (-log_prob(rsample()))``, from one fresh sample.

    The first part is exact; for a ``BoundedNormal`` it is that of the numbers before they are
    bounded, the second that of the bounded action. The gradient goes through the sample, which is
    right here, since it is the mean over samples that is wanted, and not a score.
    """
    if jacobian == 0:
        return distribution.entropy()
    sampled = -distribution.log_prob(distribution.rsample())
    if jacobian == 1:
        return sampled
    return torch.lerp(distribution.entropy(), sampled, jacobian)


def num_numbers(distribution: Distribution) -> Float[Tensor, "*batch"] | int:
    """Number of an action's dimensions that are used."""
    if isinstance(distribution, BoundedNormal):
        return distribution.num_active
    return math.prod(distribution.event_shape)


def normal_parameters(
    distribution: Distribution,
) -> tuple[Float[Tensor, "*batch action"], Float[Tensor, "*batch action"]]:
    """Mean and log standard deviation of the normal numbers that actions are made of.

    Raises:
        ValueError: if the distributions are not independent and normal.
    """
    if isinstance(distribution, BoundedNormal):
        return distribution.loc, distribution.log_std.expand_as(distribution.loc)
    base = distribution.base_dist if isinstance(distribution, Independent) else distribution
    if isinstance(base, Normal):
        return base.loc, base.scale.log()
    raise ValueError(
        "divergences in closed form need a BoundedNormal or an Independent(Normal), and this "
        f"policy is a {type(distribution).__name__} of {type(base).__name__}"
    )


def policy_metrics(
    distribution: Distribution, weight: Float[Tensor, " start"]
) -> dict[str, Tensor]:
    """Metrics of policies at each start.

    Args:
        distribution: The policy at each start.
        weight: How much each start counts.

    Returns:
        ``mean_abs`` and ``log_std`` of the normal numbers, and, of bounded ones, ``saturated``:
        the share of their modes within 0.05 of a bound. Numbers that are not active do not count.
    """
    with torch.no_grad():
        mode = distribution.mode
        counts = weight[:, None].expand_as(mode)
        if isinstance(distribution, BoundedNormal):
            log_std = distribution.log_std.expand_as(mode)
            if distribution.active is not None:
                counts = counts * distribution.active
        else:
            log_std = distribution.stddev.log()
        metrics = {
            "mean_abs": weighted_mean(mode.abs(), counts),
            "log_std": weighted_mean(log_std, counts),
        }
        if isinstance(distribution, BoundedNormal):
            near = (distribution.bounded(mode).abs() > NEAR_BOUND).to(mode)
            metrics["saturated"] = weighted_mean(near, counts)
    return metrics
