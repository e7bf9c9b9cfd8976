"""Parameters of an update: imagined steps, batches and the optimiser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

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
    critic: Literal["usual", "target", "online"] = Field(
        "usual",
        description="Which value networks judge actions for the policy loss; 'usual': the target "
        "networks judge candidates, the online ones give gradients.",
    )


class LearningParams(Config):
    """Sequences, temporal weights and the frequency of updates."""

    horizon: int = Field(3, ge=1, description="Steps of a sequence, and of a plan.")
    rho: float = Field(
        0.5, gt=0, le=1, description="Weight of each step relative to the one before."
    )
    normalise_rho: bool = Field(
        False, description="Divide by the sum of these weights instead of the number of steps."
    )
    updates_per_step: float = Field(
        1.0, gt=0, description="Updates per step of the environments (update-to-data ratio)."
    )
    value_every: int = Field(1, ge=1, description="Updates per update of the values.")
    policy_every: int = Field(1, ge=1, description="Updates per update of the policy.")


class OptimiserParams(Optimiser):
    """Parameters of the optimiser (Adam)."""

    lr: float = Field(3e-4, gt=0, description="Learning rate.")
    encoder_lr_scale: float = Field(0.3, gt=0, description="Its factor for the encoder.")
    policy_lr_scale: float = Field(1.0, gt=0, description="Its factor for the policies.")
    policy_eps: float = Field(1e-5, gt=0, description="Adam's epsilon for the policies.")
    weight_decay: float = Field(0.0, ge=0, description="Decay of the weights (AdamW).")
    max_grad_norm: float | None = Field(
        20.0,
        gt=0,
        description="Longer gradients are cut to this, models and each policy apart; null: none.",
    )
