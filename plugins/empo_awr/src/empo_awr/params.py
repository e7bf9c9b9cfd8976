"""The parameters of policy loss ``awr``."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from empo_core import Config
from empo_learning.entropy_params import EntropyParams

Normaliser = Literal["state_std", "state_range", "running_scale", "none"]


class FixedTemperature(Config):
    """A temperature that never changes."""

    rule: Literal["fixed"] = "fixed"
    value: float = Field(
        0.5, gt=0, description="The temperature; with normaliser 'running_scale' 0.1 fits better."
    )


class TargetEss(Config):
    """The temperature at which so many candidates effectively count, in each batch anew."""

    rule: Literal["ess"] = "ess"
    share: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="Mean effective sample size of the weights, as a share of the candidates.",
    )


class KlBound(Config):
    """The temperature at which weights are so far from even ones (MPO), in each batch anew."""

    rule: Literal["kl"] = "kl"
    bound: float = Field(
        0.1, gt=0, description="Mean divergence of the weights from even ones, in nats."
    )


Temperature: TypeAlias = Annotated[
    FixedTemperature | TargetEss | KlBound, Field(discriminator="rule")
]


class TrustRegionParams(Config):
    """Trust region around the policy that proposed the candidates (MPO).

    Divergences are per number of an action, and means over starts.
    """

    mean: float = Field(2.5e-3, gt=0, description="Bound of the divergence by moved means.")
    std: float = Field(1e-6, gt=0, description="Bound of that by changed standard deviations.")
    multiplier: float = Field(
        1.0,
        gt=0,
        le=1e30,
        description="Initial multiplier of the penalty per nat beyond the bound.",
    )
    rate: float = Field(
        0.01, gt=0, le=1, description="Learning rate of the logarithms of the multipliers."
    )


class AwrEntropyParams(EntropyParams):
    """Entropy bonus; larger than where gradients go through a critic."""

    coef: float = Field(1e-3, ge=0, description="Factor of the entropy, at first.")


class AwrParams(Config):
    """Which candidates are imitated, how strongly, and what else counts."""

    reduction: Literal["mean", "min", "max"] = Field(
        "mean", description="Reduction over value heads; 'min' is pessimistic."
    )
    disagreement: float = Field(
        0.0,
        description="Factor of the heads' standard deviation, which is added: below 0 pessimistic, "
        "above 0 optimistic.",
    )
    normaliser: Normaliser = Field(
        "state_std",
        description="Divisor of values: standard deviation or range of a start's own "
        "candidates, a running spread over all, or nothing.",
    )
    scale_rate: float = Field(
        0.01, gt=0, le=1, description="Rate of the running spread ('running_scale')."
    )
    temperature: Temperature = Field(
        default=FixedTemperature(), description="Temperature of the softmax over candidates."
    )
    max_weight: float | None = Field(
        None,
        gt=1,
        description="Greatest weight of a candidate in the loss, in multiples of an even share; "
        "what is cut off is lost. null: no limit.",
    )
    trust_region: TrustRegionParams | None = Field(
        None,
        description="Keeps the policy near the one that proposed; binds only where that lags "
        "behind. null: there is none.",
    )
    candidates: int = Field(
        16, ge=2, le=10**6, description="Candidates per start, where the learner sets no number."
    )
    entropy: AwrEntropyParams = Field(default=AwrEntropyParams(), description="Entropy bonus.")

    @model_validator(mode="after")
    def _have_an_effect(self) -> AwrParams:
        running = self.normaliser == "running_scale"
        # Not whether it was given at all: a run's own config gives every default.
        if self.scale_rate != 0.01 and not running:
            raise ValueError(
                "scale_rate belongs to normaliser 'running_scale': set that, or drop it"
            )
        if running and self.temperature.rule != "fixed":
            raise ValueError(
                f"temperature rule '{self.temperature.rule}' finds its own scale, so normaliser "
                "'running_scale' would change nothing; choose 'none', or one of each start's own"
            )
        return self
