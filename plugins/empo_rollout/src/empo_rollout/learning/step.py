"""A step of the optimiser on one minibatch of proximal policy optimisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from empo_learning.distributed import Group
from empo_rollout.buffer import Batch
from empo_rollout.learning.checks import require_finite_step
from empo_rollout.learning.forward import ForwardPass
from empo_rollout.learning.losses import KL, PolicyLosses
from empo_rollout.learning.values import value_loss
from empo_rollout.params import RolloutParams


class BeyondLimit(NamedTuple):
    """The divergence for which a step was not taken."""

    kl: float


@dataclass(frozen=True, slots=True)
class StepContext:
    """The parts that a step of the optimiser works with.

    Attributes:
        forward: Evaluates the policy at recorded steps.
        losses: Of the policy.
        weights: Of the policy; their ``grad`` is reserved for the step.
        optimiser: Moves the weights.
        group: The processes that learn together.
        params: Coefficients and clips.
    """

    forward: ForwardPass
    losses: PolicyLosses
    weights: list[nn.Parameter]
    optimiser: torch.optim.Optimizer
    group: Group
    params: RolloutParams


def ppo_step(
    context: StepContext,
    name: str,
    parts: Sequence[Batch],
    total_weight: float,
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
        parts: What it consists of, each for one backward pass; their gradients add up to that
            of the whole.
        total_weight: Sum of the weights of all its steps, in all processes.
        lr: Learning rate.
        progress: Share of the run that is done.
        kl_limit: Greatest divergence, on this minibatch, between the policy that acted and the
            policy now, at which a step is still taken; None: any.

    Returns:
        Losses, metrics of the policy losses and the norm of the gradient, over all processes;
        or the divergence that is beyond its limit, and then nothing was changed.
    """
    update, optimiser = context.params.update, context.optimiser
    for weight in context.weights:  # Zeros, not None: processes add up the same tensors.
        weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad.zero_()
    metrics: dict[str, float] = {}
    for batch in parts:
        share = float(batch.weight.sum()) / total_weight
        output = context.forward(batch)
        policy_loss, numbers = context.losses(output.distribution, batch, progress)
        value_error = value_loss(
            output.value,
            batch.value.flatten(),
            batch.returns.flatten(),
            batch.weight.flatten(),
            update.value_clip,
        )
        loss = policy_loss + update.value_coef * value_error
        if share:  # Not 0 times the gradient, which need not exist.
            (share * loss).backward()  # type: ignore[no-untyped-call]
        terms = torch.stack((policy_loss, value_error, loss)).tolist()
        numbers |= zip(("loss/policy", "loss/value", "loss/total"), terms, strict=True)
        for key, number in numbers.items():
            metrics[key] = metrics.get(key, 0.0) + (share * number if share else 0.0)
    metrics = context.group.totals(metrics)
    if kl_limit is not None and metrics[f"policy/{KL}"] > kl_limit:
        return BeyondLimit(metrics[f"policy/{KL}"])
    context.group.add_up(weight.grad for weight in context.weights if weight.grad is not None)
    longest = context.params.optimiser.max_grad_norm
    norm = nn.utils.clip_grad_norm_(context.weights, torch.inf if longest is None else longest)
    metrics["optim/grad_norm"] = float(norm)
    require_finite_step(metrics, name, context.forward.policy)
    for group in optimiser.param_groups:
        group["lr"] = lr
    optimiser.step()
    return metrics
