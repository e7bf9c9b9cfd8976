"""Components of a run, and its progress after some steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from empo_latent.controller import Controller
from empo_latent.environments.task_vector import TaskVector
from empo_latent.environments.tasks import Task
from empo_latent.networks.model import LatentModel
from empo_latent.planner import Planner
from empo_latent.replay import Replay
from empo_latent.update import Updater
from empo_learning.episode_returns import EpisodeReturns
from empo_learning.timers import Timers


@dataclass(frozen=True, slots=True)
class ProgressMark:
    """Progress of a run after some steps.

    Attributes:
        steps: Steps of all environments so far.
        updates: Updates so far.
        seconds: How long they took.
        mean_return: Of the newest episodes; NaN before any.
    """

    steps: int
    updates: int
    seconds: float
    mean_return: float


@dataclass(frozen=True, kw_only=True)
class RunComponents:
    """The moving parts of a run."""

    model: LatentModel
    planner: Planner
    updater: Updater
    controller: Controller
    tasks: Sequence[Task]
    vector: TaskVector
    replay: Replay
    episodes: EpisodeReturns
    timers: Timers
