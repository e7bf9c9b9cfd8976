"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from empo_core import Component, Config, hookimpl
from empo_core.config import ConfigPath
from empo_learning.entropy_params import EntropyParams
from empo_rollout.params import RolloutParams
from empo_rollout.world_params import WorldParams


class PpoEntropyParams(EntropyParams):
    """The entropy bonus of PPO: by default of the exact entropy, whatever actions consist of."""

    coef: float = Field(0.01, ge=0, description="Factor of the entropy, at first.")
    jacobian: float = Field(
        0.0,
        ge=0,
        le=1,
        description="0: entropy of the policy, exactly; 1: from a sample, as distributions of "
        "bounded actions need it; between: a mixture.",
    )
    action_power: float = Field(
        0.0, ge=0, description="The entropy counts (numbers of an action) to this power times."
    )


class PpoParams(Config):
    """Proximal policy optimisation: the clipped surrogate objective (Schulman et al. 2017)."""

    clip: float = Field(
        0.2, gt=0, lt=1, description="How far probabilities may move, as a ratio, and still count."
    )
    entropy: PpoEntropyParams = PpoEntropyParams()


class GoalPpoParams(Config):
    """Humans as a run of ``rollout`` with ``learners: humans`` left them."""

    file: ConfigPath = Field(description="The run's directory, or its results/policy.safetensors.")
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
    yield Component(
        kind="environment",
        name="world",
        params=WorldParams,
        target="empo_rollout.empowerment.world_environment:WorldEnvironment",
        api=1,
        summary="Copies of the run's world model, in which robots or humans learn.",
    )
