"""The losses of the world model, added up as an update adds them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from empo_core.protocols import PolicyLoss
from empo_core.types import CandidateBatch, LossNeeds
from empo_latent.learning.latent_rollout import latent_rollout
from empo_latent.learning.loss_terms import counted_steps, total_loss
from empo_latent.learning.world_losses import (
    consistency_loss,
    encoder_consistency_loss,
    latent_metrics,
    reward_loss,
    termination_loss,
)
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import SequenceBatch, WeightedLoss


class NoLoss(PolicyLoss):
    """A policy loss that only says how many candidates it wants."""

    takes = CandidateBatch
    needs = LossNeeds(candidates=2)

    def forward(self, *args: Any) -> Any:
        raise NotImplementedError


def world_losses(
    model: LatentModel,
    sequences: SequenceBatch,
    encodings: Tensor,
    targets: Tensor,
    params: LatentParams,
    rho: Tensor,
) -> tuple[WeightedLoss, Tensor]:
    """The sum of all losses that the params ask for, and the predicted latents."""
    predicted = latent_rollout(model, encodings[0], sequences, training=True)
    mask, encoder, reward = counted_steps(sequences), params.encoder, params.reward
    terms = [
        consistency_loss(predicted, targets, mask, rho, params.latents.consistency_coef),
        reward_loss(model, sequences, encodings, predicted, rho, reward),
    ]
    if encoder.consistency_coef:
        coefficient = encoder.consistency_coef
        terms.append(encoder_consistency_loss(encodings, predicted, mask, rho, coefficient))
    if reward.episodic:
        terms.append(termination_loss(model, sequences, encodings, predicted, reward))
    total = total_loss(terms)
    return WeightedLoss(
        total.total, {**total.metrics, **latent_metrics(encodings, predicted)}
    ), predicted
