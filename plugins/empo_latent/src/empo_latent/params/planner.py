"""Parameters of the planner."""

from __future__ import annotations

from pydantic import Field, model_validator

from empo_core import Config
from empo_latent.params.networks import Heads


class PlannerParams(Config):
    """Model predictive path integral control, with proposals of the policy."""

    iterations: int | None = Field(
        None, ge=1, description="Rounds; null: 6, and 8 from 20 numbers per action on."
    )
    samples: int = Field(512, ge=2, le=10**6, description="Plans that are tried each round.")
    elites: int = Field(
        64, ge=1, le=10**6, description="Number of best plans that form the next round."
    )
    policy_plans: int = Field(
        24, ge=0, le=10**6, description="Number of samples that the policy proposes."
    )
    min_std: float = Field(0.05, ge=0, description="Least standard deviation.")
    max_std: float = Field(2.0, gt=0, description="Greatest, and that of the first round.")
    temperature: float = Field(
        0.5,
        gt=0,
        description="Factor of scores in elites' weights: higher favours the best.",
    )
    exploration: float = Field(
        1.0, ge=0, description="Factor of the noise on the chosen action, in training."
    )
    heads: Heads = Field("mean", description="Reduction over heads.")
    value_heads: int | None = Field(
        None,
        ge=1,
        description="Number of value heads that judge plans, drawn anew for each; null: all.",
    )
    disagreement: float = Field(
        0.0, description="Factor of the heads' disagreement on the value, in training."
    )

    @model_validator(mode="after")
    def _fit_together(self) -> PlannerParams:
        if self.elites > self.samples:
            raise ValueError(f"elites ({self.elites}) must not exceed samples ({self.samples})")
        if self.policy_plans > self.samples:
            raise ValueError(
                f"policy_plans ({self.policy_plans}) must not exceed samples ({self.samples})"
            )
        if self.min_std > self.max_std:
            raise ValueError("min_std must not exceed max_std")
        return self
