"""Evaluation of an agent: whole episodes, played beside the training and without effect on it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import TimeStep
from empo_latent.controller import Controller
from empo_latent.environments.task_vector import TaskVector
from empo_latent.environments.tasks import Task
from empo_latent.networks.model import LatentModel
from empo_latent.params import Actor, LatentParams
from empo_latent.planner import Planner
from empo_learning.evaluation.returns import ReturnSummary
from empo_learning.evaluation.videos import EpisodeCamera, Video, warn_no_videos
from empo_learning.evaluation.whole_episodes import EpisodeTable, play_episodes
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
    must_film: bool = False,
) -> Evaluation:
    """Play so many episodes of each task, at least 1, without exploration.

    The environments are used for nothing else, and stay open; the seed decides everything that is
    random. ``discounts`` are per task, of each step. A vector that renders gives so many ``videos``
    of each task.

    Raises:
        ConfigError: if no picture can be drawn, where it ``must_film``.
    """
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}: there is nothing to play")
    with seeded(np.random.SeedSequence(seed)):
        controller = Controller(model, planner, envs=len(vector.task_of), device=device)
        table = EpisodeTable(_quotas(vector, episodes))
        game = _Game(model, controller, vector, table, actor, device, discounts)
        cameras = [
            EpisodeCamera(
                partial(vector.render, env),
                episodes=number,
                name=vector.spec.tasks[vector.task_of[env]],
                actor=actor,
                fps=vector.rates[vector.task_of[env]],
                agents=slice(env, env + 1),
                is_required=must_film,
            )
            for env, number in enumerate(_quotas(vector, min(videos, episodes)))
            if number
        ]
        play_episodes(vector.start(seed), game.advance, table, cameras=cameras)
    return Evaluation(
        actor=actor,
        tasks=vector.spec.tasks,
        episodes=tuple(game.episodes()),
        videos=tuple(video for camera in cameras for video in camera.videos),
    )


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
    must_film: bool = False,
) -> dict[str, Evaluation]:
    """Evaluations by actor, those of ``reporting.evaluate``, in environments of their own.

    All play the same episodes; see ``evaluate``.
    """
    vector = _vector(tasks, episodes, rendering=videos > 0, must_film=must_film)
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
                must_film=must_film,
            )
            for actor in params.reporting.evaluate
        }
    finally:
        vector.close()


def _vector(
    tasks: Sequence[Task], episodes: int, *, rendering: bool, must_film: bool
) -> TaskVector:
    """Environments for so many episodes of each task, one per episode up to a limit.

    Where none can be made that render, a warning says why, or the error if they must.
    """
    envs = len(tasks) * max(1, min(episodes, MOST_ENVS // len(tasks)))
    if rendering:
        try:
            return TaskVector(tasks, envs=envs, rendering=True)
        except (CollectError, ConfigError) as error:
            if must_film:
                raise
            warn_no_videos(str(error))
    return TaskVector(tasks, envs=envs)


def score_of(evaluations: Mapping[str, Evaluation]) -> float:
    """The best mean return of an actor."""
    return max(evaluation.mean_return for evaluation in evaluations.values())


class _Game:
    """A model that acts, and says what first states and those before a cut are worth."""

    def __init__(
        self,
        model: LatentModel,
        controller: Controller,
        vector: TaskVector,
        table: EpisodeTable,
        actor: Actor,
        device: torch.device | str,
        discounts: Sequence[float],
    ) -> None:
        self._model, self._controller, self._vector = model, controller, vector
        self._table, self._actor, self._device = table, actor, device
        self._discount = np.asarray(discounts)[vector.task_of]
        several = len(vector.spec.tasks) > 1
        self._task = torch.from_numpy(vector.task_of) if several else None
        self._value, self._discounted = np.zeros((2, *table.returns.shape))

    def advance(self, time_step: TimeStep) -> TimeStep:
        """Act once in all environments."""
        table, observation, starts = self._table, time_step.observation, time_step.starts
        begins = starts & table.is_open
        value = self._mean_value(observation, begins)
        self._value[begins, table.ended[begins]] = value
        acted = self._controller.act(
            observation, starts, task=self._task, actor=self._actor, explore=False
        )
        after = self._vector.step(acted.action.numpy())
        is_cut = after.truncated & ~after.terminated & table.is_open
        later = np.zeros(len(starts))
        later[is_cut] = self._mean_value(after.last_observation, is_cut)
        env = np.flatnonzero(table.is_open)
        place, discount = (env, table.ended[env]), self._discount[env]
        length = table.lengths[place]
        self._discounted[place] += discount**length * after.reward[env]
        self._discounted[place] += discount ** (length + 1) * later[env]
        return after

    def episodes(self) -> Iterator[Episode]:
        """All episodes of the first task, then those of the next."""
        table, task_of = self._table, self._vector.task_of
        for env in np.argsort(task_of, kind="stable"):
            for place in ((env, number) for number in range(table.quotas[env])):
                success = int(table.successes[place])
                yield Episode(
                    task=int(task_of[env]),
                    total=float(table.returns[place]),
                    discounted=float(self._discounted[place]),
                    value=float(self._value[place]),
                    length=int(table.lengths[place]),
                    terminated=bool(table.reasons[place] == 0),
                    success=None if success < 0 else success,
                )

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
