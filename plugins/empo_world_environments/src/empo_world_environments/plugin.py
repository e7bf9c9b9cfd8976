"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer copies of the run's world as an environment."""
    yield Component(
        kind="environment",
        name="world",
        params="empo_world_environments.params:WorldParams",
        target="empo_world_environments.environment:WorldEnvironment",
        api=1,
        summary="Copies of the run's world model, in which robots or humans learn.",
    )
