"""A step of the optimiser on one minibatch of proximal policy optimisation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from empo_learning.distributed import Group
from empo_rollout.experience.flat_rollout import Microbatch
from empo_rollout.learning.checks import require_finite_step
from empo_rollout.learning.forward import ForwardPass
from empo_rollout.learning.gradients import LossGradient
from empo_rollout.learning.losses import KL
from empo_rollout.learning.optimisers import L2Init, Optimiser
from empo_rollout.params import RolloutParams


class BeyondLimit(NamedTuple):
    """The divergence for which a step was not taken."""

    kl: float


@dataclass(frozen=True, slots=True)
class StepContext:
    """The parts that a step of the optimiser works with.

    Attributes:
        forward: Evaluates the policy at recorded steps.
        gradient: That of the loss of some of them.
        optimiser: Moves the policy's weights.
        pull: Draws weights towards their initial values; None: nothing does.
        group: The processes that learn together.
        params: Coefficients and clips.
    """

    forward: ForwardPass
    gradient: Callable[[Microbatch, float], LossGradient]
    optimiser: Optimiser
    pull: L2Init | None
    group: Group
    params: RolloutParams


def ppo_step(
    context: StepContext,
    name: str,
    microbatches: Iterable[Microbatch],
    lr: float,
    progress: float,
    kl_limit: float | None = None,
) -> dict[str, float] | BeyondLimit:
    """One step of the optimiser on one minibatch.

    Minimises, with ``r = pi(a|o) / pi_old(a|o)`` and means over the steps that have weight::

        loss        = policy loss + value_coef * value loss                            (eq. 9)
        policy loss = -mean(min(r A, clip(r, 1 - clip, 1 + clip) A)) - coef * mean(H)  (eq. 7)
        value loss  = mean((V - R)^2) / 2, clipped as ``value_loss`` says

    The policy loss is that of ``Ppo``, or the sum of whatever losses the config names.

    Args:
        context: Policy, losses and optimiser.
        name: Of the minibatch, for errors.
        microbatches: Its parts, each for one backward pass; their gradients add up to that of
            the whole.
        lr: Learning rate.
        progress: Share of the run that is done.
        kl_limit: Greatest divergence, on this minibatch, between the policy that acted and the
            policy now, at which a step is still taken; None: any.

    Returns:
        Losses, metrics of the policy losses and the norm of the gradient, over all processes;
        or the divergence that is beyond its limit, and then nothing was changed.
    """
    gradient = context.optimiser.zeros()
    metrics: dict[str, float] = {}
    for batch in microbatches:
        part, part_metrics = context.gradient(batch, progress)
        if batch.share:  # Not 0 times the gradient, which need not exist.
            gradient.add_(part, alpha=batch.share)
        for key, value in part_metrics.items():
            metrics[key] = metrics.get(key, 0.0) + (batch.share * value if batch.share else 0.0)
    metrics = context.group.totals(metrics)
    if kl_limit is not None and metrics[f"policy/{KL}"] > kl_limit:
        return BeyondLimit(metrics[f"policy/{KL}"])
    context.group.add_up([gradient])
    if context.pull is not None:
        metrics["loss/l2_init"] = context.pull.add_gradient(gradient)
        metrics["loss/total"] += metrics["loss/l2_init"]
    norm = metrics["optim/grad_norm"] = float(torch.linalg.vector_norm(gradient))
    require_finite_step(metrics, name, context.forward.policy)
    longest = context.params.optimiser.max_grad_norm
    if longest is not None and norm > longest:
        gradient *= longest / norm
    context.optimiser.step(gradient, lr)
    return metrics
