"""Learning of ``latent`` as ``empo_learning.loop`` runs it: steps, and updates they pay for."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped

from empo_core.errors import ConfigError, NonFiniteError
from empo_core.protocols.environments import TimeStep
from empo_core.random_streams import Stream, seed_of, stream
from empo_core.trees import StateDict, whole_number
from empo_environments.episode_history import why_not_exact
from empo_latent.controller import Controller
from empo_latent.environments.task_vector import TaskVector
from empo_latent.environments.tasks import Task
from empo_latent.evaluation import Evaluation, evaluate_actors, score_of
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planner import Planner
from empo_latent.replay import Replay
from empo_latent.update import Updater
from empo_learning.episode_returns import EpisodeReturns
from empo_learning.finite import LARGE
from empo_learning.learner import Evaluated, Learner
from empo_learning.lr_schedules import CheckedSchedule
from empo_learning.randomness import seeded
from empo_learning.timers import Timers

log = logging.getLogger(__name__)

TIMERS = ("act", "environment", "update", "replay")
"""Names of what ``advance`` spends its time on."""


@dataclass(frozen=True, kw_only=True)
class RunComponents:
    """The moving parts of a run."""

    model: LatentModel
    planner: Planner
    updater: Updater
    lr_schedule: CheckedSchedule
    controller: Controller
    tasks: Sequence[Task]
    vector: TaskVector
    replay: Replay
    episodes: EpisodeReturns
    timers: Timers


class LatentLearner(Learner):
    """A step of all environments, and the updates that it pays for.

    Attributes:
        steps: Steps of all environments so far.
        updates_made: Updates so far.
        seed_steps: Steps with random actions, before anything is learned.
        evaluations: Steps and outcomes of each evaluation, by actor.
    """

    # A replay has NaN where nothing is known: actions before the first, actions of no planner.
    may_be_unknown = frozenset({"replay"})

    def __init__(self, params: LatentParams, seed: int, parts: RunComponents) -> None:
        """Put the parts together."""
        self._params, self._seed, self._parts = params, seed, parts
        vector, collection = parts.vector, params.collection
        usual = max(1000, 5 * sum(vector.spec.episode_lengths))
        self.seed_steps = min(collection.seed_steps or usual, params.total_steps)
        self._tasks = torch.from_numpy(vector.task_of) if len(vector.spec.tasks) > 1 else None
        self._generator = torch.Generator().manual_seed(seed_of(stream(seed, Stream.BATCHES)))
        self._first = np.ones(len(vector.task_of), bool)
        self._current: np.ndarray = np.empty(0)
        self._owed_updates = 0.0
        self._update_metrics: Mapping[str, Any] = {}
        self._line_updates, self._lr_factor = 0, 1.0
        self._large: set[str] = set()
        self.steps = self.updates_made = 0
        self.total_steps = params.total_steps
        self.evaluations: list[tuple[int, dict[str, Evaluation]]] = []

    @property
    def _burst(self) -> int:
        """Updates that are made at once after the seed steps."""
        updates = self._params.collection.seed_updates
        return self.seed_steps if updates is None else updates

    @property
    def updates(self) -> int:
        """Steps and updates together: either makes another state of the run."""
        return self.steps + self.updates_made

    @property
    def progress(self) -> tuple[float, float]:
        """Steps and updates so far, and all that there will be."""
        learning, total = self._params.learning, self.total_steps
        updates = self._owed_updates
        if self.steps < self.seed_steps:
            updates += self._burst
        updates += learning.updates_per_step * max(0, total - max(self.steps, self.seed_steps))
        done = self.steps + self.updates_made
        return done, done + max(0, total - self.steps) + math.floor(updates)

    @property
    def is_over(self) -> bool:
        """True if all steps are taken, and all updates made that they paid for."""
        return self.steps >= self.total_steps and self._owed_updates < 1

    @property
    def evaluates(self) -> bool:
        """True if an evaluation has any episodes."""
        return self._params.reporting.evaluation_episodes > 0

    def start(self) -> None:
        """Begin the first episodes."""
        self._begin(seed_of(stream(self._seed, Stream.EPISODES, 0, 0)))

    def advance(self) -> None:
        """One update if the steps so far have paid for it, else one step."""
        if self._owed_updates >= 1 and self._parts.replay.ready:
            self._update()
        elif self.steps >= self.total_steps:
            self._owed_updates = 0.0
            self.require_updates()
        else:
            self._step()

    def require_updates(self) -> None:
        """Refuse to end a run in which nothing was learned.

        Raises:
            ConfigError: if no update was made; the message says why.
        """
        if self.updates_made:
            return
        params, horizon = self._params, self._params.learning.horizon
        where, steps = "algorithm.params.total_steps", f"in {self.steps:,} steps"
        if not self._parts.replay.ready:
            raise ConfigError(
                f"{where}: nothing was learned, for {steps} no episode had {horizon} steps "
                "(learning.horizon) or was cut off before; take more steps, or shorten the horizon"
            )
        raise ConfigError(
            f"{where}: nothing was learned, for {steps}, {self.seed_steps:,} of them random "
            f"(collection.seed_steps), make less than one update: collection.seed_updates is "
            f"{self._burst} and learning.updates_per_step {params.learning.updates_per_step:g}; "
            "raise one of them, or take more steps"
        )

    def metrics(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Numbers about the newest update and action, and about episodes."""
        episodes = self._parts.episodes.statistics()
        numbers = {name: float(number) for name, number in self._update_metrics.items()}
        elapsed = sum(seconds.get(name, 0.0) for name in TIMERS)
        made, self._line_updates = self.updates_made - self._line_updates, self.updates_made
        return {
            **numbers,
            **episodes.metrics(),
            **(
                {"optim/lr": self._params.optimiser.lr * self._lr_factor}
                if self.updates_made
                else {}
            ),
            "time/updates": float(self.updates_made),
            "time/updates_per_second": made / elapsed if elapsed else 0.0,
        }

    def status(self) -> list[str]:
        """The phase of the run, and the mean return."""
        parts = ["random actions" if self.steps < self.seed_steps else "learning"]
        mean = self._parts.episodes.statistics().mean_return
        return parts if mean is None else [*parts, f"return {mean:.1f}"]

    def evaluate(self) -> Evaluated | None:
        """Play whole episodes; those of the last evaluation are filmed."""
        reporting = self._params.reporting
        if not reporting.evaluation_episodes:
            return None
        is_last = self.steps >= self.total_steps
        videos = reporting.videos if is_last else 0
        evaluations = self._played(reporting.evaluation_episodes, videos)
        score = score_of(evaluations)
        solved = reporting.is_solved(
            [*(score_of(evaluation) for _, evaluation in self.evaluations), score]
        )
        if solved and reporting.videos and not is_last:  # Only now is it known to be the last.
            films = self._played(reporting.videos, reporting.videos)
            evaluations = {
                name: replace(evaluation, videos=films[name].videos)
                for name, evaluation in evaluations.items()
            }
        self.evaluations.append((self.steps, evaluations))
        for actor, evaluation in evaluations.items():
            log.info(
                "evaluation of the %s after %s steps: %s",
                actor,
                f"{self.steps:,}",
                evaluation.statistics(),
            )
        metrics: dict[str, float] = {}
        for evaluation in evaluations.values():
            metrics |= evaluation.metrics()
        return Evaluated(metrics, score)

    def _played(self, episodes: int, videos: int) -> dict[str, Evaluation]:
        """Evaluations by actor; each plays other episodes."""
        parts, seed = self._parts, stream(self._seed, Stream.EVALUATION, self.steps)
        with self.interruptible(), seeded(seed):  # While environments are made, too.
            return evaluate_actors(
                parts.model,
                parts.planner,
                self._params,
                parts.tasks,
                episodes=episodes,
                seed=seed_of(seed),
                discounts=self._params.discounts(parts.vector.spec.episode_lengths),
                device=self._params.compute.device,
                videos=videos,
            )

    def state_dict(self, *, midway: bool) -> StateDict:
        """Everything needed to go on exactly so.

        Raises:
            NonFiniteError: if the replay has a reward or action that is not finite.
        """
        parts, replay = self._parts, None
        if self._params.reporting.keep_replay:
            replay = parts.replay.state_dict()
            _check_steps(replay, parts.vector.spec.actions + 2)
        return {
            "steps": self.steps,
            "seed_steps": self.seed_steps,  # Of the run as it began, however far it is extended.
            "updates": self.updates_made,
            "owed": self._owed_updates,
            # The next line of metrics may come before the next update.
            "update_metrics": {
                name: float(number) for name, number in self._update_metrics.items()
            },
            "lr_factor": self._lr_factor,
            "evaluations": [
                [steps, {actor: evaluation.to_dict() for actor, evaluation in by_actor.items()}]
                for steps, by_actor in self.evaluations
            ],
            "model": parts.model.state_dict(),
            "updater": parts.updater.state_dict(),
            "controller": parts.controller.state_dict(),
            "episodes": parts.episodes.state_dict(),
            # Where a step failed, others have acted, whose outcomes are lost.
            "vector": None if midway else parts.vector.state_dict(),
            "current": torch.from_numpy(self._current.copy()),
            "first": torch.from_numpy(self._first.copy()),
            "replay": replay,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from what ``state_dict`` returned."""
        parts, state = self._parts, state_dict
        self.steps, self.updates_made = whole_number(state["steps"]), whole_number(state["updates"])
        self.seed_steps = whole_number(state["seed_steps"])
        self._owed_updates, self._line_updates = float(state["owed"]), self.updates_made
        self._update_metrics = {name: float(n) for name, n in state["update_metrics"].items()}
        self._lr_factor = float(state["lr_factor"])
        self.evaluations = [
            (steps, {actor: Evaluation.from_dict(data) for actor, data in by_actor.items()})
            for steps, by_actor in state["evaluations"]
        ]
        if parts.model.fit_parts(state["model"]):
            self._parts.updater.take_in_parts()
        parts.model.load_state_dict(state["model"])
        parts.updater.load_state_dict(state["updater"])
        parts.controller.load_state_dict(state["controller"])
        parts.episodes.load_state_dict(state["episodes"])
        shape = (len(self._first), parts.vector.spec.words)
        self._current = state["current"].numpy().reshape(shape)
        self._first = state["first"].numpy().reshape(shape[0]).copy()
        vector, replay = state["vector"], state["replay"]
        if replay is not None:
            parts.replay.load_state_dict(replay)
        if vector is None or not parts.vector.load_state_dict(vector):
            where = f"exactly where they were{why_not_exact(vector)}"
            self._begin_anew(f"the environments cannot be put back {where}")
        elif replay is None:
            self._begin_anew("what was remembered is not in the checkpoint")
        self._generator.set_state(state["generator"])

    def _begin_anew(self, why: str) -> None:
        """Go on with new episodes: environments or replay are not where they were."""
        self._parts.episodes.forget_unfinished()
        self._begin(seed_of(stream(self._seed, Stream.EPISODES, 0, self.steps)))
        log.warning("%s: the run goes on, but not as it would have without a break", why)

    def _begin(self, seed: int) -> None:
        """Begin episodes in all environments."""
        parts = self._parts
        self._current = parts.vector.start(seed).observation
        self._first[:] = True
        parts.replay.begin(self._current, self._first)

    def _step(self) -> None:
        """Let all environments act once."""
        parts, collection = self._parts, self._params.collection
        expert = None
        if self.steps < self.seed_steps:
            shape = (len(self._first), parts.vector.spec.actions)
            action = torch.rand(shape, generator=self._generator).mul_(2).sub_(1)
        else:
            with parts.timers("act"):
                acted = parts.controller.act(
                    self._current,
                    self._first,
                    task=self._tasks,
                    actor=collection.acting,
                    explore=True,
                    expert=parts.updater.needs_expert,
                )
            action, expert = acted.action, acted.expert
            self._update_metrics = {**self._update_metrics, **acted.metrics}
        with parts.timers("environment"):
            step = parts.vector.step(action.numpy())
        ended, last = step.terminated | step.truncated, step.last_observation
        parts.replay.add(action, step.reward, step.terminated, last, expert=expert)
        if ended.any():
            parts.replay.begin(step.observation, ended)
        parts.episodes.observe(step.reward, ended, step.reasons, success=step.success)
        self._current, self._first = step.observation, ended
        self._warn_of_size("observation", last)
        self._warn_of_size("reward", step.reward)
        was = self.steps
        self.steps += len(ended)
        if self.steps >= self.seed_steps:
            if was < self.seed_steps:
                self._owed_updates += self._burst
            else:
                self._owed_updates += self._params.learning.updates_per_step * len(ended)
        if step.terminated.any() and not parts.model.terminates:
            self._learn_ends(step)
        self.after_rollout()

    def _warn_of_size(self, name: str, values: Shaped[np.ndarray, "*shape"]) -> None:
        """Warn once of numbers that are too large to be learned from."""
        if name in self._large:
            return
        size = max(-float(values.min()), float(values.max()))
        if size > LARGE:
            self._large.add(name)
            log.warning(
                "an environment's %s has size %.3g, and networks learn badly from numbers beyond "
                "%g, which 'latent' does not normalise: divide by a constant in the environment",
                name,
                size,
                LARGE,
            )

    def _learn_ends(self, step: TimeStep) -> None:
        """Learn from now on where episodes end, for one has terminated."""
        parts = self._parts
        task = parts.vector.spec.tasks[parts.vector.task_of[int(step.terminated.argmax())]]
        # Where learning has begun, a head that gave each step 1/2 would spoil all values at once.
        parts.model.add_termination(
            generator=torch.Generator().manual_seed(seed_of(stream(self._seed, Stream.WEIGHTS, 1))),
            probability=1 / (self.steps + 1) if self.updates_made else None,
        )
        self._parts.updater.take_in_parts()
        log.log(
            logging.WARNING if self.updates_made else logging.INFO,
            "an episode of %s terminated, the first one in %d steps and %d updates: the model "
            "learns from now on where episodes end (algorithm.params.reward.episodic)",
            task,
            self.steps,
            self.updates_made,
        )

    def _update(self) -> None:
        self._owed_updates -= 1
        progress = min(self.steps / self.total_steps, 1.0)
        with self._parts.timers("replay"):
            batch = self._parts.replay.sample(self._params.replay.batch_size, self._generator)
            sequences = batch.to(self._params.compute.device)
        self._lr_factor = self._parts.lr_schedule(progress) * self.lr_scale
        with self._parts.timers("update"):
            updated = self._parts.updater.update(sequences, progress, lr_factor=self._lr_factor)
        self._update_metrics = {**self._update_metrics, **updated}
        self.updates_made += 1
        self.after_update()


def _check_steps(replay: Mapping[str, Any], num_numbers: int) -> None:
    """Refuse actions, rewards and terminations of a replay that are not finite.

    Args:
        replay: Its state.
        num_numbers: How many numbers of a step must be finite; those behind may be unknown.

    Raises:
        NonFiniteError: if a number is not finite.
    """
    for env, row in enumerate(replay["rows"]):
        steps = row["steps"][:, :num_numbers]
        begins = steps.isnan().all(1)  # First rows of episodes have no step.
        if not bool(steps[~begins].isfinite().all()):
            raise NonFiniteError(
                f"the replay has an action or reward of environment {env} that is not finite"
            )
