"""Parameters of the explorers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from empo_core import Config

SequenceType = Literal["still", "forward", "left_forward", "right_forward", "back_forward"]


_USUAL: dict[SequenceType, float] = {
    "still": 0.05,
    "forward": 0.5,
    "left_forward": 0.18,
    "right_forward": 0.18,
    "back_forward": 0.09,
}


class CountBonusParams(Config):
    """Bonus for states that were visited rarely."""

    coefficient: float = Field(
        0.1, ge=0, description="Probabilities are multiplied by exp(coefficient * bonus)."
    )
    scale: float = Field(1.0, gt=0, description="The bonus is scale / sqrt(visits + 1).")
    ucb: bool = Field(
        False, description="Take scale * sqrt(ln(all visits) / (visits + 1)) as bonus instead."
    )
    max_states: int = Field(
        1_000_000, ge=1, description="Once so many states are counted, others stay new for ever."
    )


class RndParams(Config):
    """Bonus for states whose features cannot be predicted yet."""

    coefficient: float = Field(
        0.1, ge=0, description="Probabilities are multiplied by exp(coefficient * novelty)."
    )
    feature_dim: int = Field(64, ge=1, le=8192, description="Numbers to be predicted.")
    hidden_dim: int = Field(256, ge=1, le=8192, description="Units of each hidden layer.")
    lr: float = Field(1e-4, gt=0, description="Learning rate of the predictor.")
    weight_decay: float = Field(1e-4, ge=0, description="Decay of the predictor's weights.")
    max_grad_norm: float | None = Field(
        10.0, gt=0, description="Longer gradients are cut to this; null cuts none."
    )
    normalize: bool = Field(
        True, description="Subtract a running mean from novelty and divide by its deviation."
    )
    decay: float = Field(
        0.99, ge=0, lt=1, description="Share of that mean and deviation that a training step keeps."
    )
    seed: int = Field(0, ge=0, description="Seeds the network to be predicted.")


class ActionSequencesParams(Config):
    """Which sequences to follow, and how often."""

    prob: float = Field(
        0.1, ge=0, le=1, description="Chance per step to begin a sequence where none is under way."
    )
    expected_length: dict[SequenceType, float] | float = Field(
        2.0, description="Mean number of last steps of a sequence, for all types or for each."
    )
    weights: dict[SequenceType, float] = Field(
        default_factory=_USUAL.copy,
        description="Weight with which each type is begun, among those that can be begun.",
    )

    @field_validator("expected_length")
    @classmethod
    def _at_least_one(
        cls, lengths: dict[SequenceType, float] | float
    ) -> dict[SequenceType, float] | float:
        numbers = lengths.values() if isinstance(lengths, dict) else (lengths,)
        if any(length < 1 for length in numbers):
            raise ValueError("a sequence has at least 1 step, so its mean length is at least 1")
        return lengths

    @field_validator("weights")
    @classmethod
    def _positive_weights(cls, weights: dict[SequenceType, float]) -> dict[SequenceType, float]:
        if min(weights.values(), default=0) < 0 or sum(weights.values()) <= 0:
            raise ValueError("weights are at least 0, and one of them is more")
        return weights
