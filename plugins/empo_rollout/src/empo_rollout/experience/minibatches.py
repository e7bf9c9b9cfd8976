"""Sampling of minibatches: which segments, or single steps, each optimiser step takes."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_rollout.params import UpdateParams
from empo_rollout.plan import VecPlan

PRIORITY_FLOOR = 1e-6
"""Added to every priority, so that each segment can be drawn."""


def sampled_columns(
    advantage: Float[Tensor, "time segment"],
    params: UpdateParams,
    plan: VecPlan,
    *,
    beta: float,
    generator: torch.Generator,
) -> tuple[Int[Tensor, "minibatch column"], Float[Tensor, "minibatch column"]]:
    """Columns of all minibatches of one pass over a rollout, and their importance weights.

    A column is a segment, or with ``sampling: steps`` a single step at position
    ``time * segments + segment``. All but those of ``prioritized`` are a partition: every column
    is in one minibatch, with an importance of 1.

    Args:
        advantage: Of every step, 0 where it has no weight; priorities depend on it.
        params: How to sample.
        plan: How large minibatches are.
        beta: Exponent of the importance weights of ``prioritized``, see ``annealed_beta``;
            counts as 1 where it is greater.
        generator: The only source of randomness: equal generators give equal minibatches.

    Returns:
        Positions, and factors of the (normalised) advantages that correct for how often a column
        is drawn.
    """
    horizon, segments = advantage.shape
    if params.sampling == "prioritized":
        size = plan.minibatch_segments
        return _prioritized(advantage, size, params.prio_alpha, beta, generator)
    single_steps = params.sampling == "steps"
    count = horizon * segments if single_steps else segments
    size = plan.minibatch_size if single_steps else plan.minibatch_segments
    if params.sampling == "sequential":
        order = torch.arange(count, device=advantage.device)
    else:
        order = torch.randperm(count, generator=generator, device=generator.device)
    columns = order.to(advantage.device).view(-1, size)
    return columns, torch.ones(columns.shape, device=advantage.device)


def annealed_beta(beta0: float, progress: float) -> float:
    """Exponent of importance weights, rising from ``beta0`` to 1 over the run.

    Args:
        beta0: Exponent at the start, from 0 to 1.
        progress: Share of the run that is done, from 0 to 1; more counts as 1.
    """
    return beta0 + (1 - beta0) * min(max(progress, 0.0), 1.0)


def probabilities(
    advantage: Float[Tensor, "time segment"], alpha: float
) -> Float[Tensor, " segment"]:
    """Probability that each segment is drawn first: ∝ ``(sum_t |A_t|) ** alpha``, float64.

    A segment whose advantages are not finite is hardly ever drawn.
    """
    size = advantage.double().abs().sum(0)
    usable = size.isfinite()
    priority = torch.where(usable, size, 0.0).pow(alpha).masked_fill(~usable, 0.0)
    priority = priority + PRIORITY_FLOOR
    return priority / priority.sum()


def _prioritized(
    advantage: Float[Tensor, "time segment"],
    size: int,
    alpha: float,
    beta: float,
    generator: torch.Generator,
) -> tuple[Int[Tensor, "minibatch column"], Float[Tensor, "minibatch column"]]:
    """As many independent draws as a pass has minibatches, each without repetitions."""
    likely = probabilities(advantage, alpha).to(generator.device)
    segments = len(likely)
    weight = (segments * likely).pow(-min(beta, 1.0)).float()
    draws = [torch.multinomial(likely, size, generator=generator) for _ in range(segments // size)]
    columns = torch.stack(draws)
    return columns.to(advantage.device), weight[columns].to(advantage.device)
