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


class LoopParams(Config):
    """The reference has nothing to choose."""


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer two aggregators."""
    yield Component(
        kind="aggregator",
        name="scatter-add",
        params=ScatterAddParams,
        target="empo_scatter_add.aggregator:ScatterAdd",
        api=1,
        summary="Sum or mean per segment in one pass; any device and float dtype.",
    )
    yield Component(
        kind="aggregator",
        name="loop",
        params=LoopParams,
        target="empo_scatter_add.loop:Loop",
        api=1,
        summary="The same in a plain Python loop: slow, for checking the fast one.",
    )
