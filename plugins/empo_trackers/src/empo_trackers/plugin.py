"""What this distribution offers; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from empo_core import Component, Config, hookimpl


class JsonlParams(Config):
    """The file needs no settings: its name and form are fixed so that tools can rely on them."""


class TensorboardParams(Config):
    """How TensorBoard events are written."""

    flush_s: float = Field(
        10.0, gt=0, description="Seconds after which held-back events are written out."
    )


class ProgressParams(Config):
    """How progress is shown."""

    style: Literal["auto", "bar", "lines"] = Field(
        "auto",
        description="Moving bars, plain lines, or bars exactly where standard error is a terminal.",
    )
    interval_s: float = Field(
        5.0, gt=0, description="Seconds between two plain lines of one unfinished task."
    )


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer three trackers."""
    yield Component(
        kind="tracker",
        name="jsonl",
        params=JsonlParams,
        target="empo_trackers.jsonl:JsonlTracker",
        api=1,
        summary="Every metric as one line of metrics.jsonl.",
    )
    yield Component(
        kind="tracker",
        name="tensorboard",
        params=TensorboardParams,
        target="empo_trackers.tensorboard:TensorboardTracker",
        api=1,
        summary="Every metric as an event that TensorBoard shows.",
    )
    yield Component(
        kind="tracker",
        name="progress",
        params=ProgressParams,
        target="empo_trackers.progress:ProgressTracker",
        api=1,
        summary="Progress bars with the time left, on standard error.",
    )
