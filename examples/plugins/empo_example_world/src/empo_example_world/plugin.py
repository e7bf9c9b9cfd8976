"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from empo_core import Component, Config, hookimpl


class LiftParams(Config):
    """The house and its lift."""

    floors: int = Field(3, ge=2, le=100, description="Number of floors; each is a goal.")
    door_works: float = Field(
        0.9, gt=0, le=1, description="Probability that the human gets through the door."
    )
    max_steps: int = Field(4, ge=1, description="Steps after which an episode ends.")


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer one world model."""
    yield Component(
        kind="world_model",
        name="lift",
        params=LiftParams,
        target="empo_example_world.lift:Lift",
        api=1,
        summary="A human in a house whose lift a robot runs.",
    )
