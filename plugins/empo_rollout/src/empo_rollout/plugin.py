"""What this distribution offers; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from empo_core import Component, Config, hookimpl
from empo_core.config import ConfigPath
from empo_rollout.params import RolloutParams


class PpoParams(Config):
    """Proximal policy optimisation: improve, but not far at a time."""

    clip: float = Field(
        0.2, gt=0, lt=1, description="How far probabilities may move, as a ratio, and still count."
    )
    entropy_coef: float = Field(0.01, ge=0, description="Reward for staying undecided.")
    normalise: Literal["batch", "none"] = Field(
        "none",
        description="Whether targets are shifted and scaled within the batch; 'none' for learners "
        "whose targets are advantages, as those of 'rollout'.",
    )


class GoalPpoParams(Config):
    """Humans as a run of ``rollout`` with ``learners: humans`` left them."""

    file: ConfigPath = Field(description="The run's directory, or its results/prior folder.")
    exploration: float = Field(
        0.0, ge=0, le=1, description="Share of the time in which humans act evenly at random."
    )


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer the training loop, its loss, and humans who learned by it."""
    yield Component(
        kind="algorithm",
        name="rollout",
        params=RolloutParams,
        target="empo_rollout.algorithm:RolloutAlgorithm",
        api=1,
        summary="Large-batch rollouts of many environments, and PPO or other losses on them.",
    )
    yield Component(
        kind="policy_loss",
        name="ppo",
        params=PpoParams,
        target="empo_rollout.learning.ppo:Ppo",
        api=1,
        summary="Clipped policy improvement with an entropy bonus.",
    )
    yield Component(
        kind="human_prior",
        name="goal-ppo",
        params=GoalPpoParams,
        target="empo_rollout.empowerment.prior:GoalPpo",
        api=1,
        summary="Humans who learned to reach each goal, from a run of 'rollout'.",
    )
