"""The parameters of algorithm ``latent``, in groups of what belongs together."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from empo_core import Config
from empo_core.config import EnvironmentRef, PolicyLossRef, merged
from empo_latent.params.networks import (
    AuxiliaryParams,
    BinsParams,
    EncoderParams,
    LatentSpaceParams,
    PolicyParams,
    RewardParams,
    ValueParams,
)
from empo_latent.params.planner import PlannerParams
from empo_latent.params.run import (
    CollectionParams,
    ComputeParams,
    ReportingParams,
)
from empo_latent.params.update import (
    DiscountParams,
    ImaginationParams,
    LearningParams,
    OptimiserParams,
)
from empo_latent.presets import PRESETS, SIZES, Preset, Size
from empo_learning.params import Replay

SMALLEST_PICTURE = 39
"""Least side of a picture that leaves anything for the encoder's last convolution."""


class LatentParams(Config):
    """A latent world model, learned from experience, and policies learned in it."""

    preset: Preset = Field(
        "awr",
        description="Agent, i.e. what all parameters are where none are given: with the policy "
        "loss awr or svg, TD-MPC2 as published, or seed, the first design.",
    )
    size: Size = Field(
        "1M", description="Sizes where none are given; the defaults that are listed are of 5M."
    )
    total_steps: int = Field(ge=1, description="Steps of all environments together.")
    num_envs: int = Field(
        1, ge=1, description="Environments that act at once, shared by the tasks."
    )
    gamma: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Discount per step; null: by the length of episodes, see discount.",
    )
    discount: DiscountParams = DiscountParams()
    tasks: list[EnvironmentRef] = Field(
        default_factory=list,
        description="Environments to learn in, e.g. [gymnasium/Pendulum-v1, "
        "dmc/cartpole-swingup]; several share all networks. Empty where a function of the Python "
        "API makes the only one.",
    )
    policy_loss: PolicyLossRef = Field(
        default_factory=lambda: PolicyLossRef.model_validate("awr"),
        description="Loss of the policy, e.g. awr or svg; where none is given, the preset's.",
    )
    optimistic_loss: PolicyLossRef | None = Field(
        None,
        description="Loss of a second, optimistic policy, whose proposals the planner takes in "
        "training; null: there is none.",
    )
    collection: CollectionParams = CollectionParams()
    replay: Replay = Replay()
    encoder: EncoderParams = EncoderParams()
    latents: LatentSpaceParams = LatentSpaceParams()
    bins: BinsParams = BinsParams()
    reward: RewardParams = RewardParams()
    value: ValueParams = ValueParams()
    auxiliary: AuxiliaryParams | None = Field(
        None,
        description="Values under further discounts, which only shape the latents; null: there "
        "are none.",
    )
    policy: PolicyParams = PolicyParams()
    imagination: ImaginationParams = ImaginationParams()
    learning: LearningParams = LearningParams()
    optimiser: OptimiserParams = OptimiserParams()
    planner: PlannerParams = PlannerParams()
    compute: ComputeParams = ComputeParams()
    reporting: ReportingParams = ReportingParams()

    @property
    def task_label(self) -> str | None:
        """The first task and how many there are besides, for the name of the run."""
        if not self.tasks:
            return None
        parts = [getattr(self.tasks[0].params, key, None) for key in ("id", "domain", "task")]
        label = "-".join(str(part) for part in parts if part is not None) or self.tasks[0].name
        more = len(self.tasks) - 1
        return f"{label}_and_{more}_more" if more else label

    @field_validator("tasks")
    @classmethod
    def _pictures_can_be_encoded(cls, tasks: list[EnvironmentRef]) -> list[EnvironmentRef]:
        for task in tasks:
            size = getattr(task.params, "picture_size", None)
            if size is not None and size < SMALLEST_PICTURE:
                raise ValueError(
                    f"picture_size {size}: should be greater than or equal to {SMALLEST_PICTURE}, "
                    "which leaves something for the encoder's last convolution"
                )
        return tasks

    @model_validator(mode="after")
    def _has_an_effect(self) -> LatentParams:
        if self.gamma is not None and self.discount != DiscountParams():
            raise ValueError("discount says what gamma is where that is null: drop one of them")
        return self

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        preset, size = data.get("preset", "awr"), data.get("size", "1M")
        if not isinstance(preset, str) or not isinstance(size, str):
            return data  # It is refused later.
        if preset in SIZES:
            raise ValueError(f"preset: {preset} is a size: write size: {preset}")
        if preset not in PRESETS or size not in SIZES:
            return data
        # Parameters of the preset's loss are none of another's.
        agent = {
            key: value
            for key, value in PRESETS[preset].items()
            if key != "policy_loss" or key not in data
        }
        return merged(merged(SIZES[size], agent), data)
