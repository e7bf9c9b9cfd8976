"""What all losses of the agent have in common: how they are weighed, added up and reported."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from empo_latent.types import Losses


def added(
    parts: Mapping[str, tuple[float, Float[Tensor, ""]]], metrics: Mapping[str, Tensor]
) -> Losses:
    """The sum of ``coefficient * loss``, reported as it is and as it counts.

    Args:
        parts: By name, a coefficient and a loss.
        metrics: Further numbers for people.

    Returns:
        The sum, and beside ``metrics`` each ``loss/<name>`` and ``weighted/<name>``.
    """
    weighted = {name: coefficient * loss for name, (coefficient, loss) in parts.items()}
    reported = {f"loss/{name}": loss.detach() for name, (_, loss) in parts.items()}
    reported |= {f"weighted/{name}": loss.detach() for name, loss in weighted.items()}
    return Losses(torch.stack(list(weighted.values())).sum(), {**reported, **metrics})


def step_metrics(
    name: str, loss: Float[Tensor, "step sequence"], weight: Float[Tensor, "step sequence"]
) -> dict[str, Tensor]:
    """``<name>/step_<s>``: the mean at each step, over sequences that have weight there."""
    loss, weight = loss.detach(), weight.detach()
    means = (loss * weight).sum(1) / weight.sum(1).clamp(min=torch.finfo(weight.dtype).tiny)
    return {f"{name}/step_{step}": mean for step, mean in enumerate(means.unbind(0))}


def disagreement(values: Float[Tensor, "head ..."]) -> Float[Tensor, ""]:
    """Mean standard deviation over heads; 0 for a single head, for which it would be NaN."""
    squares, heads = _squared_deviations(values, 0), values.shape[0]
    return (squares.sum(0) / max(heads - 1, 1)).sqrt().mean()


def mean_variance(values: Float[Tensor, "*shape"], axis: int) -> Float[Tensor, ""]:
    """Mean of the (biased) variance over an axis."""
    return _squared_deviations(values, axis).mean()


def _squared_deviations(values: Tensor, axis: int) -> Tensor:
    # On CPUs, var and std are up to a hundred times slower than this over axes before the last.
    values = values.detach()
    return (values - values.mean(axis, keepdim=True)).square()
