"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer one policy loss."""
    yield Component(
        kind="policy_loss",
        name="distill",
        params="empo_distill.params:DistillParams",
        target="empo_distill.loss:Distill",
        api=1,
        summary="Imitate a planner's distributions of actions.",
    )
