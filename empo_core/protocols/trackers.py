"""Trackers, which record a run's metrics and progress.

Values are not checked here while tests run: numbers of any sort end up among metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from empo_core.protocols.episodes import EpisodeMetric
from empo_core.trees import JsonData
from empo_core.types import Histogram

RunStatus = Literal["finished", "failed", "interrupted"]


class Tracker:
    """Base class of trackers, which watch a run and change nothing about it.

    Every hook does nothing here; a tracker overrides those that it needs. A hook that raises
    ends the run, or switches the tracker off where the config says ``on_tracker_error: warn``;
    ``finish`` never ends a run: what it raises is a warning.
    """

    @property
    def episode_metric(self) -> EpisodeMetric | None:
        """The metric over episodes that this component brings; most bring none."""
        return None

    def start(self, directory: Path, config: Mapping[str, JsonData]) -> None:
        """Begin a run; files go into ``directory``, ``config`` is the resolved config."""

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Record numbers at a step; keys are slash-separated, e.g. ``loss/total``."""

    def progress(self, task: str, done: float, total: float) -> None:
        """Record the progress of a named task, in any unit; ``done == total`` finishes the task."""

    def status(self, task: str, text: str) -> None:
        """Show one short line, e.g. a task's speed, in place of the line before."""

    def truncate(self, step: int) -> None:
        """Drop records of later steps than this, in this run directory.

        A run that is resumed goes on from a checkpoint, and logs some steps a second time.
        """

    def finish(self, status: RunStatus) -> None:
        """End the run, and flush pending records."""
