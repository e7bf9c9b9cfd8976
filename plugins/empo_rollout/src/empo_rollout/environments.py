"""The parameters of the environments that algorithm ``rollout`` acts in."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from empo_core import Config
from empo_core.config import AlgorithmRef, ConfigPath, HumanPriorRef

Factory = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
"""``package.module:callable``, imported where environments are made."""
OTHER = "other"
"""What trackers of episodes call a reason without a name."""


def _told_apart(names: list[str]) -> list[str]:
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("each name must be another one, and none may be empty")
    if OTHER in names:
        raise ValueError(f"{OTHER!r} is what trackers call reasons without a name")
    return names


Reasons = Annotated[list[str], AfterValidator(_told_apart)]
"""Names of the reasons for which episodes end."""


class GymnasiumParams(Config):
    """Copies of a Gymnasium environment."""

    kind: Literal["gymnasium"]
    id: str | None = Field(
        None, description="As gymnasium.make takes it, e.g. CartPole-v1 or package.module:Name-v0."
    )
    factory: Factory | None = Field(
        None, description="Instead of id: 'package.module:callable' that returns an environment."
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments of the environment."
    )
    reasons: Reasons | None = Field(
        None,
        description="Names of the values of info['termination_reason'], from 0; null: 'terminated' "
        "and 'truncated', after the flags.",
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> GymnasiumParams:
        if (self.id is None) == (self.factory is None):
            raise ValueError("give either 'id' or 'factory': which environment is meant?")
        return self


class GymnasiumVectorParams(Config):
    """One Gymnasium vector environment, which steps all its copies itself."""

    kind: Literal["gymnasium-vector"]
    id: str | None = Field(None, description="As gymnasium.make_vec takes it, e.g. CartPole-v1.")
    factory: Factory | None = Field(
        None,
        description="Instead of id: 'package.module:callable' that takes num_envs and returns a "
        "gymnasium.vector.VectorEnv.",
    )
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Its keyword arguments.")
    autoreset: Literal["next_step", "same_step", "disabled", "inside_step"] | None = Field(
        None,
        description="How it restarts episodes; null reads its metadata. 'inside_step': the action "
        "chosen from the last observation is applied to the new episode.",
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> GymnasiumVectorParams:
        if (self.id is None) == (self.factory is None):
            raise ValueError("give either 'id' or 'factory': which environment is meant?")
        return self


class PettingZooParams(Config):
    """Copies of a PettingZoo ParallelEnv, whose agents may die before the others."""

    kind: Literal["pettingzoo"]
    factory: Factory = Field(
        description="'package.module:callable' that returns a ParallelEnv, e.g. "
        "'pettingzoo.butterfly.knights_archers_zombies_v10:parallel_env'."
    )
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Its keyword arguments.")
    reasons: Reasons | None = Field(None, description="As for a Gymnasium environment.")


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
    """Each human pursues a goal, drawn when its episode begins; reaching it pays 1 and ends it."""

    kind: Literal["goal"]


class WorldParams(Config):
    """Copies of the run's world, all of which step in one call."""

    kind: Literal["world"]
    learners: Literal["robots", "humans"] = Field(
        "robots", description="Who learns; the others act as given."
    )
    reward: PowerReward | GoalReward = Field(
        discriminator="kind",
        description="'power' pays robots for the humans' power, 'goal' pays humans for theirs.",
    )
    human_prior: HumanPriorRef | None = Field(
        None, description="How humans act while robots learn; null: evenly at random."
    )
    goal_resample_prob: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Chance per step that a human pursues another goal while robots learn; 1 is "
        "what equation (4) averages over.",
    )

    @model_validator(mode="after")
    def _pays_who_learns(self) -> WorldParams:
        if (self.learners == "robots") != (self.reward.kind == "power"):
            raise ValueError(
                "robots learn from reward 'power', humans from reward 'goal'; "
                f"{self.learners} cannot learn from {self.reward.kind!r}"
            )
        if self.learners == "humans" and self.human_prior is not None:
            raise ValueError("human_prior says how humans act while robots learn; drop it")
        if self.human_prior is None and self.goal_resample_prob:
            raise ValueError("goal_resample_prob is about humans with a human_prior: give one")
        return self


Environment: TypeAlias = Annotated[
    GymnasiumParams | GymnasiumVectorParams | PettingZooParams | WorldParams,
    Field(discriminator="kind"),
]
