"""Which segments, or which steps, a step of the optimiser is about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_rollout.params import UpdateParams
from empo_rollout.plan import VecPlan

PRIORITY_FLOOR = 1e-6
"""Added to every priority, so that each segment can be drawn."""


@dataclass(frozen=True, slots=True)
class Minibatch:
    """What one step of the optimiser is about: whole segments, or single steps.

    Attributes:
        weight: Factor of the (normalised) advantages of each of them, which makes up for how
            often it is drawn.
        segments: Positions of segments; None where single steps were chosen.
        steps: Positions of steps, ``time * segments + segment``; None where segments were.
    """

    weight: Float[Tensor, " chosen"]
    segments: Int[Tensor, " chosen"] | None = None
    steps: Int[Tensor, " chosen"] | None = None


def minibatches(
    advantage: Float[Tensor, "time segment"],
    params: UpdateParams,
    plan: VecPlan,
    *,
    beta: float,
    generator: torch.Generator,
) -> Iterator[Minibatch]:
    """The minibatches of one pass over a rollout.

    All but those of ``prioritized`` are a partition: every segment (or step) is in one of them.

    Args:
        advantage: Of every step, 0 where it teaches nothing; priorities depend on it.
        params: How to sample.
        plan: How large minibatches are.
        beta: Exponent of the importance weights of ``prioritized``, see ``annealed_beta``;
            counts as 1 where it is greater.
        generator: Decides alone, so that equal generators give equal minibatches.
    """
    horizon, segments = advantage.shape
    size, device = plan.minibatch_segments, advantage.device
    if params.sampling == "prioritized":
        yield from _prioritized(advantage, size, params.prio_alpha, beta, generator)
        return
    single_steps = params.sampling == "steps"
    count = horizon * segments if single_steps else segments
    if params.sampling == "sequential":
        order = torch.arange(count, device=device)
    else:
        order = torch.randperm(count, generator=generator, device=generator.device).to(device)
    for chosen in torch.split(order, plan.minibatch_size if single_steps else size):
        weight = torch.ones(len(chosen), device=device)
        yield Minibatch(weight, **{"steps" if single_steps else "segments": chosen})


def annealed_beta(beta0: float, progress: float) -> float:
    """From ``beta0`` to 1, which is reached at the end whatever ``prio_alpha`` is.

    Args:
        beta0: Exponent at the start, from 0 to 1.
        progress: How much of training is done, from 0 to 1; more counts as 1.
    """
    return beta0 + (1 - beta0) * min(max(progress, 0.0), 1.0)


def probabilities(
    advantage: Float[Tensor, "time segment"], alpha: float
) -> Float[Tensor, " segment"]:
    """How likely each segment is drawn first: as ``(sum_t |A_t|) ** alpha``, float64.

    A segment whose advantages are not finite is hardly ever drawn.
    """
    size = advantage.double().abs().sum(0)
    usable = size.isfinite()
    priority = torch.where(usable, size, 0.0).pow(alpha).masked_fill(~usable, 0.0)
    priority = priority + PRIORITY_FLOOR
    return priority / priority.sum()


def _prioritized(
    advantage: Tensor, size: int, alpha: float, beta: float, generator: torch.Generator
) -> Iterator[Minibatch]:
    """As many independent draws as a pass has minibatches, each without repetitions."""
    likely = probabilities(advantage, alpha).to(generator.device)
    segments = len(likely)
    weight = (segments * likely).pow(-min(beta, 1.0)).float()
    for _ in range(segments // size):
        chosen = torch.multinomial(likely, size, generator=generator)
        yield Minibatch(weight[chosen].to(advantage.device), chosen.to(advantage.device))
