"""Losses of values: of states by imagined steps, or of actions by the steps that were taken."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_latent.learning.loss_terms import disagreement, step_metrics, weighted_loss
from empo_latent.learning.targets import bootstrapped
from empo_latent.networks.ensemble import drawn_heads
from empo_latent.networks.model import LatentModel
from empo_latent.params.networks import AuxiliaryParams, ValueParams
from empo_latent.types import SequenceBatch, WeightedLoss


def prediction_latents(
    encodings: Float[Tensor, "moment sequence latent"],
    predicted: Float[Tensor, "moment dynamics sequence latent"],
    gradient: Literal["rollout", "encoder", "none"],
) -> Float[Tensor, "moment sequence latent"]:
    """Latents at which values are predicted; they decide what learns besides the value heads.

    Args:
        encodings: What was seen, encoded, with gradients.
        predicted: What dynamics made of the first of them, with gradients.
        gradient: ``rollout``: dynamics and encoder, by the latents of dynamics head 0;
            ``encoder``: the encoder, by its encodings; ``none``: nothing, by the same encodings
            as constants.
    """
    if gradient == "rollout":
        return predicted[:, 0]
    return encodings if gradient == "encoder" else encodings.detach()


def value_loss(
    model: LatentModel,
    latents: Float[Tensor, "moment sequence latent"],
    target: Float[Tensor, "value moment sequence target 1"],
    weight: Float[Tensor, "moment sequence"],
    params: ValueParams,
    *,
    task: Int[Tensor, " sequence"] | None = None,
    weights: Float[Tensor, "start target"] | None = None,
) -> WeightedLoss:
    """Cross-entropy between the values of starts and their targets.

    ``mean_{s, b} weight[s, b] * mean_e CE(V_e(z[s, b]), bins(y[e, s, b]))``. It reaches the value
    heads, and whatever the latents of ``prediction_latents`` come from. Each start is judged once,
    however many candidates there were; it counts by ``step_weights`` times ``alive``. Losses of its
    targets (``value_target``) are averaged, by ``weights`` that add up to 1 or all alike.
    """
    logits = model.logits("value", latents, task=task, training=True)
    loss = _cross_entropy(model, logits, target, weights)
    return _fit("value", model, logits, target, loss, weight, params.coef)


def q_target(
    model: LatentModel,
    sequences: SequenceBatch,
    encodings: Float[Tensor, "moment sequence latent"],
    discount: Float[Tensor, "*per_task"],
    params: ValueParams,
) -> Float[Tensor, "value time sequence 1"]:
    """Targets of recorded actions: the reward, then the value by the target networks.

    ``y_e = r + discount * (1 - d) * Q_e(z', a')`` with ``a'`` drawn by the policy at the encoding
    ``z'`` of what came next, a constant, as in TD-MPC2 (Hansen et al., 2024); ``bootstrap`` says
    which heads ``e`` learns from. There is one discount, or ``[sequence, 1]`` where tasks have
    their own.
    """
    with torch.no_grad():
        after = encodings[1:].detach()
        policy = model.policy(after, task=sequences.task)
        action = policy.bounded(policy.sample())
        # Of a pair drawn at random no other heads are computed.
        pair = params.bootstrap == "pair" and params.heads > 2
        heads = drawn_heads(params.heads, 2, after.device) if pair else None
        value = model.value(after, action, task=sequences.task, network="target", heads=heads)
        value = bootstrapped(value, params)
        return sequences.reward + discount * (1 - sequences.terminated) * value


def q_value_loss(
    model: LatentModel,
    sequences: SequenceBatch,
    latents: Float[Tensor, "moment sequence latent"],
    target: Float[Tensor, "value time sequence 1"],
    weight: Float[Tensor, "time sequence"],
    params: ValueParams,
) -> WeightedLoss:
    """Cross-entropy between the values of recorded actions and their targets of ``q_target``.

    Predictions are made at the latents before each action; the last, after which nothing was done,
    is not used. The loss is as ``value_loss``'s, a step's weight that of the moment before it.
    """
    logits = model.logits(
        "value", latents[:-1], sequences.action, task=sequences.task, training=True
    )
    loss = _cross_entropy(model, logits, target.unsqueeze(-2), None)
    return _fit("value", model, logits, target.unsqueeze(-2), loss, weight, params.coef)


def auxiliary_loss(
    model: LatentModel,
    latents: Float[Tensor, "moment sequence latent"],
    target: Float[Tensor, "gamma moment sequence 1 1"],
    weight: Float[Tensor, "moment sequence"],
    params: AuxiliaryParams,
    *,
    task: Int[Tensor, " sequence"] | None = None,
) -> WeightedLoss:
    """Cross-entropy between auxiliary values and their targets, mean over discounts.

    The latents are encodings, which these values are there to shape; the rest is as in
    ``value_loss``.
    """
    logits = model.logits("auxiliary", latents, task=task, training=True)
    loss = _cross_entropy(model, logits, target, None)
    return _fit("auxiliary", model, logits, target, loss, weight, params.coef)


def _cross_entropy(
    model: LatentModel,
    logits: Float[Tensor, "head step sequence bin"],
    target: Float[Tensor, "head step sequence target 1"],
    weights: Float[Tensor, "start target"] | None,
) -> Float[Tensor, "step sequence"]:
    """Mean over heads, and mean by ``weights`` over targets."""
    loss = model.two_hot.cross_entropy(logits.unsqueeze(-2), target.detach()).mean(0)
    if weights is None:
        return loss.mean(-1)
    return (loss * weights.detach().view(loss.shape)).sum(-1)


def _fit(
    name: str,
    model: LatentModel,
    logits: Float[Tensor, "head step sequence bin"],
    target: Float[Tensor, "head step sequence target 1"],
    loss: Float[Tensor, "step sequence"],
    weight: Float[Tensor, "step sequence"],
    coefficient: float,
) -> WeightedLoss:
    predicted = model.two_hot.decode(logits.detach())
    aim = target.detach().mean(-2)
    counts = (weight > 0).to(weight).unsqueeze(-1).expand_as(predicted)
    error = ((predicted - aim).abs() * counts).sum() / counts.sum().clamp(min=1)
    metrics = {
        **step_metrics(name, loss, weight),
        f"{name}/mean": predicted.mean(),
        f"{name}/error": error,
        f"{name}/target_mean": aim.mean(),
        f"{name}/prediction_disagreement": disagreement(predicted),
    }
    return weighted_loss(name, coefficient, (weight * loss).mean(), metrics)
