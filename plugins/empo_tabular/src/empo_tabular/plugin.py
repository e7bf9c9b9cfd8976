"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from pydantic import Field, ValidationInfo, field_validator

from empo_core import Component, Config, ConfigFile, hookimpl


class TableParams(Config):
    """Which game to load."""

    library: ClassVar = Path(__file__).parent / "worlds"

    suffixes: ClassVar = (".npz", ".tra")
    """Of files that are tables whatever they hold."""

    file: ConfigFile = Field(
        description="YAML or JSON file of the game, its arrays (.npz), or its transitions in the "
        "explicit format of model checkers (.tra)."
    )
    labels: ConfigFile | None = Field(
        None,
        validate_default=True,
        description="Labels of the states in a .tra file; null: the .lab file beside it.",
    )
    durations: ConfigFile | None = Field(
        None,
        validate_default=True,
        description="Rewards that are the durations of the transitions in a .tra file; null: the "
        ".rew file beside it, if there is one.",
    )
    max_steps: int | None = Field(
        None, ge=1, description="Steps after which an episode ends; null keeps the file's horizon."
    )

    @field_validator("labels", "durations", mode="before")
    @classmethod
    def _beside_the_file(cls, path: object, info: ValidationInfo) -> object:
        file = info.data.get("file")
        if path is not None or file is None or file.suffix != ".tra":
            return path
        sibling = file.with_suffix({"labels": ".lab", "durations": ".rew"}[info.field_name or ""])
        return sibling if sibling.is_file() else None


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer one world model."""
    yield Component(
        kind="world_model",
        name="table",
        params=TableParams,
        target="empo_tabular.world:load_world",
        api=1,
        summary="An explicit game from a file: states, actions, transitions, goals.",
    )
