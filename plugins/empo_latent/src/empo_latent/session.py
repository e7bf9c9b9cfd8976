"""A run of ``latent`` in progress: it acts, learns, reports, and can stop and go on."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import astuple, fields
from typing import Any

import numpy as np
import torch

from empo_core.errors import ConfigError, EmpoError, NonFiniteError, StorageError
from empo_core.protocols import EpisodeTracker, Narrator, Rewindable, RunContext
from empo_latent.environments.fleet import Step
from empo_latent.evaluation import Evaluation
from empo_latent.params import LatentParams
from empo_latent.parts import Mark, Parts
from empo_latent.result import LatentResult
from empo_learning.checkpoint import Checkpoints
from empo_learning.interrupts import Interrupts
from empo_learning.randomness import capture, restore

log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
TASK = "training"


class Session:
    """The loop that moves the parts: a step of all environments, and the updates that it pays for.

    Attributes:
        steps: Steps of all environments so far.
        updates: Updates so far.
        seconds: How long they took, over all attempts.
        history: How it stood at each line of metrics.
        evaluations: Steps and outcomes of each evaluation, by who acted.
    """

    def __init__(self, params: LatentParams, context: RunContext, parts: Parts) -> None:
        """Put the parts together; ``start`` or ``resume`` begins."""
        self._params, self._context, self._parts = params, context, parts
        self._checkpoints = Checkpoints(
            context.directory / CHECKPOINTS, keep=params.reporting.keep_checkpoints
        )
        fleet, collection = parts.fleet, params.collection
        lengths = fleet.interface.episode_lengths
        usual = max(1000, 5 * sum(lengths))
        self.seed_steps = min(collection.seed_steps or usual, params.total_steps)
        burst = collection.seed_updates
        self._burst = self.seed_steps if burst is None else burst
        self._tasks = torch.from_numpy(fleet.task_of) if len(fleet.interface.tasks) > 1 else None
        self._generator = torch.Generator().manual_seed(context.seed)
        self._first = np.ones(len(fleet.task_of), bool)
        self._current: np.ndarray = np.empty(0)
        self._owed = 0.0
        self._saved = self._evaluated = -1
        self._found: Mapping[str, Any] = {}
        self._before = (0, 0, 0.0)
        self.steps = self.updates = 0
        self.seconds = 0.0
        self.history: list[Mark] = []
        self.evaluations: list[tuple[int, dict[str, Evaluation]]] = []

    def train(self) -> None:
        """Train until all steps are done, from wherever the session stands.

        Raises:
            KeyboardInterrupt: The run was stopped; there is a checkpoint to go on from.
            EmpoError: It cannot go on; there is a checkpoint with all that was learned.
        """
        with Interrupts() as interrupts:
            try:
                while not self._is_over:
                    interrupts.check()
                    self._advance()
                self._finish()
            except StorageError:
                raise  # The disk refused a checkpoint; it would refuse another one.
            except (KeyboardInterrupt, EmpoError) as error:
                try:
                    self.save()
                except NonFiniteError as refusal:
                    error.add_note(f"There is no checkpoint of this step: {refusal}")
                raise
        self._context.tracker.progress(TASK, self._total, self._total)

    def _finish(self) -> None:
        """Look at what came of it, after the last update."""
        self._evaluate()
        if self._is_solved and self._params.reporting.videos and self.steps < self._total:
            # Only now is it known to be the last: the same episodes again, with a camera.
            found, _ = self._parts.evaluator.evaluate(self.steps, is_last=True)
            self.evaluations[-1] = (self.steps, found)
        last = self.history[-1] if self.history else None
        if last is None or (last.steps, last.updates) != (self.steps, self.updates):
            self._tell()
        self.save()

    def start(self) -> None:
        """Begin the first episodes."""
        self._current = self._parts.fleet.start(self._context.seed)
        self._first[:] = True
        self._parts.replay.begin(self._current, self._first)

    def resume(self) -> None:
        """Go on from the newest checkpoint that can be loaded; begin where there is none.

        Raises:
            StorageError: There are checkpoints, but all are damaged.
        """
        found = self._checkpoints.newest()
        if found is None:
            self.start()
        else:
            self._load(*found)
            log.info("going on from step %s", f"{self.steps:,}")
        if isinstance(self._context.tracker, Rewindable):
            self._context.tracker.rewind(self.steps)

    def save(self) -> None:
        """Write a checkpoint, from which the run can go on exactly, unless there is one."""
        place = self.steps + self.updates
        if self._saved == place:
            return
        parts, tracker = self._parts, self._context.tracker
        marks = [astuple(mark) for mark in self.history]
        state = {
            "steps": self.steps,
            "updates": self.updates,
            "owed": self._owed,
            "seconds": self.seconds,
            "evaluated": self._evaluated,
            "before": list(self._before),
            "history": torch.tensor(marks, dtype=torch.float64).view(-1, len(fields(Mark))),
            "evaluations": [
                [steps, {actor: each.to_dict() for actor, each in found.items()}]
                for steps, found in self.evaluations
            ],
            "model": parts.model.state_dict(),
            "updater": parts.updater.state_dict(),
            "acting": parts.controller.state_dict(),
            "episodes": parts.episodes.state_dict(),
            "fleet": parts.fleet.state_dict(),
            "current": torch.from_numpy(self._current.copy()),
            "first": torch.from_numpy(self._first.copy()),
            "replay": parts.replay.state_dict() if self._params.reporting.keep_replay else None,
            "timers": parts.timers.state_dict(),
            "tracker": tracker.state_dict() if isinstance(tracker, EpisodeTracker) else {},
            "randomness": capture({"replay": self._generator}),
        }
        score = self._score() if self._evaluated == self.steps else None
        self._checkpoints.save(place, state, score=score)
        self._saved = place

    def _load(self, place: int, state: Mapping[str, Any]) -> None:
        """Take over what a checkpoint says."""
        parts = self._parts
        self._saved = place
        self.steps, self.updates = state["steps"], state["updates"]
        self._owed, self.seconds = state["owed"], state["seconds"]
        self._evaluated = state["evaluated"]
        steps, updates, seconds = state["before"]
        self._before = (steps, updates, seconds)
        self.history = [Mark(int(a), int(b), c, d) for a, b, c, d in state["history"].tolist()]
        self.evaluations = [
            (steps, {actor: Evaluation.from_dict(each) for actor, each in found.items()})
            for steps, found in state["evaluations"]
        ]
        parts.model.load_state_dict(state["model"])
        parts.updater.load_state_dict(state["updater"])
        parts.controller.load_state_dict(state["acting"])
        parts.episodes.load_state_dict(state["episodes"])
        parts.timers.load_state_dict(state["timers"])
        if isinstance(self._context.tracker, EpisodeTracker):
            self._context.tracker.load_state_dict(state["tracker"])
        self._current, self._first = state["current"].numpy(), state["first"].numpy().copy()
        exact = parts.fleet.load_state_dict(state["fleet"])
        if state["replay"] is not None:
            parts.replay.load_state_dict(state["replay"])
        if not exact or state["replay"] is None:
            self._begin_anew(exact)
        restore(state["randomness"], {"replay": self._generator})

    def _begin_anew(self, exact: bool) -> None:
        """Go on with new episodes: environments or memories are not where they were."""
        parts = self._parts
        parts.episodes.forget_unfinished()
        missing = "what was remembered is not in the checkpoint"
        if exact:
            self._current = parts.fleet.start(self._context.seed + self.steps)
        else:  # They have begun new episodes already.
            missing = "the environments cannot be put back exactly where they were"
            self._current = parts.fleet.current
        self._first[:] = True
        parts.replay.begin(self._current, self._first)
        log.warning("%s: the run goes on, but not as it would have without a break", missing)

    @property
    def progress(self) -> float:
        """Share of the run's steps that are done, at most 1."""
        return min(self.steps / self._total, 1.0)

    @property
    def _is_over(self) -> bool:
        """Whether all is done, or the agent is as good as was asked for."""
        return self._is_solved or (self.steps >= self._total and self._owed < 1)

    @property
    def _is_solved(self) -> bool:
        """Whether an evaluation of this step says that the agent is as good as was asked for."""
        goal = self._params.reporting.solved_at
        return goal is not None and self._evaluated == self.steps and self._score() >= goal

    @property
    def _total(self) -> int:
        return self._params.total_steps

    def _score(self) -> float:
        """The best mean return of the newest evaluation, over who acted."""
        return max(each.mean_return for each in self.evaluations[-1][1].values())

    def result(self, seed: int) -> LatentResult:
        """What was learned so far."""
        fleet = self._parts.fleet
        repeats = [fleet.interface.action_repeats[task] for task in fleet.task_of.tolist()]
        return LatentResult(
            model=self._parts.model,
            params=self._params,
            interface=fleet.interface,
            seed=seed,
            action_repeat=sum(repeats) / len(repeats),
            history=self.history,
            evaluations=self.evaluations,
            time_shares=self._parts.timers.shares(),
        )

    def _advance(self) -> None:
        """One update if the steps so far have paid for it, else one step, and what is due then."""
        began = time.perf_counter()
        if self._owed >= 1 and self._parts.replay.ready:
            self._update()
            self.seconds += time.perf_counter() - began
            return
        if self.steps >= self._total:
            self._owed = 0.0  # The replay has nothing to learn from.
            return
        self._step()
        self.seconds += time.perf_counter() - began
        if self.steps >= self._total:
            return  # Updates may be left to make, and to look at when it finishes.
        reporting = self._params.reporting
        if self._is_due(reporting.evaluation_interval):
            self._evaluate()
        if self._is_due(reporting.checkpoint_interval):
            self.save()
        if self._is_due(reporting.log_interval):
            self._tell()

    def _is_due(self, interval: int) -> bool:
        """Whether the newest steps went past a multiple of the interval."""
        envs = len(self._first)
        return interval > 0 and self.steps // interval > (self.steps - envs) // interval

    def _step(self) -> None:
        """Let all environments act once."""
        parts, collection = self._parts, self._params.collection
        expert = None
        if self.steps < self.seed_steps:
            shape = (len(self._first), parts.fleet.interface.actions)
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
            self._found = {**self._found, **acted.metrics}
        with parts.timers("environment"):
            step = parts.fleet.step(action.numpy())
        ended = step.terminated | step.truncated
        parts.replay.add(action, step.reward, step.terminated, step.observation, expert=expert)
        if ended.any():
            parts.replay.begin(step.current, ended)
        parts.episodes.observe(step)
        self._current, self._first = step.current, ended
        was = self.steps
        self.steps += len(ended)
        if self.steps >= self.seed_steps:
            if was < self.seed_steps:
                self._owed += self._burst
            else:
                self._owed += self._params.learning.updates_per_step * len(ended)
        self._refuse_terminations(step)

    def _refuse_terminations(self, step: Step) -> None:
        if self._params.reward.episodic or not step.terminated.any():
            return
        interface = self._parts.fleet.interface
        task = interface.tasks[self._parts.fleet.task_of[int(step.terminated.argmax())]]
        raise ConfigError(
            f"algorithm.params.reward.episodic: an episode of {task} terminated, and without this "
            "the model cannot learn that nothing comes after; set it to true"
        )

    def _update(self) -> None:
        self._owed -= 1
        with self._parts.timers("replay"):
            batch = self._parts.replay.sample(self._params.learning.batch_size, self._generator)
            sequences = batch.to(self._params.compute.device)
        with self._parts.timers("update"):
            self._found = {**self._found, **self._parts.updater.update(sequences, self.progress)}
        self.updates += 1

    def _evaluate(self) -> None:
        """Play whole episodes, unless that was just done."""
        if not self._params.reporting.evaluation_episodes or self._evaluated == self.steps:
            return
        with self._parts.timers("evaluation"):
            found, metrics = self._parts.evaluator.evaluate(
                self.steps, is_last=self.steps >= self._total
            )
        self.evaluations.append((self.steps, found))
        self._evaluated = self.steps
        self._context.tracker.log(self.steps, metrics)
        for actor, each in found.items():
            outcome = each.outcome()
            log.info(
                "evaluation of the %s after %s steps: mean return %.6g ± %.2g",
                actor,
                f"{self.steps:,}",
                outcome.mean_return,
                outcome.standard_error,
            )

    def _tell(self) -> None:
        """Note how the run stands, and tell the trackers."""
        tracker, episodes = self._context.tracker, self._parts.episodes
        found = {name: float(number) for name, number in self._found.items()}
        self._refuse_nonfinite(found)
        mean = episodes.mean_return
        self.history.append(
            Mark(self.steps, self.updates, self.seconds, math.nan if mean is None else mean)
        )
        times = self._times()
        tracker.log(self.steps, {**found, **episodes.metrics(), **times})
        tracker.progress(TASK, min(self.steps, self._total), self._total)
        if isinstance(tracker, Narrator):
            phase = "random actions" if self.steps < self.seed_steps else "learning"
            parts = [phase, f"{times['time/steps_per_second']:,.0f} steps/s"]
            if mean is not None:
                parts.append(f"return {mean:.1f}")
            tracker.narrate(TASK, " | ".join(parts))

    def _refuse_nonfinite(self, found: Mapping[str, float]) -> None:
        for name, number in found.items():
            if name.startswith(("loss/", "gradient/")) and not math.isfinite(number):
                raise NonFiniteError(
                    f"after {self.updates:,} updates {name} is {number}: learning has come apart; "
                    "go on from an older checkpoint with a lower optimiser.lr, or look at the "
                    "rewards of the environment"
                )

    def _times(self) -> dict[str, float]:
        """How fast the run is, and where the time went since the last look."""
        lap = self._parts.timers.lap()
        whole = sum(seconds for name, seconds in lap.items() if "/" not in name)
        steps, updates, seconds = self._before
        self._before = (self.steps, self.updates, self.seconds)
        passed = max(self.seconds - seconds, 1e-9)
        found = {
            "time/steps_per_second": (self.steps - steps) / passed,
            "time/updates_per_second": (self.updates - updates) / passed,
            "time/updates": float(self.updates),
        }
        shares = {f"time/{name}_percent": 100 * part / whole for name, part in lap.items() if whole}
        return found | shares
