"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from empo_core import Component, Config, ConfigFile, hookimpl


class TableParams(Config):
    """Which game to load."""

    library: ClassVar = Path(__file__).parent / "worlds"

    file: ConfigFile = Field(description="YAML or JSON file of the game.")
    max_steps: int | None = Field(
        None, ge=1, description="Steps after which an episode ends; null keeps the file's horizon."
    )


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
