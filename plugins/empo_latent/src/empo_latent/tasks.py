"""The parameters of the environments that algorithm ``latent`` learns in."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from empo_core import Config

Factory = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
"""``package.module:callable``, imported where environments are made."""

PICTURE_SIZE = 64
"""Height and width of the pictures that most have learned from."""
SMALLEST_PICTURE = 39
"""Least side of a picture that leaves anything for the encoder's last convolution."""


class TaskParams(Config):
    """What every task may say."""

    action_repeat: int = Field(
        1, ge=1, description="How often each action is repeated; rewards are added up."
    )
    frame_stack: int = Field(1, ge=1, description="How many newest observations are seen at once.")
    episode_length: int | None = Field(
        None, ge=1, description="Cut episodes off after so many decisions; null: as they come."
    )
    picture_size: int = Field(
        PICTURE_SIZE,
        ge=SMALLEST_PICTURE,
        description="Height and width that pictures are resized to.",
    )


class GymnasiumTask(TaskParams):
    """A Gymnasium environment whose actions are numbers."""

    kind: Literal["gymnasium"]
    id: str | None = Field(
        None, description="As gymnasium.make takes it, e.g. Pendulum-v1 or package.module:Name-v0."
    )
    factory: Factory | None = Field(
        None, description="Instead of id: 'package.module:callable' that returns an environment."
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments of the environment."
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> GymnasiumTask:
        if (self.id is None) == (self.factory is None):
            raise ValueError("give either 'id' or 'factory': which environment is meant?")
        return self


class DmcTask(TaskParams):
    """A task of the DeepMind Control Suite; needs the extra ``empo-latent[dmc]``."""

    kind: Literal["dmc"]
    domain: str = Field(description="E.g. cartpole.")
    task: str = Field(description="E.g. swingup.")
    action_repeat: int = Field(
        2, ge=1, description="How often each action is repeated; rewards are added up."
    )
    pixels: bool = Field(False, description="See pictures instead of numbers.")

    @model_validator(mode="after")
    def _has_an_effect(self) -> DmcTask:
        if not self.pixels and self.picture_size != PICTURE_SIZE:
            raise ValueError("picture_size belongs to pixels: set that to true, or drop it")
        return self


Task: TypeAlias = Annotated[GymnasiumTask | DmcTask, Field(discriminator="kind")]
