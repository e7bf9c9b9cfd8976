"""Value loss with clipping, and explained variance."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def value_loss(
    value: Float[Tensor, "*batch"],
    old_value: Float[Tensor, "*batch"],
    returns: Float[Tensor, "*batch"],
    weight: Float[Tensor, "*batch"],
    clip: float | None,
) -> Float[Tensor, ""]:
    """Half the weighted mean of squared errors; gradients reach ``value`` alone.

    Args:
        value: Value estimates now.
        old_value: Those of the policy that acted.
        returns: Targets.
        weight: How much each step counts, at least 0; nothing is read where it is 0.
        clip: A value that has moved further than this counts as moved so far, where that is the
            greater error; None lets it move any distance.

    Returns:
        ``mean(max((V - R)^2, (V_old + clip(V - V_old) - R)^2)) / 2``; 0 without any weight.
    """
    counts = weight.detach() > 0
    zero = value.new_zeros(())
    # Replaced before anything is computed: 0 * NaN would be NaN.
    error = torch.where(counts, value - returns.detach(), zero)
    square = error.square()
    if clip is not None:
        change = torch.where(counts, value - old_value.detach(), zero)
        # V_old + clip(V - V_old) - R, by what is cut off.
        clipped = error - change + change.clamp(-clip, clip)
        square = torch.maximum(square, clipped.square())
    return 0.5 * weighted_mean(square, weight.detach())


def explained_variance(
    value: Float[Tensor, "*batch"],
    returns: Float[Tensor, "*batch"],
    weight: Float[Tensor, "*batch"],
) -> Float[Tensor, ""]:
    """``1 - Var(R - V) / Var(R)``; 0 where returns do not vary."""
    counts = weight > 0
    zero = value.new_zeros(())
    returns = torch.where(counts, returns, zero).detach()
    error = returns - torch.where(counts, value, zero).detach()
    spread = _variance(returns, weight)
    # Less than this is rounding of returns that are all the same.
    rounding = (8 * torch.finfo(returns.dtype).eps * returns.abs().amax()).square()
    return torch.where(spread > rounding, 1 - _variance(error, weight) / spread, zero)


def weighted_mean(
    values: Float[Tensor, "*batch"], weight: Float[Tensor, "*batch"]
) -> Float[Tensor, ""]:
    """The weighted mean; 0 without any weight."""
    return (values * weight).sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)


def _variance(values: Tensor, weight: Tensor) -> Tensor:
    return weighted_mean((values - weighted_mean(values, weight)).square(), weight)
