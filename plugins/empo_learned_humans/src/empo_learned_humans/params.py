"""Parameters of humans who learned in a run of ``rollout``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from empo_core import Config
from empo_core.config import ConfigPath, HumanPriorRef


class GoalPpoParams(Config):
    """Humans as a run of ``rollout`` with ``learners: humans`` left them."""

    file: ConfigPath = Field(description="The run's directory, or its results/model.safetensors.")
    exploration: float = Field(
        0.0, ge=0, le=1, description="Share of the time in which humans act evenly at random."
    )


class SelfPlayParams(Config):
    """Humans who pursue some of their goals as agents of a run of ``rollout`` learned to act."""

    file: ConfigPath = Field(description="The run's directory, or its results/model.safetensors.")
    goals: list[str] = Field(min_length=1, description="Names of the goals that they pursue so.")
    others: HumanPriorRef = Field(
        description="Human prior for all other goals, and for goals that are achieved."
    )
    achieved: Literal["others", "learned"] = Field(
        "others",
        description="How humans act where one of these goals is achieved: as others says, or as "
        "they learned, where they were paid for staying.",
    )
    exploration: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the time in which humans with these goals act evenly at random.",
    )
