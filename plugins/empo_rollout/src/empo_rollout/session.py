"""A run of ``rollout`` in progress: it collects, trains, reports, and can stop and go on."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

import torch

from empo_core.errors import CollectError, ConfigError, EmpoError, NonFiniteError, StorageError
from empo_core.protocols import EpisodeTracker, Narrator, Rewindable, RunContext
from empo_learning.checkpoint import Checkpoints
from empo_learning.interrupts import Interrupts
from empo_learning.randomness import capture, restore
from empo_learning.timers import Timers
from empo_rollout.collector import RolloutCollector
from empo_rollout.episodes import Episodes, Record
from empo_rollout.evaluation import Evaluation, evaluate
from empo_rollout.factory import Environments
from empo_rollout.learning.distributed import Group
from empo_rollout.learning.updater import Updater
from empo_rollout.params import RolloutParams
from empo_rollout.policies.protocols import ActorCritic

log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
TASK = "training"
RANK_SEEDS = 2**40
"""How far apart the seeds of two processes are that learn together."""
EVALUATION_SEED = 1_000_003
"""Added to the run's seed, so that evaluations play other episodes than training."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How a run stood after an iteration.

    Attributes:
        steps: Steps of all agents so far.
        seconds: How long they took.
        mean_return: Of the newest episodes; NaN before any.
        mean_length: Likewise.
    """

    steps: int
    seconds: float
    mean_return: float
    mean_length: float


class Session:
    """The moving parts of a run, and the loop that moves them.

    Attributes:
        iteration: Rollouts learned from so far.
        steps: Steps of all agents so far, over all ranks.
        seconds: How long they took, over all attempts.
        history: How it stood after each iteration.
        evaluations: Iteration, steps and outcome of each evaluation.
        record: What became of episodes, after the newest iteration.
    """

    def __init__(
        self,
        params: RolloutParams,
        context: RunContext,
        environments: Environments,
        policy: ActorCritic,
        collecting: RolloutCollector,
        updater: Updater,
        episodes: Episodes,
        timers: Timers,
        group: Group,
    ) -> None:
        """Put the parts together.

        Args:
            params: Everything about the run.
            context: What the run was given.
            environments: Makes those that evaluations play in.
            policy: Acts, and is learned.
            collecting: Lets it act.
            updater: Lets it learn.
            episodes: What became of episodes.
            timers: Where the time goes.
            group: The processes that learn together.
        """
        self._params, self._context, self._environments = params, context, environments
        self._policy, self._collecting, self._updater = policy, collecting, updater
        self._episodes, self._timers, self._group = episodes, timers, group
        self._checkpoints = Checkpoints(
            context.directory / CHECKPOINTS, keep=params.reporting.keep_checkpoints
        )
        self._saved: int | None = None
        self._between = True
        self._steps_seen = 0
        self.iteration = 0
        self.steps = 0
        self.seconds = 0.0
        self.history: list[Mark] = []
        self.evaluations: list[tuple[int, int, Evaluation]] = []
        self.record = episodes.record(Group())

    def train(self) -> None:
        """Train until all steps are done, from wherever the session stands.

        Raises:
            KeyboardInterrupt: The run was stopped; there is a checkpoint to go on from.
            EmpoError: It cannot go on; there is a checkpoint with all that was learned.
        """
        with Interrupts() as interrupts:
            try:
                while not self._is_over:
                    self._check(interrupts)
                    self._advance()
                self._evaluate()
            except StorageError:
                raise  # The disk refused a checkpoint; it would refuse another one.
            except (KeyboardInterrupt, EmpoError) as error:
                try:
                    self._rescue()
                except NonFiniteError as refusal:
                    error.add_note(f"There is no checkpoint of this iteration: {refusal}")
                raise
        self._context.tracker.progress(TASK, self._params.total_steps, self._params.total_steps)

    def start(self) -> None:
        """Begin the first episodes."""
        # Seeds of environments are derived from this; ranks must not play the same episodes.
        self._collecting.start(self._context.seed + self._group.rank * RANK_SEEDS)

    def resume(self) -> None:
        """Go on from the newest checkpoint that can be loaded; begin where there is none.

        Raises:
            StorageError: There are checkpoints, but all are damaged.
            ConfigError: Another number of processes wrote them.
        """
        group = self._group
        found = self._checkpoints.newest() if group.is_first else None
        ranks = found[1].pop("ranks") if found else []
        found = group.shared(found)
        if found is None:
            self.start()
            self._rewind()
            return
        self.iteration, state = found
        self._saved = self.iteration
        self._load(state, group.shared(len(ranks)), ranks)
        self._rewind()
        log.info("going on from iteration %d, %s steps", self.iteration, f"{self.steps:,}")

    def _load(self, state: Mapping[str, Any], num_ranks: int, ranks: list[Any]) -> None:
        """Take over what a checkpoint says of all processes, and of each."""
        if num_ranks != self._group.size:
            raise ConfigError(
                f"{self._context.directory}: {num_ranks} processes wrote its checkpoint, and "
                f"{self._group.size} would go on; start as many, with torchrun if several"
            )
        own = self._group.scattered(ranks)
        self.steps, self.seconds = state["steps"], state["seconds"]
        self._steps_seen = self.steps
        self.history = [Mark(int(row[0]), *row[1:]) for row in state["history"].tolist()]
        self.evaluations = [(i, n, Evaluation(**each)) for i, n, each in state["evaluations"]]
        self._policy.load_state_dict(state["policy"])
        self._timers.load_state_dict(state["timers"])
        if isinstance(self._context.tracker, EpisodeTracker):
            self._context.tracker.load_state_dict(state["tracker"])
        self._updater.load_state_dict(own["updater"])
        self._episodes.load_state_dict(own["episodes"])
        self.record = self._episodes.record(self._group)
        if not self._put_back(own["collecting"]):
            self._episodes.forget_unfinished()
            log.warning(
                "the environments cannot be put back exactly where they were: they begin new "
                "episodes, so the run goes on, but not as it would have without a break"
            )
        restore(own["randomness"])

    def _check(self, interrupts: Interrupts) -> None:
        """Stop here if somebody asked for it, all processes after the same iteration."""
        try:
            interrupts.check()
            stop = 0
        except KeyboardInterrupt:
            stop = 1
        if self._group.sum(stop):
            raise KeyboardInterrupt

    def _put_back(self, collecting: Mapping[str, Any] | None) -> bool:
        """Put the environments where they were; False where that cannot be."""
        if collecting is None:  # The run broke off in the middle of an iteration.
            self.start()
            return False
        return self._collecting.load_state_dict(collecting)

    def _advance(self) -> None:
        """One rollout, and what is learned from it."""
        began, progress = time.perf_counter(), self.progress
        self._between = False
        with self._timers("rollout"):
            rollout = self._collecting.collect(self.iteration)
        with self._timers("train"):
            metrics = self._updater.update(rollout, progress)
        self.iteration += 1
        taken = self._group.sum(int(rollout.valid.sum()))
        if not taken:
            raise CollectError(
                "nobody acted in a whole rollout, so there is nothing to learn from; do the "
                "environments' agents ever live?"
            )
        self.steps += taken
        self._between = True
        self.seconds += time.perf_counter() - began
        self._mark(metrics)
        reporting = self._params.reporting
        if self._is_due(reporting.evaluation_interval) and not self._is_over:
            self._evaluate()
        if self._is_due(reporting.checkpoint_interval) or self._is_over:
            self.save()

    @property
    def progress(self) -> float:
        """Share of the run's steps that are done, at most 1."""
        return min(self.steps / self._params.total_steps, 1.0)

    @property
    def _is_over(self) -> bool:
        """Whether all steps are done, or the policy is as good as was asked for."""
        goal = self._params.reporting.solved_at
        solved = bool(
            goal is not None and self.evaluations and self.evaluations[-1][2].mean_return >= goal
        )
        return solved or self.steps >= self._params.total_steps

    def _is_due(self, interval: int) -> bool:
        return interval > 0 and self.iteration % interval == 0

    def _evaluate(self) -> None:
        """Play whole episodes, unless that was just done."""
        episodes = self._params.reporting.evaluation_episodes
        if not episodes or (self.evaluations and self.evaluations[-1][0] == self.iteration):
            return
        with self._timers("evaluation"):
            found = self._group.shared(self._played(episodes) if self._group.is_first else None)
        assert found is not None
        self.evaluations.append((self.iteration, self.steps, found))
        self._context.tracker.log(self.steps, found.metrics())
        log.info("evaluation after %s steps: %s", f"{self.steps:,}", found)

    def _played(self, episodes: int) -> Evaluation:
        vector, each = self._environments.evaluation(episodes)
        try:
            return evaluate(
                self._policy,
                vector,
                episodes_each=each,
                most_steps=self._params.reporting.evaluation_steps,
                seed=self._context.seed + EVALUATION_SEED + self.iteration,
                deterministic=self._params.reporting.deterministic,
                compute=self._params.compute,
                device=self._group.device(self._params.compute.device),
            )
        finally:
            vector.close()

    def _mark(self, metrics: Mapping[str, float]) -> None:
        """Note how the run stands, and tell the trackers."""
        tracker, record = self._context.tracker, self._episodes.record(self._group)
        self.record = record
        means = (record.mean_return, record.mean_length)
        self.history.append(
            Mark(self.steps, self.seconds, *(math.nan if mean is None else mean for mean in means))
        )
        tracker.progress(TASK, min(self.steps, self._params.total_steps), self._params.total_steps)
        if self.iteration % self._params.reporting.log_interval and not self._is_over:
            return
        times = self._times()
        tracker.log(self.steps, {**metrics, **record.metrics(), **times})
        if isinstance(tracker, Narrator):
            tracker.narrate(TASK, line(times, record))

    def _times(self) -> dict[str, float]:
        """How fast the run is, and where the time went since the last look."""
        lap = self._timers.lap()
        whole = sum(seconds for name, seconds in lap.items() if "/" not in name)
        learning = whole - lap.get("evaluation", 0.0)
        steps = self.steps - self._steps_seen
        self._steps_seen = self.steps
        found = {
            "time/sps": steps / learning,
            "time/sps_total": self.steps / self.seconds,
            "time/iteration": float(self.iteration),
        }
        env = lap.get("rollout/env", 0) + lap.get("rollout/send", 0)
        if env:
            found["time/sps_env"] = steps / env
        shares = {f"time/{name}_percent": 100 * part / whole for name, part in lap.items()}
        return found | shares

    def save(self) -> None:
        """Write a checkpoint, from which the run can go on exactly."""
        self._write(self._collecting.state_dict())

    def _rescue(self) -> None:
        """Write a checkpoint although the run broke off, if there is none of this iteration.

        In the middle of an iteration the environments are somewhere on the way; all that was
        learned is kept, and they begin new episodes.
        """
        # Several processes may have stopped at different places: they cannot agree any more.
        if self._saved != self.iteration and (self._between or self._group.size == 1):
            self._write(self._collecting.state_dict() if self._between else None)

    def _write(self, collecting: Mapping[str, Any] | None) -> None:
        tracker = self._context.tracker
        own = {
            "updater": self._updater.state_dict(),
            "episodes": self._episodes.state_dict(),
            "collecting": collecting,
            "randomness": capture(),
        }
        ranks = self._group.gathered(own)
        self._saved = self.iteration
        if not self._group.is_first:
            return
        marks = [astuple(mark) for mark in self.history]
        state = {
            "steps": self.steps,
            "seconds": self.seconds,
            "history": torch.tensor(marks, dtype=torch.float64).view(-1, len(fields(Mark))),
            "evaluations": [[i, n, asdict(each)] for i, n, each in self.evaluations],
            "policy": self._policy.state_dict(),
            "timers": self._timers.state_dict(),
            "tracker": tracker.state_dict() if isinstance(tracker, EpisodeTracker) else {},
            "ranks": ranks,
        }
        last = self.evaluations[-1] if self.evaluations else None
        score = last[2].mean_return if last and last[0] == self.iteration else None
        self._checkpoints.save(self.iteration, state, score=score)

    def _rewind(self) -> None:
        """Let trackers forget what an interrupted attempt logged after this step."""
        if isinstance(self._context.tracker, Rewindable):
            self._context.tracker.rewind(self.steps)


def line(times: Mapping[str, float], record: Record) -> str:
    """A run in one line, for people who watch it."""
    parts = [
        f"{times['time/sps']:,.0f} steps/s",
        f"{times.get('time/rollout_percent', 0):.0f} % rollout",
        f"{times.get('time/train_percent', 0):.0f} % train",
    ]
    if record.mean_return is not None:
        parts.append(f"return {record.mean_return:.1f}")
    ended = sum(record.reasons.values())
    if ended:
        reasons = (f"{name} {count / ended:.0%}" for name, count in record.reasons.items() if count)
        parts.append(", ".join(reasons))
    return " | ".join(parts)
