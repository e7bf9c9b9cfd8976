"""Parameters of the networks: what they are made of and how each one is taught."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from empo_core import Config

Heads = Literal["mean", "min", "max"]
"""The reduction of estimates of several heads to one."""
MOST_UNITS, MOST_HEADS = 10**9, 10**6
"""Units of a layer and networks of an ensemble; RAM refuses most of it, with its bytes."""


class EncoderParams(Config):
    """From observations to latents."""

    layers: int = Field(2, ge=1, le=1000, description="Layers, the one to the latent included.")
    width: int = Field(256, ge=1, le=MOST_UNITS, description="Units of each hidden layer.")
    channels: int = Field(
        32, ge=1, le=MOST_UNITS, description="Filters of each convolution, for pictures."
    )
    shift: int = Field(
        3, ge=0, le=1000, description="Pixels by which pictures are shifted at random in training."
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of the first layer left out.")
    target: Literal["online", "average"] = Field(
        "online",
        description="Encoder of the states that dynamics should predict: the encoder itself, "
        "or a running average of it.",
    )
    target_rate: float = Field(0.05, gt=0, le=1, description="Rate of that running average.")
    consistency_coef: float = Field(
        0.0, ge=0, description="Factor of a loss that draws encodings towards predictions."
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> EncoderParams:
        if self.target == "online" and self.target_rate != 0.05:
            raise ValueError("target_rate belongs to target 'average': set that, or drop it")
        return self


class LatentSpaceParams(Config):
    """Latents and the dynamics models."""

    size: int = Field(512, ge=2, le=MOST_UNITS, description="Numbers of a latent.")
    group: int = Field(
        8, ge=2, le=MOST_UNITS, description="Numbers that share a softmax; divides the size."
    )
    width: int = Field(
        512, ge=1, le=MOST_UNITS, description="Units of each hidden layer of all heads."
    )
    layers: int = Field(2, ge=1, le=1000, description="Hidden layers of all heads.")
    heads: int = Field(1, ge=1, le=MOST_HEADS, description="Dynamics models.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of the first layer left out.")
    layer_norm: bool = Field(True, description="Normalise what SimNorm gets.")
    consistency_coef: float = Field(20.0, gt=0, description="Factor of the prediction loss.")
    task_size: int = Field(
        96, ge=1, le=MOST_UNITS, description="Numbers that stand for a task, of several."
    )

    @model_validator(mode="after")
    def _groups_fit(self) -> LatentSpaceParams:
        if self.size % self.group:
            raise ValueError(
                f"latents of {self.size} numbers cannot be divided into groups of {self.group}: "
                "choose a size that is a multiple of the group"
            )
        return self


class BinsParams(Config):
    """Bins in symlog space, over which rewards and values are distributions."""

    number: int = Field(101, ge=2, le=MOST_UNITS, description="Bins.")
    low: float = Field(-10.0, description="Least symlog.")
    high: float = Field(10.0, description="Greatest symlog.")

    @model_validator(mode="after")
    def _ascends(self) -> BinsParams:
        if self.low >= self.high:
            raise ValueError(f"low must be less than high, and {self.low:g} is not")
        return self


class RewardParams(Config):
    """Reward heads and the termination head."""

    heads: int = Field(1, ge=1, le=MOST_HEADS, description="Reward models.")
    width_divisor: int = Field(1, ge=1, description="By how much they are narrower than others.")
    coef: float = Field(0.1, gt=0, description="Factor of the reward loss.")
    episodic: bool | None = Field(
        None,
        description="Whether a head learns where episodes terminate: null: from the first episode "
        "on that does; true: from the beginning; false: as null, but that episode is a warning.",
    )
    termination_coef: float = Field(1.0, gt=0, description="Factor of the termination loss.")
    predict_from: Literal["rollout", "encoding"] = Field(
        "rollout", description="Whether they read predicted latents, or encodings."
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> RewardParams:
        if self.episodic is False and self.termination_coef != 1.0:
            raise ValueError("termination_coef belongs to episodic: drop one of them")
        return self


class ValueParams(Config):
    """Value heads, of states or of actions in them."""

    critic: Literal["v", "q"] = Field(
        "v",
        description="'v' values states and learns from imagined steps; 'q' values actions and "
        "learns from those that were taken.",
    )
    heads: int = Field(5, ge=1, le=MOST_HEADS, description="Value models.")
    width_divisor: int = Field(1, ge=1, description="By how much they are narrower than others.")
    dropout: float = Field(0.01, ge=0, lt=1, description="Share of the first layer left out.")
    target_rate: float = Field(
        0.01, gt=0, le=1, description="Rate at which target networks follow."
    )
    coef: float = Field(0.1, gt=0, description="Factor of the value loss.")
    bootstrap: Literal["local", "mean", "min", "pair"] = Field(
        "local",
        description="Which heads a head learns from: itself, the mean or least of all, or the "
        "least of two drawn at random.",
    )
    dynamics: Heads | Literal["single"] = Field(
        "mean",
        description="Reduction of targets over dynamics and reward heads; single: the first.",
    )
    average: Literal["target", "cross_entropy"] = Field(
        "target",
        description="Quantity averaged over candidates: targets, which learns their mean, or "
        "losses, which learns the mean of symlogs.",
    )
    weighting: Literal["even", "policy"] = Field(
        "even",
        description="Whether all candidates count alike in targets, or as the policy loss weighs "
        "them.",
    )
    gradient: Literal["rollout", "encoder", "none"] = Field(
        "rollout",
        description="Parameters that learn from values besides the value heads: dynamics and "
        "encoder (predictions at rolled-out latents), the encoder (at encodings), or nothing.",
    )


class AuxiliaryParams(Config):
    """Values under further discounts, which only shape the latents."""

    discounts: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        default_factory=list, max_length=6, description="The discounts; empty: no such values."
    )
    networks: Literal["separate", "joint"] = Field(
        "separate", description="A network for each, or one with an output for each."
    )
    width_factor: int = Field(
        1, ge=1, le=MOST_UNITS, description="Width of a joint network, relative to a separate one."
    )
    coef: float = Field(0.01, gt=0, description="Factor of their loss.")
    dynamics: Literal["mean", "min"] = Field(
        "mean", description="Reduction of targets over dynamics and reward heads."
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> AuxiliaryParams:
        # Not those that were given at all: a run's own config gives every default.
        set_keys = [
            name
            for name, field in type(self).model_fields.items()
            if name != "discounts" and getattr(self, name) != field.default
        ]
        if not self.discounts and set_keys:
            raise ValueError(
                f"{', '.join(sorted(set_keys))}: there are no auxiliary values without discounts; "
                "name some, e.g. [0.9, 0.95], or drop this"
            )
        if self.networks == "separate" and self.width_factor != 1:
            raise ValueError("width_factor belongs to networks 'joint': set that, or drop it")
        return self


class PolicyParams(Config):
    """The policy network; what it learns from is ``policy_loss``."""

    min_log_std: float = Field(-3.0, description="Least log standard deviation.")
    max_log_std: float = Field(1.0, description="Greatest log standard deviation.")
    bound: Literal["tanh", "clip"] = Field(
        "tanh",
        description="Bounding of actions to [-1, 1]: tanh of normal numbers, or normal numbers "
        "around a tanh, cut off.",
    )
    proposal: Literal["itself", "average"] = Field(
        "itself",
        description="Proposal of candidates: the policy, or a running average of it, which a "
        "trust region needs in order to bind.",
    )
    proposal_rate: float = Field(0.05, gt=0, le=1, description="Rate of that running average.")

    @model_validator(mode="after")
    def _fits(self) -> PolicyParams:
        if self.min_log_std >= self.max_log_std:
            raise ValueError("min_log_std must be less than max_log_std")
        if self.proposal == "itself" and self.proposal_rate != 0.05:
            raise ValueError("proposal_rate belongs to proposal 'average': set that, or drop it")
        return self
