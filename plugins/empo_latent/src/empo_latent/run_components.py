"""Components of a run."""

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
