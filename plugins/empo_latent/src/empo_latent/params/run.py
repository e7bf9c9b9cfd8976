"""Parameters of a run around the agent: experience, hardware, reports."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from empo_core import Config
from empo_learning.params import Compute, ScoredReporting

Actor = Literal["planner", "policy"]
"""The choice of actions: by the planner, or by the policy alone."""


class CollectionParams(Config):
    """Collection of experience; a step is one decision, whatever the action repeat."""

    env_threads: int = Field(
        1,
        ge=1,
        description="Threads that step environments; helps where a step leaves Python's lock.",
    )
    seed_steps: int | None = Field(
        None,
        ge=1,
        description="Steps with random actions before learning; null: five episodes of every "
        "task, at least 1000.",
    )
    seed_updates: int | None = Field(
        None, ge=0, description="Updates made at once after them; null: one per step of them."
    )
    acting: Actor = Field(
        "planner", description="Actor in training: the planner, or the policy alone."
    )


class ComputeParams(Compute):
    """Parameters of the computation: device, threads, compilation."""

    compile: bool = Field(False, description="Compile updates and plans; needs a C++ compiler.")


class ReportingParams(ScoredReporting):
    """Parameters of logs, checkpoints and evaluations; intervals are in steps, 0: never."""

    log_interval: int = Field(200, ge=1, description="Steps between two lines of metrics.")
    keep_replay: bool = Field(
        True, description="Put what is remembered into checkpoints, to go on exactly so."
    )
    evaluation_interval: int = Field(10_000, ge=0, description="Steps between evaluations.")
    evaluate: list[Actor] = Field(
        default_factory=lambda: list[Actor](("planner", "policy")),
        min_length=1,
        description="Actors in evaluations.",
    )
    videos: int = Field(1, ge=0, description="Episodes of the last evaluation that are filmed.")

    @model_validator(mode="after")
    def _names_once(self) -> ReportingParams:
        if len(set(self.evaluate)) < len(self.evaluate):
            raise ValueError("evaluate: name each actor once")
        return self
