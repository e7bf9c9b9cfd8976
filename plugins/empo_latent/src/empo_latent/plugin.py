"""The components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer the latent world-model agent."""
    yield Component(
        kind="algorithm",
        name="latent",
        params="empo_latent.params:LatentParams",
        target="empo_latent.algorithm:LatentAlgorithm",
        api=1,
        summary="A latent world model, with policies learned in imagination and a planner.",
    )
