"""Evaluation of an agent: whole episodes, played beside the training and without effect on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped

from empo_core.errors import CollectError, ConfigError
from empo_latent.controller import Controller
from empo_latent.environments.task_vector import TaskStep, TaskVector
from empo_latent.environments.tasks import Task
from empo_latent.networks.model import LatentModel
from empo_latent.params import Actor, LatentParams
from empo_latent.planner import Planner
from empo_latent.videos import VideoRecorder, warn_no_videos
from empo_learning.evaluation.returns import ReturnSummary
from empo_learning.evaluation.videos import Video
from empo_learning.randomness import seeded

MOST_ENVS = 10
"""Environments of an evaluation that play at once."""


@dataclass(frozen=True, slots=True)
class Episode:
    """Return, length and end of one episode.

    Attributes:
        task: Which task it was of.
        total: Sum of its rewards.
        discounted: The same discounted, and where it was cut off with what the model thinks its
            last state is worth, so that it is comparable to ``value``.
        value: What the model thought the first state to be worth.
        length: Steps.
        terminated: Whether it ended by itself; else it was cut off.
        success: 1 if it succeeded at any step of which the environment says, else 0; None where
            it says of none.
    """

    task: int
    total: float
    discounted: float
    value: float
    length: int
    terminated: bool
    success: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnStatistics(ReturnSummary):
    """Statistics of several episodes; the standard error is 0 where each task has one.

    Attributes:
        terminated: Share of them that ended by themselves.
        success: Share of them that succeeded, of those of which the environment says; or None.
        mean_value: What the model thought of first states, on average.
        value_bias: By how much that is above what came, discounted, on average.
        value_error: The mean distance between the two.
    """

    terminated: float
    success: float | None
    mean_value: float
    value_bias: float
    value_error: float

    def metrics(self) -> dict[str, float]:
        """Numbers for trackers."""
        metrics = {
            "return_mean": self.mean_return,
            "return_standard_error": self.standard_error,
            "return_min": self.min_return,
            "return_max": self.max_return,
            "length_mean": self.mean_length,
            "terminated": self.terminated,
            "value_mean": self.mean_value,
            "value_bias": self.value_bias,
            "value_error": self.value_error,
        }
        return metrics if self.success is None else {**metrics, "success": self.success}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Whole episodes of every task, as many of each.

    Attributes:
        actor: Who acted.
        tasks: Names of the tasks.
        episodes: What was played.
        videos: Pictures of some of them.
    """

    actor: Actor
    tasks: tuple[str, ...]
    episodes: tuple[Episode, ...]
    videos: tuple[Video, ...] = field(default=(), repr=False, compare=False)

    @property
    def mean_return(self) -> float:
        """Mean sum of rewards, over all tasks."""
        return self.statistics().mean_return

    def statistics(self, task: str | None = None) -> ReturnStatistics:
        """Statistics of the episodes of a task; of all tasks where none is named."""
        chosen = [episode for episode in self.episodes if task in (None, self.tasks[episode.task])]
        totals = np.array([episode.total for episode in chosen])
        successes = [episode.success for episode in chosen if episode.success is not None]
        off = np.array([episode.value - episode.discounted for episode in chosen])
        return ReturnStatistics(
            episodes=len(chosen),
            mean_return=float(totals.mean()),
            standard_error=_standard_error(totals, np.array([episode.task for episode in chosen])),
            min_return=float(totals.min()),
            max_return=float(totals.max()),
            mean_length=float(np.mean([episode.length for episode in chosen])),
            terminated=float(np.mean([episode.terminated for episode in chosen])),
            success=float(np.mean(successes)) if successes else None,
            mean_value=float(np.mean([episode.value for episode in chosen])),
            value_bias=float(off.mean()),
            value_error=float(np.abs(off).mean()),
        )

    def metrics(self) -> dict[str, float]:
        """Numbers for trackers, also per task where there are several."""
        groups: dict[str, str | None] = {f"eval/{self.actor}": None}
        if len(self.tasks) > 1:
            groups |= {f"eval/{self.actor}/{task}": task for task in self.tasks}
        return {
            f"{place}/{name}": number
            for place, task in groups.items()
            for name, number in self.statistics(task).metrics().items()
        }

    def to_dict(self) -> dict[str, Any]:
        """The numbers as a tree for checkpoints; films are left out."""
        return {
            "actor": self.actor,
            "tasks": list(self.tasks),
            "episodes": [list(astuple(episode)) for episode in self.episodes],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        """The evaluation that ``to_dict`` described."""
        episodes = tuple(Episode(*row) for row in data["episodes"])
        return cls(actor=data["actor"], tasks=tuple(data["tasks"]), episodes=episodes)


@torch.no_grad()
def evaluate(
    model: LatentModel,
    planner: Planner,
    vector: TaskVector,
    *,
    episodes: int,
    actor: Actor,
    seed: int,
    device: torch.device | str,
    discounts: Sequence[float],
    videos: int = 0,
) -> Evaluation:
    """Play so many episodes of each task, at least 1, without exploration.

    How many each environment plays is settled before: taking whichever episodes end first would
    count short ones too often. The environments are used for nothing else, and stay open; the seed
    decides everything that is random. ``discounts`` are per task, of each step. A vector
    that renders gives so many ``videos`` of each task.
    """
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}: there is nothing to play")
    with seeded(np.random.SeedSequence(seed)):
        controller = Controller(model, planner, envs=len(vector.task_of), device=device)
        game = _Game(model, vector, _quotas(vector, episodes), device, np.asarray(discounts))
        return game.play(controller, actor, seed, videos)


