"""Trackers, which record a run's metrics, episodes and progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.trees import JsonData, StateDict
from empo_core.types import Histogram

RunStatus = Literal["finished", "failed", "interrupted"]


class Tracker:
    """Base class of trackers, which watch a run and change nothing about it.

    Every hook does nothing here; a tracker overrides those that it needs. A hook that raises
    ends the run, or switches the tracker off where the config says ``on_tracker_error: warn``;
    ``finish`` never ends a run: what it raises is a warning.
    """

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

    def start_episodes(self, num_envs: int, reasons: Sequence[str]) -> None:
        """Begin an episode in every environment; episodes end for one of these reasons."""

    def step_episodes(
        self,
        rewards: Float[Tensor, " env"],
        dones: Bool[Tensor, " env"],
        reasons: Int[Tensor, " env"] | None = None,
        active: Bool[Tensor, " env"] | None = None,
    ) -> None:
        """Record one step of the environments, after ``start_episodes``.

        Args:
            rewards: Reward of each step.
            dones: Whether the episode ended with it.
            reasons: Why, where it ended, as positions in the reasons of ``start_episodes``;
                -1: unknown.
            active: Which environments took it; the others' rewards, dones and reasons mean
                nothing, and their episodes do not become longer. None: all.
        """

    def episode_statistics(self) -> dict[str, float | Histogram]:
        """Numbers over the episodes so far, which every tracker of the run gets in each ``log``.

        Empty before ``start_episodes``.
        """
        return {}

    def state_dict(self) -> StateDict:
        """The state of the statistics of episodes, as checkpoints store it; empty without any.

        A checkpoint may be due before ``start_episodes``.
        """
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned, after ``start_episodes``."""

    def finish(self, status: RunStatus) -> None:
        """End the run, and flush pending records."""
