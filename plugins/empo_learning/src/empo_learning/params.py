"""Groups of parameters that all learners have, under the same names; importing is cheap."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pydantic import Field, field_validator, model_validator

from empo_core.config import Config, ScheduleRef
from empo_core.errors import ConfigError


class Compute(Config):
    """Parameters of the computation; key ``compute``."""

    device: str = Field("cpu", description="Device of the networks, e.g. cpu or cuda:0.")
    threads: int | None = Field(None, ge=1, description="Threads of torch; null: as torch likes.")

    @field_validator("device")
    @classmethod
    def _is_a_device(cls, device: str) -> str:
        if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
            raise ValueError(f"{device!r} is no device; choose cpu, cuda, or one such as cuda:0")
        return device


MOST_LR = 100.0
"""Greatest learning rate: with Adam, the numbers of networks would move by so much in one step."""


def _schedule(name: str) -> Callable[[], ScheduleRef]:
    return lambda: ScheduleRef.model_validate(name)


CONSTANT, LINEAR = _schedule("constant"), _schedule("linear")
"""Defaults of ``lr_schedule``."""


class Optimiser(Config):
    """Parameters of the optimiser; key ``optimiser``."""

    lr_schedule: ScheduleRef = Field(
        default_factory=CONSTANT,
        description="Schedule of the learning rate over the run, e.g. linear or cosine.",
    )
    weight_decay: float = Field(0.0, ge=0, description="Decay of the weights.")
    max_grad_norm: float | None = Field(
        None, gt=0, description="Longer gradients are cut to this; null cuts none."
    )


class Replay(Config):
    """Parameters of the replay; key ``replay``."""

    capacity: int = Field(
        1_000_000, ge=1, description="Steps that are remembered; the oldest are forgotten first."
    )
    batch_size: int = Field(256, ge=1, description="Steps, or sequences of them, per update.")


class Reporting(Config):
    """Intervals of logs, evaluations and checkpoints (0: never); key ``reporting``."""

    log_interval: int = Field(100, ge=1, description="Steps between two lines of metrics.")
    evaluation_interval: int = Field(0, ge=0, description="Steps between evaluations.")
    checkpoint_interval: int = Field(10_000, ge=0, description="Steps between checkpoints.")
    keep_checkpoints: int = Field(
        2, ge=1, description="Number of newest checkpoints that are kept."
    )

    @property
    def without_scores(self) -> str | None:
        """The key by which evaluations measure nothing; None: they measure something."""
        return None

    def require_evaluations(self, watcher: str) -> None:
        """Refuse a run that is not evaluated while it learns.

        Args:
            watcher: What needs evaluations.

        Raises:
            ConfigError: if there are none.
        """
        missing = [] if self.evaluation_interval else ["evaluation_interval"]
        missing += [] if self.without_scores is None else [self.without_scores]
        if missing:
            raise ConfigError(
                f"algorithm.params.reporting.{' and '.join(missing)} must be set: {watcher} "
                "watches evaluations while the run learns, and there are none; or drop the callback"
            )


class ScoredReporting(Reporting):
    """Reporting of learners whose evaluations have a score that may be good enough to stop."""

    evaluation_episodes: int = Field(10, ge=0, description="Episodes of each; 0: no evaluation.")
    solved_at: float | None = Field(
        None,
        description="Stop when the mean return of the last evaluations reaches this; null: never.",
    )
    solved_evaluations: int = Field(
        3, ge=1, description="Evaluations over which solved_at takes the mean."
    )

    @property
    def without_scores(self) -> str | None:
        """The key without which there are no evaluations."""
        return None if self.evaluation_episodes else "evaluation_episodes"

    @model_validator(mode="after")
    def _can_be_solved(self) -> ScoredReporting:
        if self.solved_at is None:
            return self
        if not self.evaluation_episodes:
            raise ValueError(
                "solved_at is about evaluations, and there are none: set evaluation_episodes to at "
                "least 1, or drop it"
            )
        if not self.evaluation_interval and self.solved_evaluations > 1:
            raise ValueError(
                f"solved_at takes the mean of {self.solved_evaluations} evaluations, and there is "
                "one, at the end: set evaluation_interval, or solved_evaluations to 1"
            )
        return self

    def is_solved(self, scores: Sequence[float]) -> bool:
        """True where the mean of the newest of all scores so far is as good as asked for."""
        count = self.solved_evaluations
        if self.solved_at is None or len(scores) < count:
            return False
        return sum(scores[-count:]) / count >= self.solved_at
