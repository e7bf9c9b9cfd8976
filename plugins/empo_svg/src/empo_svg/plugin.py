"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer one policy loss."""
    yield Component(
        kind="policy_loss",
        name="svg",
        params="empo_svg.params:SvgParams",
        target="empo_svg.loss:Svg",
        api=1,
        summary="Follow the gradient of a critic through sampled actions.",
    )
