"""Parts that policy losses share, as pure functions and small states.

Everything compiles into one graph: shapes are static, and nothing asks a tensor for its value.
What changes in the course of training (``RunningScale``, ``EntropyCoefficient``) does so in
``adapt`` alone; what a call would make of it is its ``next_value``, which belongs into
``LossOutput.statistics``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

from empo_core.protocols import Critic
from empo_core.trees import StateDict
from empo_core.types import ImaginedBatch, LossNeeds
from empo_learning.distributions import BoundedNormal

if TYPE_CHECKING:
    from empo_learning.entropy_params import EntropyParams

Heads = Literal["mean", "min", "max"]
"""Reduction of the values of several heads."""

NEAR_BOUND = 0.95
"""Actions beyond this are called saturated."""
LOG_COEFFICIENTS = (-20.0, 10.0)
"""Bounds of a tuned coefficient's logarithm: a target that cannot be reached ends here."""


def require_needs(
    name: str, needs: LossNeeds, batch: ImaginedBatch, critic: Critic | None = None
) -> None:
    """Refuse a call that lacks something.

    Raises:
        ValueError: if something that the loss needs is missing, or there are too few candidates.
    """
    for role, is_needed, value in (
        ("a critic", needs.critic, critic),
        ("batch.expert", needs.expert, batch.expert),
        ("batch.proposal", needs.proposal, batch.proposal),
    ):
        if is_needed and value is None:
            raise ValueError(f"{name} needs {role}, and got None; pass it, see its 'needs'")
    candidates = len(batch.action)
    if candidates < needs.min_candidates:
        raise ValueError(
            f"{name} needs at least {needs.min_candidates} candidate actions per start, and the "
            f"batch has {candidates}; propose more"
        )


def constants(batch: ImaginedBatch) -> ImaginedBatch:
    """The batch without gradients, and with zeros for the candidates of starts without weight.

    So whatever stands there has no influence, not even NaN. Starts and distributions are left as
    they are.
    """
    masked = (batch.weight <= 0).detach()
    return replace(
        batch,
        start=batch.start.detach(),
        action=batch.action.detach().masked_fill(masked[:, None], 0.0),
        target=batch.target.detach().masked_fill(masked[:, None], 0.0),
        log_prob=batch.log_prob.detach().masked_fill(masked, 0.0),
        weight=batch.weight.detach(),
    )


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


def joined_heads(values: Float[Tensor, "*batch head"], mode: Heads) -> Float[Tensor, "*batch"]:
    """One number for those of all heads: their mean, least or greatest."""
    if mode == "mean":
        return values.mean(-1)
    return values.amin(-1) if mode == "min" else values.amax(-1)


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
    distance = _quantile(ordered, last, 0.95) - _quantile(ordered, last, 0.05)
    return torch.where(counts.any(), distance, torch.zeros_like(distance))


