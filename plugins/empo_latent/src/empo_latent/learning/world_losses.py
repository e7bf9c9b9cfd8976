"""Losses of the world model: consistency, reward, termination (Hansen et al. 2024, sec. 3).

With ``z_t`` the encodings, ``p_0 = z_0`` and ``p_{t+1} = f_h(p_t, a_t)`` for each dynamics head
``h``, all are means over the steps ``t`` of sequences of experience.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from empo_latent.learning.loss_terms import (
    counted_steps,
    mean_variance,
    step_metrics,
    weighted_loss,
)
from empo_latent.networks.model import LatentModel
from empo_latent.params.networks import RewardParams
from empo_latent.types import SequenceBatch, WeightedLoss


def consistency_loss(
    predicted: Float[Tensor, "moment dynamics sequence latent"],
    targets: Float[Tensor, "moment sequence latent"],
    mask: Float[Tensor, "time sequence"],
    rho: Float[Tensor, " time"],
    coefficient: float,
) -> WeightedLoss:
    """Latent consistency, mean of ``rho_t (p_{t+1} - sg(y_{t+1}))^2`` (Hansen et al. 2024, eq. 3).

    It reaches the dynamics, and the encoder by the first latent ``z_0`` alone. The targets ``y``
    are encodings of what was observed; what comes after the end of an episode is
    masked, see ``counted_steps``.
    """
    error = _distance(predicted[1:], targets[1:, None].detach())
    metrics = step_metrics("consistency", error, mask)
    return weighted_loss("consistency", coefficient, (rho[:, None] * mask * error).mean(), metrics)


def encoder_consistency_loss(
    encodings: Float[Tensor, "moment sequence latent"],
    predicted: Float[Tensor, "moment dynamics sequence latent"],
    mask: Float[Tensor, "time sequence"],
    rho: Float[Tensor, " time"],
    coefficient: float,
) -> WeightedLoss:
    """The mean of ``rho_t (z_{t+1} - sg(p_{t+1}))^2``, which reaches the encoder alone."""
    error = _distance(encodings[1:, None], predicted[1:].detach())
    return weighted_loss("encoder_consistency", coefficient, (rho[:, None] * mask * error).mean())


def reward_loss(
    model: LatentModel,
    sequences: SequenceBatch,
    encodings: Float[Tensor, "moment sequence latent"],
    predicted: Float[Tensor, "moment dynamics sequence latent"],
    rho: Float[Tensor, " time"],
    params: RewardParams,
) -> WeightedLoss:
    """The mean of ``rho_t CE(R(p_t, a_t), bins(r_t))`` (Hansen et al. 2024, eq. 3).

    It reaches the reward heads, the encoder and the dynamics; with ``predict_from: encoding``
    rewards are read from ``z_t`` instead of ``p_t``, and the dynamics are left alone. Steps after
    the end of an episode, and padding, count for nothing.
    """
    mask = counted_steps(sequences)
    error = _reward_error(model, sequences, encodings, predicted, params)
    metrics = step_metrics("reward", error, mask)
    return weighted_loss("reward", params.coef, (rho[:, None] * mask * error).mean(), metrics)


def termination_loss(
    model: LatentModel,
    sequences: SequenceBatch,
    encodings: Float[Tensor, "moment sequence latent"],
    predicted: Float[Tensor, "moment dynamics sequence latent"],
    params: RewardParams,
) -> WeightedLoss:
    """Binary cross-entropy of ``d_t`` at ``p_{t+1}``, mean over steps, without ``rho``.

    It reaches the termination head, the encoder and the dynamics; with ``predict_from: encoding``
    it is read from ``z_{t+1}`` instead, and the dynamics are left alone.
    """
    latents = predicted[1:] if params.predict_from == "rollout" else encodings[1:, None]
    logits = model.logits("termination", latents, task=sequences.task)[0]
    ended = sequences.terminated[:, None].expand_as(logits)
    error = F.binary_cross_entropy_with_logits(logits, ended, reduction="none").mean((1, 3))
    return weighted_loss(
        "termination", params.termination_coef, (counted_steps(sequences) * error).mean()
    )


def latent_metrics(
    encodings: Float[Tensor, "moment sequence latent"],
    predicted: Float[Tensor, "moment dynamics sequence latent"],
) -> dict[str, Tensor]:
    """Variance of encodings over sequences, 0 once they have collapsed, and over heads."""
    return {
        "latent/variance": mean_variance(encodings, 1),
        "latent/disagreement": mean_variance(predicted[1:], 1),
    }


def _distance(
    x: Float[Tensor, "time _one sequence latent"], y: Float[Tensor, "time _two sequence latent"]
) -> Float[Tensor, "time sequence"]:
    return (x - y).square().mean((1, 3))


def _reward_error(
    model: LatentModel,
    sequences: SequenceBatch,
    encodings: Float[Tensor, "moment sequence latent"],
    predicted: Float[Tensor, "moment dynamics sequence latent"],
    params: RewardParams,
) -> Float[Tensor, "time sequence"]:
    """Cross-entropy of each reward, mean over heads."""
    reward, action = sequences.reward, sequences.action
    if params.predict_from == "encoding":
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
