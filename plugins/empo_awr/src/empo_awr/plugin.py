"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer one policy loss."""
    yield Component(
        kind="policy_loss",
        name="awr",
        params="empo_awr.params:AwrParams",
        target="empo_awr.loss:Awr",
        api=1,
        summary="Imitate candidate actions, the better ones more (value-weighted regression).",
    )
