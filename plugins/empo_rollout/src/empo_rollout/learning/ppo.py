"""Proximal policy optimisation (Schulman et al. 2017): its loss, and an optimiser step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.protocols import Critic, Policy
from empo_core.trees import StateDict
from empo_core.types import ImaginedBatch, LossNeeds, LossOutput
from empo_learning.distributed import Group
from empo_learning.policy_losses import EntropyCoefficient
from empo_rollout.experience.flat_rollout import Microbatch
from empo_rollout.learning.checks import require_finite_step
from empo_rollout.learning.forward import ForwardPass
from empo_rollout.learning.losses import KL, PolicyLosses
from empo_rollout.learning.optimisers import L2Init, Optimiser
from empo_rollout.learning.values import value_loss
from empo_rollout.params import RolloutParams
from empo_rollout.ppo_params import PpoParams

LOG_RATIO_LIMIT = 10.0
"""Ratios beyond exp of this overflow sooner than they tell anything."""


@dataclass(frozen=True, slots=True)
class StepContext:
    """The parts that a step of the optimiser works with.

    Attributes:
        forward: Evaluates the policy at recorded steps.
        losses: Of the policy.
        optimiser: Moves the policy's weights.
        pull: Draws weights towards their initial values; None: nothing does.
        group: The processes that learn together.
        params: Coefficients and clips.
    """

    forward: ForwardPass
    losses: PolicyLosses
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
) -> dict[str, float] | None:
    """One step of the optimiser on one minibatch.

    Minimises, with ``r = pi(a|o) / pi_old(a|o)`` and means over the steps that have weight::

        loss        = policy loss + value_coef * value loss                            (eq. 9)
        policy loss = -mean(min(r A, clip(r, 1 - clip, 1 + clip) A)) - coef * mean(H)  (eq. 7)
        value loss  = mean((V - R)^2) / 2, clipped as ``value_loss`` says

    The policy loss is that of ``Ppo``, below, or the sum of whatever losses the config names.

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
        None if the divergence is beyond its limit, and then nothing was changed.
    """
    update, gradient = context.params.update, context.optimiser.zeros()
    metrics: dict[str, float] = {}
    statistics: list[Mapping[str, Tensor]] = []
    for batch in microbatches:
        new = context.forward(batch)
        policy_loss, found, statistics = context.losses(new, batch)
        error = value_loss(new.value, batch.value, batch.returns, batch.weight, update.value_clip)
        loss = policy_loss + update.value_coef * error
        if batch.share:  # Not 0 times the gradient, which need not exist.
            gradient.add_(context.optimiser.gradient(loss), alpha=batch.share)
        numbers = torch.stack((policy_loss, error, loss)).tolist()
        found |= zip(("loss/policy", "loss/value", "loss/total"), numbers, strict=True)
        for key, value in found.items():
            metrics[key] = metrics.get(key, 0.0) + (batch.share * value if batch.share else 0.0)
    metrics = context.group.totals(metrics)
    if kl_limit is not None and metrics[f"policy/{KL}"] > kl_limit:
        return None
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
    context.losses.adapt(statistics, progress)
    return metrics


class Ppo:
    """Policy loss ``ppo``: the clipped surrogate objective, and a bonus for entropy.

    With the ratio ``r`` of the probabilities of a candidate action under the policy and under the
    one that proposed it, its advantage ``A`` (mean over the heads of ``batch.target``) and
    entropy ``H``::

        loss = -mean(min(r A, clip(r, 1 - clip, 1 + clip) A)) - coef * mean(H)

    Means are weighted by ``batch.weight``.
    """

    def __init__(self, params: PpoParams) -> None:
        self._clip = params.clip
        self._entropy = EntropyCoefficient(params.entropy)
        tuned = params.entropy.target_entropy is not None
        self._needs = LossNeeds(whole_minibatch=tuned)

    @property
    def needs(self) -> LossNeeds:
        """Whole minibatches where the entropy coefficient is tuned."""
        return self._needs

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss of ``policy`` on ``batch``; ``critic`` is not used.

        Metrics: ``policy_loss``, ``entropy`` and its coefficient ``entropy_coef``, and how far the
        policy has moved: ``approx_kl``, ``clip_fraction`` (share of candidates whose ratio is
        beyond the clip) and ``importance`` (mean ratio).
        """
        if len(batch.action) == 0:
            raise ValueError("ppo needs at least one candidate action per start state, got none")
        weight = batch.weight.detach()
        ignored = weight <= 0
        # What a start and a candidate count in means; 0 where nothing has weight.
        of_start = weight / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        share = of_start / len(batch.action)
        advantage = batch.target.detach().mean(-1).masked_fill(ignored, 0.0)

        distribution = policy(batch.start.detach())
        log_prob = distribution.log_prob(batch.action.detach())
        # Replaced before anything is computed: 0 * NaN would be NaN.
        log_ratio = (log_prob - batch.log_prob.detach()).masked_fill(ignored, 0.0)
        log_ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        ratio = log_ratio.exp()
        policy_loss = -clipped_surrogate(ratio, advantage * share, self._clip).sum()
        bonus = self._entropy.bonus(distribution, weight)
        paid = (bonus.paid.masked_fill(ignored, 0.0) * of_start).sum()

        with torch.no_grad():
            # Schulman's estimate of the divergence: never negative, and less noisy than the mean
            # of the log-ratios (http://joschu.net/blog/kl-approx.html).
            kl = ratio - 1 - log_ratio
            clipped = ((ratio - 1).abs() > self._clip).to(ratio.dtype)
            means = (torch.stack((kl, clipped, ratio)) * share).sum((1, 2))
            entropy = (bonus.entropy.masked_fill(ignored, 0.0) * of_start).sum()
            few = torch.stack((policy_loss, entropy, bonus.coefficient))
            # One transfer for all: each waits for the device.
            numbers = torch.cat((few, means)).tolist()
        names = (
            "policy_loss", "entropy", "entropy_coef", "approx_kl", "clip_fraction", "importance"
        )  # fmt: skip
        metrics = dict(zip(names, numbers, strict=True))
        return LossOutput(policy_loss - paid, metrics, {"entropy_coef": bonus.moved})

    def adapt(self, statistics: Mapping[str, Tensor], progress: float) -> None:
        """Move the entropy coefficient."""
        self._entropy.adapt(statistics["entropy_coef"], progress)

    def state_dict(self) -> StateDict:
        """The entropy coefficient."""
        return self._entropy.state_dict()

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._entropy.load_state_dict(state_dict)


def clipped_surrogate(
    ratio: Float[Tensor, "candidate start"],
    advantage: Float[Tensor, "candidate start"],
    clip: float,
) -> Float[Tensor, "candidate start"]:
    """``min(r A, clip(r, 1 - clip, 1 + clip) A)`` (Schulman et al. 2017, eq. 7).

    Args:
        ratio: Of the probabilities of an action under the new and the old policy.
        advantage: Of the action; a factor of at least 0 may be multiplied in.
        clip: How far the ratio may move from 1 and still count.
    """
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
