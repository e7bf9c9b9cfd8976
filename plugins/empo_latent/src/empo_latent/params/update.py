"""Parameters of an update: imagined steps, batches and the optimiser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from empo_core import Config
from empo_learning.params import Optimiser


class ImaginationParams(Config):
    """Steps that are imagined, to learn values and the policy from."""

    candidates: int | None = Field(
        None, ge=1, description="Actions tried at each state; null: as many as the loss likes."
    )
    start: Literal["encoding", "rollout"] = Field(
        "encoding", description="Whether to start at encodings, or at predicted latents."
    )
    rho: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Weight of each start relative to the one before, in losses of values and "
        "policies.",
    )
    critic: Literal["target", "online"] = Field(
        "target",
        description="Value networks that say how good candidates are, for values and policies; "
        "gradients in actions are the online networks'.",
    )
    value_heads: int | None = Field(
        None,
        ge=1,
        description="Number of value heads, drawn at random for each update, that judge actions "
        "for the policy loss; null: all.",
    )


class DiscountParams(Config):
    """Discounts of tasks by the length of their episodes: ``1 - denominator / length``, bounded."""

    denominator: float = Field(
        5.0, gt=0, description="Length of an episode over the time constant of the discount."
    )
    minimum: float = Field(0.95, gt=0, lt=1, description="Smallest discount.")
    maximum: float = Field(0.995, gt=0, lt=1, description="Largest discount.")

    @model_validator(mode="after")
    def _ascends(self) -> DiscountParams:
        if self.minimum > self.maximum:
            raise ValueError(
                f"minimum ({self.minimum:g}) must not exceed maximum ({self.maximum:g})"
            )
        return self


class LearningParams(Config):
    """Sequences, temporal weights and the frequency of updates."""

    horizon: int = Field(3, ge=1, le=1000, description="Steps of a sequence, and of a plan.")
    rho: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Weight of each recorded step relative to the one before.",
    )
    updates_per_step: float = Field(
        1.0, gt=0, description="Updates per step of the environments (update-to-data ratio)."
    )


class OptimiserParams(Optimiser):
    """Parameters of the optimiser (Adam)."""

    lr: float = Field(3e-4, gt=0, description="Learning rate.")
    encoder_lr_scale: float = Field(0.3, gt=0, description="Its factor for the encoder.")
    policy_eps: float = Field(1e-5, gt=0, description="Adam's epsilon for the policies.")
    weight_decay: float = Field(0.0, ge=0, description="Decay of the weights (AdamW).")
    max_grad_norm: float | None = Field(
        20.0,
        gt=0,
        description="Longer gradients are cut to this, models and each policy apart; null: none.",
    )
