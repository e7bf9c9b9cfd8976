"""Callbacks, which learners call while they learn, and the run as callbacks see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from empo_core.trees import StateDict
from empo_core.types import Histogram


@dataclass(slots=True, kw_only=True)
class Training:
    """A run that learns, as its callbacks see it and steer it.

    What a callback asks for is done as soon as the current unit of work is over, so that
    checkpoints stay exact.

    Attributes:
        directory: The run directory; files of callbacks go there.
        total_steps: How many steps there will be.
        evaluation_interval: Units of ``reporting`` between evaluations; 0: there is one at the end,
            or none.
        steps: Steps learned from so far.
        scores: The scores of all evaluations so far; higher is better.
        lr_scale: Factor of all learning rates, which callbacks may change; kept in checkpoints.
        stop_reason: Why the run is to end early; None: it goes on.
        metrics: What is to be logged.
        is_save_due: Whether a checkpoint is to be written.
    """

    directory: Path
    total_steps: int
    evaluation_interval: int = 0
    steps: int = 0
    scores: Sequence[float] = ()
    lr_scale: float = 1.0
    stop_reason: str | None = None
    metrics: dict[str, float | Histogram] = field(default_factory=dict)
    is_save_due: bool = False

    def stop(self, reason: str) -> None:
        """End the run as if all its steps were done; the first reason counts."""
        self.stop_reason = self.stop_reason or reason

    def log(self, metrics: Mapping[str, float | Histogram]) -> None:
        """Give numbers to the trackers of the run; keys are slash-separated."""
        self.metrics.update(metrics)

    def save(self) -> None:
        """Write a checkpoint; beside the newest ones, the one with the best score is kept."""
        self.is_save_due = True


class Callback:
    """Base class of callbacks, which may stop a run, log, save and change its learning rate.

    Every hook does nothing here; a callback overrides those that it needs. A hook that raises
    ends the run, which can be resumed. Of several processes that learn together the first alone
    calls hooks.

    Attributes:
        needs_evaluations: Whether a run that is not evaluated while it learns is refused, by
            ``empo check`` too.
    """

    needs_evaluations: bool = False

    def start(self, training: Training) -> None:
        """Begin, before anything is learned; also where a run is resumed.

        Raises:
            ConfigError: if the run lacks what the callback needs.
        """

    def after_rollout(self, training: Training) -> None:
        """Follow the collection of experience.

        That is what the learner collects at a time: a whole rollout, a step of all environments,
        or what actors bring for one training step.
        """

    def after_update(self, training: Training) -> None:
        """Follow an update: all epochs over a rollout, or else one batch."""

    def after_evaluation(
        self, training: Training, score: float | None, metrics: Mapping[str, float | Histogram]
    ) -> None:
        """Follow an evaluation.

        Args:
            training: The run; ``scores`` has this score already.
            score: How good what was learned is, higher is better; None: not known.
            metrics: Numbers of the evaluation, as they are logged.
        """

    def finish(self, training: Training) -> None:
        """End, whichever way the run ends; what this raises is a warning."""

    def state_dict(self) -> StateDict:
        """State that the hooks depend on, as checkpoints store it; empty without any."""
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned, after ``start``."""
