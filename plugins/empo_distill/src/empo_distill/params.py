"""The parameters of policy loss ``distill``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from empo_core import Config
from empo_learning.entropy_params import EntropyParams


class DistillParams(Config):
    """Divergence from the expert, and an entropy bonus beside it."""

    direction: Literal["policy_from_expert", "expert_from_policy"] = Field(
        "policy_from_expert",
        description="KL(policy || expert), which punishes actions that the expert would not take, "
        "or KL(expert || policy), which punishes leaving out some that it would.",
    )
    min_expert_std: float = Field(
        0.05,
        gt=0,
        description="An expert that is surer than this is taken to have this standard deviation.",
    )
    normaliser: Literal["running_scale", "none"] = Field(
        "running_scale",
        description="Divisor of divergences: their spread, followed slowly and at "
        "least 1, or nothing.",
    )
    scale_rate: float = Field(0.01, gt=0, le=1, description="Rate of the running spread.")
    entropy: EntropyParams = EntropyParams()

    @model_validator(mode="after")
    def _has_an_effect(self) -> DistillParams:
        # Not whether it was given at all: a run's own config gives every default.
        if self.normaliser == "none" and self.scale_rate != 0.01:
            raise ValueError(
                "scale_rate belongs to normaliser 'running_scale': set that, or drop it"
            )
        return self
