"""The parameters of policy loss ``svg``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from empo_core import Config
from empo_learning.entropy_params import EntropyParams


class SvgParams(Config):
    """Which value of sampled actions is followed uphill, and what entropy is worth beside it."""

    samples: int = Field(1, ge=1, le=10**6, description="Actions that are sampled at each state.")
    reduction: Literal["mean", "min", "max"] = Field(
        "mean", description="Reduction over the critic's heads."
    )
    disagreement: float = Field(
        0.0,
        description="Factor of the heads' standard deviation, which is added to the value: a "
        "negative one avoids what they do not know, a positive one seeks it.",
    )
    normaliser: Literal["running_scale", "none"] = Field(
        "running_scale",
        description="Divisor of values: their spread, followed slowly and at least 1, or nothing.",
    )
    scale_rate: float = Field(0.01, gt=0, le=1, description="Rate of the running spread.")
    entropy: EntropyParams = EntropyParams()

    @model_validator(mode="after")
    def _has_an_effect(self) -> SvgParams:
        # Not whether it was given at all: a run's own config gives every default.
        if self.normaliser == "none" and self.scale_rate != 0.01:
            raise ValueError(
                "scale_rate belongs to normaliser 'running_scale': set that, or drop it"
            )
        return self