class RunningScale:
    """Running scale: a slow average of the values' spread, at least 1, by which they are divided.

    ``S <- S + rate * (max(spread, 1) - S)``, from 1 on (TD-MPC2).
    """

    def __init__(self, rate: float) -> None:
        """Follow with this rate, in (0, 1]."""
        self._rate = rate
        self.value: Float[Tensor, ""] = torch.ones(())

    def next_value(
        self, values: Float[Tensor, "*shape"], weight: Shaped[Tensor, "*#shape"]
    ) -> Float[Tensor, ""]:
        """The scale after these values; it changes when ``adapt`` gets it.

        Args:
            values: The numbers.
            weight: As ``spread`` takes it; where nothing counts the scale stays.
        """
        value = self.value.to(values)
        aim = spread(values, weight).clamp(min=1.0)
        return torch.where((weight > 0).any(), torch.lerp(value, aim, self._rate), value)

    def adapt(self, next_value: Float[Tensor, ""]) -> None:
        """Take what ``next_value`` returned, and move to its device."""
        self.value = written(self.value, next_value)

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so."""
        return {"value": self.value.clone()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self.value = written(self.value, state_dict["value"])


def scheduled(params: EntropyParams, progress: float) -> float:
    """The coefficient when this share of the run is done.

    ``coef`` up to ``begin``, ``end`` from ``finish`` on, and between, with ``x`` from 0 to 1,
    ``coef + (end - coef) * x`` or ``coef * (end / coef) ** x``. Where ``begin`` equals ``finish``
    it jumps behind it.
    """
    start, end = params.coef, params.end
    if end is None or progress <= params.begin:
        return start
    if progress >= params.finish:
        return end
    share = (progress - params.begin) / (params.finish - params.begin)
    if params.schedule == "exponential":
        return float(start * (end / start) ** share)
    return start + (end - start) * share


class EntropyBonus(NamedTuple):
    """The entropy bonus of a policy.

    Attributes:
        entropy: Of each start, summed over the numbers of an action.
        scaled: Times a power of how many numbers there are.
        coefficient: Of the bonus.
        paid: Coefficient times scaled entropy of each start; its gradient is the policy's.
        weight: How much each start counts in metrics.
        next_value: What ``EntropyCoefficient.adapt`` wants.
    """

    entropy: Float[Tensor, " start"]
    scaled: Float[Tensor, " start"]
    coefficient: Float[Tensor, ""]
    paid: Float[Tensor, " start"]
    weight: Float[Tensor, " start"]
    next_value: Float[Tensor, ""]


def entropy_metrics(bonus: EntropyBonus) -> dict[str, Tensor]:
    """Means of ``entropy``, ``entropy_scaled`` and ``entropy_term``; ``entropy_coef``."""
    with torch.no_grad():
        return {
            "entropy": weighted_mean(bonus.entropy, bonus.weight),
            "entropy_scaled": weighted_mean(bonus.scaled, bonus.weight),
            "entropy_term": weighted_mean(bonus.paid, bonus.weight),
            "entropy_coef": bonus.coefficient.clone(),
        }


class EntropyCoefficient:
    """The coefficient of entropy in a policy loss: constant, scheduled, or tuned.

    A tuned one follows the gradient of ``log(coefficient) * (entropy - target)``, as in SAC, with
    entropies per number of an action::

        coefficient <- coefficient * exp(-rate * (entropy - target))
    """

    def __init__(self, params: EntropyParams) -> None:
        self._params = params
        self.value: Float[Tensor, ""] = torch.tensor(params.coef, dtype=torch.float32)

    def bonus(self, distribution: Distribution, weight: Float[Tensor, " start"]) -> EntropyBonus:
        """Entropy bonus of policies ``distribution`` at each start.

        Args:
            distribution: The policy at each start.
            weight: How much each start counts, in metrics and for tuning.
        """
        params = self._params
        worthless = params.coef == 0 and params.end is None
        # Where nothing is ever paid, entropy is only reported.
        with torch.set_grad_enabled(torch.is_grad_enabled() and not worthless):
            entropy = policy_entropy(distribution, params.jacobian)
            scaled = entropy * num_numbers(distribution) ** params.action_power
        value = self.value.to(scaled)
        next_value = value.clone()
        if params.target_entropy is not None:
            with torch.no_grad():
                per_number = entropy / num_numbers(distribution)
                # 0 where nothing counts, which leaves the coefficient as it is.
                excess = weighted_mean(per_number - params.target_entropy, weight)
                next_value = (value.log() - params.rate * excess).clamp(*LOG_COEFFICIENTS).exp()
        return EntropyBonus(entropy, scaled, value, value * scaled, weight, next_value)

    def adapt(self, next_value: Float[Tensor, ""], progress: float) -> None:
        """Take the ``next_value`` of a bonus, or what the schedule says; and go to its device."""
        self.value = written(self.value, next_value)
        if self._params.target_entropy is None:
            self.value.fill_(scheduled(self._params, progress))

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so."""
        return {"value": self.value.clone()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self.value = written(self.value, state_dict["value"])


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


def _quantile(ordered: Tensor, last: Tensor, share: float) -> Tensor:
    """The quantile of the numbers up to position ``last``."""
    place = last.double() * share
    below = place.floor()
    low, high = (ordered.gather(0, at.long()[None])[0] for at in (below, place.ceil()))
    return torch.lerp(low, high, (place - below).to(ordered.dtype))


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


def written(
    old: Shaped[Tensor, "*shape"], new: Shaped[Tensor, "*shape"]
) -> Shaped[Tensor, "*shape"]:
    """Copy ``new`` into the storage of ``old``, as compiled graphs require.

    Where they are on different devices it is a tensor on the device of ``new``.
    """
    if old.device != new.device:
        old = old.to(new.device)
    return old.copy_(new.detach())
