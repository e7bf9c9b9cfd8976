"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, model_validator

from empo_core import Component, Config, hookimpl


class ScatterAddParams(Config):
    """Which kernels reduce the segments."""

    method: Literal["auto", "scatter", "segment"] = Field(
        "auto",
        description=(
            "scatter: index_add and scatter_reduce, for items in any order. segment: "
            "walks over consecutive items; unsorted items are sorted first. "
            "auto: whichever was measured to be faster for these shapes on a CPU; scatter "
            "on other devices."
        ),
    )
    deterministic: bool = Field(
        False,
        description=(
            "Same bits in every run. Costs a sort on CUDA, where adding with atomics rounds "
            "in a random order; the CPU kernels are deterministic anyway."
        ),
    )

    @model_validator(mode="after")
    def _is_possible(self) -> ScatterAddParams:
        if self.deterministic and self.method == "scatter":
            raise ValueError(
                "method 'scatter' cannot be deterministic on CUDA; use method 'auto' or 'segment'"
            )
        return self


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
        summary="Sum, mean, min, max per segment in one pass; any device and float dtype.",
    )
    yield Component(
        kind="aggregator",
        name="loop",
        params=LoopParams,
        target="empo_scatter_add.loop:Loop",
        api=1,
        summary="The same in a plain Python loop: slow, for checking the fast one.",
    )
