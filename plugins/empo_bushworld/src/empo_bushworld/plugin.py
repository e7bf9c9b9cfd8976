"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from empo_core import Component, Config, ConfigFile, hookimpl


class BushworldParams(Config):
    """Which world to load."""

    library: ClassVar = Path(__file__).parent / "worlds"

    file: ConfigFile = Field(description="YAML or JSON file of the world.")
    max_steps: int | None = Field(
        None, ge=1, description="Steps after which an episode ends; null keeps the file's."
    )
    B: int | None = Field(
        None, ge=1, description="Density at which a bush is impenetrable; null keeps the file's."
    )


class ShortestPathParams(Config):
    """Humans that walk towards their goals with a given rationality."""

    beta: Annotated[float, Field(ge=0)] | Literal["inf"] = Field(
        "inf",
        description="Inverse temperature of the distance left after the move; "
        "inf chooses evenly among the best moves.",
    )


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer a world model and a human prior for it."""
    yield Component(
        kind="world_model",
        name="bushworld",
        params=BushworldParams,
        target="empo_bushworld.world:load_world",
        api=1,
        summary="A grid of bushes: robots tread them down, humans get through the thin ones.",
    )
    yield Component(
        kind="human_prior",
        name="shortest-path",
        params=ShortestPathParams,
        target="empo_bushworld.prior:ShortestPath",
        api=1,
        summary="Humans of a bushworld go straight to their goal and ignore the bushes.",
    )
