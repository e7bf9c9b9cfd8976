"""Params of environment ``world``: copies of the run's world model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from empo_core import Config
from empo_core.config import AlgorithmRef, ConfigPath, HumanPriorRef


class PowerReward(Config):
    """Robots are paid the intrinsic reward U_r of the states they bring about."""

    kind: Literal["power"]
    algorithm: AlgorithmRef | None = Field(
        None, description="Solve the world for U_r first, e.g. with 'exact'."
    )
    run: ConfigPath | None = Field(
        None, description="Instead: a finished run on the same world that knows U_r."
    )
    scale: float = Field(1.0, gt=0, description="Factor of the reward.")

    @model_validator(mode="after")
    def _has_one_source(self) -> PowerReward:
        if (self.algorithm is None) == (self.run is None):
            raise ValueError("give either 'algorithm' or 'run': where does U_r come from?")
        return self


class GoalReward(Config):
    """Each human pursues a goal, drawn when its episode begins; reaching it pays 1.

    A human that learns is paid for its own goal, which ends its episode. Robots that learn are
    paid for every human's, without seeing the goals, until all humans have reached theirs.
    """

    kind: Literal["goal"]


class WorldParams(Config):
    """Copies of the run's world, all of which step in one call."""

    learners: Literal["robots", "humans"] = Field(
        "robots", description="Agents that learn; the others act as given."
    )
    reward: PowerReward | GoalReward = Field(
        discriminator="kind",
        description="power: robots are paid for the humans' power. goal: learners are paid when "
        "humans reach the goals they pursue.",
    )
    human_prior: HumanPriorRef | None = Field(
        None, description="Human prior while robots learn; null: uniformly at random."
    )
    goal_resample_prob: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Chance per step that a human pursues another goal while robots learn; 1 is "
        "what equation (4) averages over.",
    )
    steps_per_episode: int | None = Field(
        None, ge=1, description="Cut episodes here; null lets them end by themselves."
    )

    @model_validator(mode="after")
    def _pays_who_learns(self) -> WorldParams:
        if self.learners == "humans" and self.reward.kind == "power":
            raise ValueError("humans learn from reward 'goal', not from 'power'")
        if self.learners == "humans" and self.human_prior is not None:
            raise ValueError("human_prior says how humans act while robots learn; drop it")
        if self.human_prior is None and self.goal_resample_prob:
            raise ValueError("goal_resample_prob is about humans with a human_prior: give one")
        if self.reward.kind == "goal" and self.goal_resample_prob:
            raise ValueError("goal_resample_prob is for reward 'power': goals that pay stay")
        return self
