"""Losses of the world model: where actions lead, what they pay, whether they end the episode."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from empo_latent.learning.loss_terms import added, mean_variance, step_metrics
from empo_latent.learning.policy_batch import alive
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import Losses, SequenceBatch


def latent_rollout(
    model: LatentModel,
    start: Float[Tensor, "sequence latent"],
    sequences: SequenceBatch,
    training: bool = False,
) -> Float[Tensor, "moment dynamics sequence latent"]:
    """Latents along the actions that were taken, by each dynamics head its own.

    The first are the starts, for all heads; gradients go back to them and to the heads.
    """
    latent = model.next_latent(start, sequences.action[0], task=sequences.task, training=training)
    path = [start.expand_as(latent), latent]
    for action in sequences.action[1:].unbind(0):
        latent = model.next_latent(
            latent, action, task=sequences.task, split=True, training=training
        )
        path.append(latent)
    return torch.stack(path)


def world_losses(
    model: LatentModel,
    sequences: SequenceBatch,
    encodings: Float[Tensor, "moment sequence latent"],
    targets: Float[Tensor, "moment sequence latent"],
    params: LatentParams,
    rho: Float[Tensor, " time"],
) -> tuple[Losses, Float[Tensor, "moment dynamics sequence latent"]]:
    """What the world model gets wrong about sequences of experience.

    With ``z_t`` the encodings, ``y_t`` what should be predicted, ``p_0 = z_0`` and
    ``p_{t+1} = f_h(p_t, a_t)`` for each dynamics head ``h``, means over steps ``t`` of ``rho_t``
    times

    - consistency: ``(p_{t+1} - sg(y_{t+1}))^2``, which reaches dynamics, and the encoder by
      ``z_0`` alone;
    - encoder consistency: ``(z_{t+1} - sg(p_{t+1}))^2``, which reaches the encoder alone;
    - reward: the cross-entropy of the bins of ``r_t`` at ``p_t`` (or ``z_t``), which reaches the
      reward heads, dynamics (not so from ``z_t``) and the encoder;

    and without ``rho``

    - termination: the binary cross-entropy of ``d_t`` at ``p_{t+1}`` (or ``z_{t+1}``), which
      reaches the termination head, dynamics (not so from ``z_{t+1}``) and the encoder.

    Steps after the end of an episode count for nothing.

    Args:
        model: The world model.
        sequences: What happened.
        encodings: What was seen, encoded, with gradients.
        targets: What should be predicted; taken as constants.
        params: Coefficients and options.
        rho: How much each step counts in the mean over steps, see ``step_weights``.

    Returns:
        The losses, and ``p``, with gradients.
    """
    predicted = latent_rollout(model, encodings[0], sequences, training=True)
    mask = alive(sequences)[:-1]
    weight = rho[:, None] * mask
    consistency = _distance(predicted[1:], targets[1:, None].detach())
    reward = _reward_loss(model, sequences, encodings, predicted, params)
    parts = {
        "consistency": (params.latents.consistency_coef, (weight * consistency).mean()),
        "reward": (params.reward.coef, (weight * reward).mean()),
    }
    metrics = step_metrics("consistency", consistency, mask) | step_metrics("reward", reward, mask)
    if params.encoder.consistency_coef:
        error = _distance(encodings[1:, None], predicted[1:].detach())
        parts["encoder_consistency"] = (params.encoder.consistency_coef, (weight * error).mean())
    if params.reward.episodic:
        error = _termination_loss(model, sequences, encodings, predicted, params)
        parts["termination"] = (params.reward.termination_coef, (mask * error).mean())
    # Encodings that no longer differ between sequences have collapsed.
    metrics["latent/variance"] = mean_variance(encodings, 1)
    metrics["latent/disagreement"] = mean_variance(predicted[1:], 1)
    return added(parts, metrics), predicted


def _distance(
    x: Float[Tensor, "time _one sequence latent"], y: Float[Tensor, "time _two sequence latent"]
) -> Float[Tensor, "time sequence"]:
    return (x - y).square().mean((1, 3))


def _reward_loss(
    model: LatentModel,
    sequences: SequenceBatch,
    encodings: Float[Tensor, "moment sequence latent"],
    predicted: Float[Tensor, "moment dynamics sequence latent"],
    params: LatentParams,
) -> Float[Tensor, "time sequence"]:
    """Cross-entropy of each reward, mean over heads."""
    reward, action = sequences.reward, sequences.action
    if params.reward.predict_from == "encoding":
        logits = model.logits("reward", encodings[:-1], action, task=sequences.task, training=True)
        return model.two_hot.cross_entropy(logits, reward).mean(0)
    # All dynamics heads begin at the same latent, which is judged once.
    steps, heads, number = len(action), predicted.shape[1], predicted.shape[2]
    later = (steps - 1, heads, number)
    latents = torch.cat([predicted[0, 0], predicted[1:-1].flatten(0, 2)])
    actions = torch.cat([action[0], action[1:, None].expand(*later, -1).flatten(0, 2)])
    rewards = torch.cat([reward[0], reward[1:, None].expand(*later, -1).flatten(0, 2)])
    task = None if sequences.task is None else sequences.task.repeat(1 + (steps - 1) * heads)
    logits = model.logits("reward", latents, actions, task=task, training=True)
    loss = model.two_hot.cross_entropy(logits, rewards).mean(0)
    return torch.cat([loss[None, :number], loss[number:].view(later).mean(1)])


def _termination_loss(
    model: LatentModel,
    sequences: SequenceBatch,
    encodings: Float[Tensor, "moment sequence latent"],
    predicted: Float[Tensor, "moment dynamics sequence latent"],
    params: LatentParams,
) -> Float[Tensor, "time sequence"]:
    """Binary cross-entropy of whether each step ended the episode, mean over heads."""
    from_rollout = params.reward.predict_from == "rollout"
    latents = predicted[1:] if from_rollout else encodings[1:, None]
    logits = model.logits("termination", latents, task=sequences.task)[0]
    ended = sequences.terminated[:, None].expand_as(logits)
    return F.binary_cross_entropy_with_logits(logits, ended, reduction="none").mean((1, 3))