def evaluate_actors(
    model: LatentModel,
    planner: Planner,
    params: LatentParams,
    tasks: Sequence[Task],
    *,
    episodes: int,
    seed: int,
    discounts: Sequence[float],
    device: torch.device | str,
    videos: int = 0,
) -> dict[str, Evaluation]:
    """Evaluations by actor, those of ``reporting.evaluate``, in environments of their own.

    All play the same episodes; see ``evaluate``.
    """
    vector = evaluation_vector(tasks, episodes, rendering=videos > 0)
    try:
        return {
            actor: evaluate(
                model,
                planner,
                vector,
                episodes=episodes,
                actor=actor,
                seed=seed,
                device=device,
                discounts=discounts,
                videos=videos,
            )
            for actor in params.reporting.evaluate
        }
    finally:
        vector.close()


def evaluation_vector(
    tasks: Sequence[Task], episodes: int, *, rendering: bool = False
) -> TaskVector:
    """Environments for so many episodes of each task, one per episode up to a limit.

    Where none can be made that render, a warning says why.
    """
    envs = len(tasks) * max(1, min(episodes, MOST_ENVS // len(tasks)))
    if rendering:
        try:
            return TaskVector(tasks, envs=envs, rendering=True)
        except (CollectError, ConfigError) as error:
            warn_no_videos(str(error))
    return TaskVector(tasks, envs=envs)


def score_of(evaluations: Mapping[str, Evaluation]) -> float:
    """The best mean return of an actor."""
    return max(evaluation.mean_return for evaluation in evaluations.values())


class _Game:
    """Environments in which each plays as many episodes as it has to."""

    def __init__(
        self,
        model: LatentModel,
        vector: TaskVector,
        quotas: np.ndarray,
        device: torch.device | str,
        discounts: np.ndarray,
    ) -> None:
        self._model, self._vector, self._device = model, vector, device
        self._quotas, self._discount = quotas, discounts[vector.task_of]
        several = len(vector.spec.tasks) > 1
        self._task = torch.from_numpy(vector.task_of) if several else None
        envs = len(quotas)
        self._number = np.zeros(envs, np.int64)
        self._total, self._discounted, self._value = np.zeros((3, envs))
        self._length = np.zeros(envs, np.int64)
        self._success = np.full(envs, -1)

    def play(self, controller: Controller, actor: Actor, seed: int, videos: int) -> Evaluation:
        """All episodes."""
        vector = self._vector
        current, first = vector.start(seed), np.ones(len(self._quotas), bool)
        camera = VideoRecorder(vector, videos, actor)
        episodes: dict[tuple[int, int, int], Episode] = {}
        while self._open.any():
            self._begin(current, first & self._open)
            camera.record(first & self._open)
            acted = controller.act(current, first, task=self._task, actor=actor, explore=False)
            step = vector.step(acted.action.numpy())
            episodes |= self._observe(step, camera)
            current, first = step.current, step.terminated | step.truncated
        return Evaluation(
            actor=actor,
            tasks=vector.spec.tasks,
            episodes=tuple(episodes[place] for place in sorted(episodes)),
            videos=tuple(camera.videos),
        )

    @property
    def _open(self) -> Bool[np.ndarray, " env"]:
        """Environments that have not played all their episodes."""
        return self._number < self._quotas

    def _begin(
        self, observation: Shaped[np.ndarray, "env word"], rows: Bool[np.ndarray, " env"]
    ) -> None:
        for numbers in (self._total, self._discounted, self._length):
            numbers[rows] = 0
        self._success[rows] = -1
        self._value[rows] = self._mean_value(observation, rows)

    def _observe(
        self, step: TaskStep, camera: VideoRecorder
    ) -> dict[tuple[int, int, int], Episode]:
        """Count a step; the episodes that it ended, by task, environment and number."""
        ended = self._open & (step.terminated | step.truncated)
        self._total += step.reward
        self._discounted += self._discount**self._length * step.reward
        self._length += 1
        self._success = np.maximum(self._success, step.success)
        cut = ended & ~step.terminated
        value = self._mean_value(step.observation, cut)
        self._discounted[cut] += self._discount[cut] ** self._length[cut] * value
        episodes = {}
        for env in np.flatnonzero(ended).tolist():
            task, success = int(self._vector.task_of[env]), int(self._success[env])
            episodes[task, env, int(self._number[env])] = Episode(
                task=task,
                total=float(self._total[env]),
                discounted=float(self._discounted[env]),
                value=float(self._value[env]),
                length=int(self._length[env]),
                terminated=bool(step.terminated[env]),
                success=None if success < 0 else success,
            )
            camera.finish(env, float(self._total[env]))
        self._number += ended
        return episodes

    def _mean_value(
        self, observation: Shaped[np.ndarray, "env word"], rows: Bool[np.ndarray, " env"]
    ) -> Float[np.ndarray, " row"]:
        """Values of states under the policy, mean over value heads."""
        if not rows.any():
            return np.zeros(0)
        task = None if self._task is None else self._task[rows].to(self._device)
        z = self._model.encode(torch.from_numpy(observation[rows]).to(self._device), task=task)
        policy = self._model.policy(z, task=task)
        # What a critic of states does not need, it ignores.
        value = self._model.value(z, policy.bounded(policy.mode), task=task)
        return value.mean(0)[:, 0].double().cpu().numpy()


def _quotas(vector: TaskVector, episodes: int) -> np.ndarray:
    """Episodes of each environment, so that each task has as many as asked for."""
    quotas = np.zeros(len(vector.task_of), np.int64)
    for number, name in enumerate(vector.spec.tasks):
        envs = np.flatnonzero(vector.task_of == number)
        if not len(envs):
            raise ValueError(f"task {name} has no environment to be evaluated in")
        quotas[envs] = episodes // len(envs)
        quotas[envs[: episodes % len(envs)]] += 1
    return quotas


def _standard_error(totals: np.ndarray, tasks: np.ndarray) -> float:
    """Of the mean over episodes of tasks that are not themselves a sample."""
    variance = 0.0
    for task in np.unique(tasks):
        of_task = totals[tasks == task]
        if len(of_task) > 1:
            variance += len(of_task) * float(of_task.var(ddof=1))
    return math.sqrt(variance) / len(totals)
