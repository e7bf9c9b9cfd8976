"""Terms of the agent's loss: weights of steps, a coefficient each, and the metrics about them.

All losses of the agent are means, over steps and over sequences, of a weight times a loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from empo_latent.types import SequenceBatch, WeightedLoss


def step_weights(rho: float, steps: int, normalise: bool) -> Float[Tensor, " {steps}"]:
    """Temporal weights of the steps of a sequence, ``rho ** s``.

    A loss is then ``1 / S * sum_s rho ** s * loss_s``; with normalised weights, which are
    ``rho ** s * S / sum(rho ** s)``, it is ``sum_s rho ** s * loss_s / sum_s rho ** s``.

    Args:
        rho: Weight of each step relative to the one before.
        steps: How many there are: T for losses about transitions, T + 1 for those about starts.
        normalise: Whether the weights have mean 1.
    """
    weights = torch.tensor([rho**step for step in range(steps)], dtype=torch.float64)
    if normalise:
        weights = weights / weights.mean()
    return weights.to(torch.float32)


def alive(sequences: SequenceBatch) -> Float[Tensor, "moment sequence"]:
    """1 at moments that happened and before which no step ended the episode, else 0.

    An episode that ended is worth nothing, whatever its last observation looks like, and there
    is nothing to decide in it. An episode that was cut off goes on, but what is padding after its
    last observation never happened.
    """
    going_on = torch.cumprod(1 - sequences.terminated.squeeze(-1), 0)
    if sequences.valid is not None:
        going_on = going_on * sequences.valid.squeeze(-1)
    return torch.cat([torch.ones_like(going_on[:1]), going_on])


def counted_steps(sequences: SequenceBatch) -> Float[Tensor, "time sequence"]:
    """1 for steps that happened, up to the one that ended the episode, else 0."""
    before = alive(sequences)[:-1]
    return before if sequences.valid is None else before * sequences.valid.squeeze(-1)


def with_ends(
    target: Float[Tensor, "head moment sequence target 1"],
    sequences: SequenceBatch,
    rho: Float[Tensor, " moment"],
) -> tuple[Float[Tensor, "head moment sequence target 1"], Float[Tensor, "moment sequence"]]:
    """Targets of values, 0 from the end of an episode on, and weights of moments.

    Weights are ``rho`` (``step_weights``) up to the moment at which the episode ends, that one
    included, and 0 after it, and at padding.
    """
    going_on = alive(sequences)
    until_end = torch.cat([going_on[:1], counted_steps(sequences)])
    return target * going_on[..., None, None], rho.unsqueeze(-1) * until_end


def weighted_loss(
    name: str,
    coefficient: float,
    loss: Float[Tensor, ""],
    metrics: Mapping[str, Tensor] | None = None,
) -> WeightedLoss:
    """``coefficient * loss``, with ``loss/<name>``, ``weighted/<name>`` and further metrics."""
    weighted = coefficient * loss
    reported = {f"loss/{name}": loss.detach(), f"weighted/{name}": weighted.detach()}
    return WeightedLoss(weighted, {**reported, **(metrics or {})})


def total_loss(terms: Iterable[WeightedLoss]) -> WeightedLoss:
    """The sum of terms, with the metrics of all of them."""
    terms = list(terms)
    metrics = {name: number for term in terms for name, number in term.metrics.items()}
    return WeightedLoss(torch.stack([term.total for term in terms]).sum(), metrics)


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
