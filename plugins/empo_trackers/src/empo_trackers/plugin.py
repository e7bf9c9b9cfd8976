"""The components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from empo_core import Component, Config, hookimpl

REWARD_BINS = (0.0, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
LENGTH_BINS = (1.0, 10.0, 25.0, 50.0, 100.0, 150.0, 200.0, 300.0)


def _increasing(edges: list[float]) -> list[float]:
    for at, (low, high) in enumerate(itertools.pairwise(array("f", edges))):
        if not low < high:
            raise ValueError(
                f"edges of bins must increase, also as float32: edge {at + 1} is {high:.9g} and "
                f"comes after {low:.9g}"
            )
    return edges


Edges = Annotated[list[float], Field(min_length=2), AfterValidator(_increasing)]


class JsonlParams(Config):
    """The file needs no settings: its name and form are fixed so that tools can rely on them."""

    default_in: ClassVar = "config"


class TensorboardParams(Config):
    """Parameters of tracker ``tensorboard``."""

    flush_s: float = Field(
        10.0, gt=0, description="Seconds after which held-back events are written out."
    )


class ProgressParams(Config):
    """Parameters of tracker ``progress``."""

    default_in: ClassVar = "terminal"

    style: Literal["auto", "bar", "lines"] = Field(
        "auto",
        description="Moving bars, plain lines, or bars exactly where standard error is a terminal.",
    )
    interval_s: float = Field(
        5.0, gt=0, description="Seconds between two plain lines of one unfinished task."
    )


class EpisodicEmaParams(Config):
    """Parameters of tracker ``episodic-ema``."""

    alpha: float = Field(
        0.01, gt=0, le=1, description="Weight of a new number; the window is about 1 / alpha."
    )
    ema_update: Literal["batch_mean", "per_episode"] = Field(
        "batch_mean",
        description="Definition of one new number: the mean of the episodes that end with the same "
        "step, or each episode, in the order of the environments.",
    )
    bias_correction: bool = Field(
        True,
        description="Whether to make up for averages that start at 0, so that the first number is "
        "that of the first episodes.",
    )
    key_style: Literal["flat", "nested"] = Field(
        "flat",
        description="Whether shares of reasons are called episodes/termination_<reason>_prob or "
        "episodes/termination/<reason>_prob.",
    )
    track_extremes: bool = Field(
        False, description="Whether to tell the least and the greatest reward and length, too."
    )


class EpisodicHistogramParams(EpisodicEmaParams):
    """Parameters of tracker ``episodic-histogram``."""

    reward_bins: Edges = Field(
        list(REWARD_BINS), description="Edges of the bins of what an episode paid, increasing."
    )
    length_bins: Edges = Field(
        list(LENGTH_BINS), description="Edges of the bins of how long it was, increasing."
    )
    closed: Literal["left", "right"] = Field(
        "left",
        description="Whether an edge belongs to the bin above it, as numpy has it, or below.",
    )


class WandbParams(Config):
    """Parameters of tracker ``wandb``."""

    project: str = Field("empo", min_length=1, description="The project that runs belong to.")
    entity: str | None = Field(None, description="The user or team; the account's own if None.")
    name: str | None = Field(None, description="The run's name; that of its directory if None.")
    group: str | None = Field(None, description="Group that the run is shown in.")
    tags: list[str] = Field([], description="Words to find the run by.")
    mode: Literal["online", "offline"] = Field(
        "online",
        description="Whether to send everything to the server as it comes, or to keep it in the "
        "run directory, where `wandb sync` finds it.",
    )


def _tracker(
    name: str,
    params: type[Config],
    target: str,
    summary: str,
) -> Component:
    return Component(
        kind="tracker",
        name=name,
        params=params,
        target=f"empo_trackers.{target}",
        api=1,
        summary=summary,
    )


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer six trackers."""
    summary = "Every metric as one line of metrics.jsonl."
    yield _tracker("jsonl", JsonlParams, "jsonl:JsonlTracker", summary)
    summary = "Every metric as an event that TensorBoard shows."
    yield _tracker("tensorboard", TensorboardParams, "tensorboard:TensorboardTracker", summary)
    summary = "Progress bars with the time left, on standard error."
    yield _tracker("progress", ProgressParams, "progress:ProgressTracker", summary)
    summary = "Averages of what episodes pay and how long they are, and why they end."
    yield _tracker("episodic-ema", EpisodicEmaParams, "episodes:EpisodicEma", summary)
    summary = "The same, with histograms of what episodes pay and how long they are."
    target = "episodes:EpisodicHistogram"
    yield _tracker("episodic-histogram", EpisodicHistogramParams, target, summary)
    summary = "Every metric on Weights & Biases; needs the extra empo-trackers[wandb]."
    yield _tracker("wandb", WandbParams, "weights_and_biases:WandbTracker", summary)
