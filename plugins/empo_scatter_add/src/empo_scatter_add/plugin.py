"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from empo_core import Component, Config, hookimpl


class ScatterAddParams(Config):
    """How sums are taken."""

    deterministic: bool = Field(
        False,
        description="Same bits in every run on CUDA, where adding with atomics rounds in a random "
        "order; sums on the CPU are deterministic anyway.",
    )


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer one aggregator."""
    yield Component(
        kind="aggregator",
        name="scatter-add",
        params=ScatterAddParams,
        target="empo_scatter_add.aggregator:ScatterAdd",
        api=1,
        summary="Sum or mean per segment in one pass; any device and float dtype.",
    )
