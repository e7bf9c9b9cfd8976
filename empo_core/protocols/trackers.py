"""Trackers: what watches a run.

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
        """A run begins; files go into ``directory``, ``config`` is the resolved config."""

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Numbers at a step; keys are slash-separated, e.g. ``loss/total``."""

    def progress(self, task: str, done: float, total: float) -> None:
        """Progress of a named task, in any unit; ``done == total`` finishes it."""

    def narrate(self, task: str, text: str) -> None:
        """One short line, e.g. how fast a task is; it replaces the line before."""

    def rewind(self, step: int) -> None:
        """Drop what was logged for later steps than this, in this run directory.

        A run that is resumed goes on from a checkpoint, and logs some steps a second time.
        """

    def finish(self, status: RunStatus) -> None:
        """The run is over; write out what is held back."""
