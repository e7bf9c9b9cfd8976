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
    consistency_coef: float = Field(
        0.0, ge=0, description="Factor of a loss that draws encodings towards predictions."
    )
    average_rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Rate of a running average of the encoder, whose latents dynamics should "
        "predict; null: those of the encoder itself.",
    )


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
    coef: float = Field(0.1, gt=0, description="Factor of the reward loss.")
    episodic: bool = Field(
        False,
        description="Whether a head learns from the beginning where episodes terminate; false: "
        "from the first one on that does.",
    )
    termination_coef: float = Field(1.0, gt=0, description="Factor of the termination loss.")


class ValueParams(Config):
    """Value heads, of states or of actions in them."""

    critic: Literal["v", "q"] = Field(
        "v",
        description="'v' values states and learns from imagined steps; 'q' values actions and "
        "learns from those that were taken.",
    )
    heads: int = Field(5, ge=1, le=MOST_HEADS, description="Value models.")
    dropout: float = Field(0.01, ge=0, lt=1, description="Share of the first layer left out.")
    target_rate: float = Field(
        0.01, gt=0, le=1, description="Rate at which target networks follow."
    )
    coef: float = Field(0.1, gt=0, description="Factor of the value loss.")
    bootstrap: Literal["local", "min", "pair"] = Field(
        "local",
        description="Which heads a head learns from: itself, the least of all, or the least of "
        "two drawn at random.",
    )
    dynamics: Heads = Field(
        "mean", description="Reduction of targets of candidates over dynamics and reward heads."
    )
    average: Literal["target", "cross_entropy"] = Field(
        "target",
        description="Quantity averaged over candidates: targets, which learns their mean, or "
        "losses, which learns the mean of symlogs. Critic 'q' has no candidates.",
    )
    gradient: Literal["rollout", "encoder"] = Field(
        "rollout",
        description="Latents at which values are predicted, and what learns from them besides the "
        "value heads: dynamics and encoder (rolled-out latents), or the encoder (encodings).",
    )


class AuxiliaryParams(Config):
    """Values under further discounts, which only shape the latents."""

    discounts: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        min_length=1, max_length=6, description="The discounts, each of a value head of its own."
    )
    coef: float = Field(0.01, gt=0, description="Factor of their loss.")


class PolicyParams(Config):
    """The policy network; what it learns from is ``policy_loss``."""

    min_log_std: float = Field(-3.0, description="Least log standard deviation.")
    max_log_std: float = Field(1.0, description="Greatest log standard deviation.")
    average_rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Rate of a running average of the policy that proposes candidates, which a "
        "trust region needs in order to bind; null: the policy itself proposes.",
    )

    @model_validator(mode="after")
    def _ascends(self) -> PolicyParams:
        if self.min_log_std >= self.max_log_std:
            raise ValueError("min_log_std must be less than max_log_std")
        return self
