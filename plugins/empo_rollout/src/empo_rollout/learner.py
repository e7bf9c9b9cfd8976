"""Learning of ``rollout`` as ``empo_learning.loop`` runs it: one rollout after the other."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import asdict

import torch

from empo_core.errors import CollectError
from empo_core.protocols import Schedule
from empo_core.random_streams import Stream, seed_of, stream
from empo_core.trees import StateDict, whole_number
from empo_environments.episode_history import why_not_exact
from empo_learning.distributed import Group
from empo_learning.episode_returns import EpisodeReturns, EpisodeStatistics
from empo_learning.evaluation.returns import GroupReturns, returns_of
from empo_learning.learner import Evaluated, EvaluationInterrupted, Learner
from empo_learning.randomness import seeded
from empo_learning.timers import Timers
from empo_rollout.collector import RolloutCollector
from empo_rollout.factory import EnvironmentFactory
from empo_rollout.params import RolloutParams
from empo_rollout.player import episodes_of
from empo_rollout.policy import Networks
from empo_rollout.ppo import Updater
from empo_rollout.remote_collector import RemoteCollector
from empo_rollout.run_warnings import RolloutWatch

log = logging.getLogger(__name__)


class RolloutLearner(Learner):
    """Collects a rollout, updates the policy with it, and so on; a tick is an iteration.

    Attributes:
        iteration: Rollouts learned from so far.
        steps: Steps of all agents so far, over all ranks.
        evaluations: Steps and returns of each evaluation.
        episode_statistics: As of the newest line of the log, over all ranks.
        watch: Looks at rollouts for what to warn of.
    """

    def __init__(
        self,
        params: RolloutParams,
        seed: int,
        environments: EnvironmentFactory,
        policy: Networks,
        collector: RolloutCollector | RemoteCollector,
        updater: Updater,
        episodes: EpisodeReturns,
        timers: Timers,
        group: Group,
        lr_schedule: Schedule,
    ) -> None:
        self._params, self._seed, self._environments = params, seed, environments
        self._policy, self._collector, self._updater = policy, collector, updater
        self._episodes, self._timers, self._group = episodes, timers, group
        self._lr_schedule = lr_schedule
        self._numbers: Mapping[str, float] = {}
        self.watch = RolloutWatch(params, environments.spec)
        self._line_steps = 0
        self._shares: Mapping[str, float] = {}
        self.iteration = self.steps = 0
        self.total_steps = params.total_steps
        self.evaluations: list[tuple[int, GroupReturns]] = []
        self.episode_statistics = episodes.statistics()

    @property
    def ticks(self) -> int:
        """Iterations."""
        return self.iteration

    @property
    def updates(self) -> int:
        """Iterations."""
        return self.iteration

    @property
    def evaluates(self) -> bool:
        """True if an evaluation has any episodes."""
        return self._params.reporting.evaluation_episodes > 0

    def start(self) -> None:
        """Begin the first episodes."""
        # Seeds of environments follow from this. Ranks must not play the same episodes, nor may a
        # run that begins anew in the middle play those at its beginning once more.
        episodes = stream(self._seed, Stream.EPISODES, self._group.rank, self.iteration)
        self._collector.start(seed_of(episodes))

    def advance(self) -> None:
        """One rollout, and the update from it."""
        progress = min(self.steps / self.total_steps, 1.0)
        with self._timers("rollout"):
            rollout = self._collector.collect(self.iteration)
        num_steps = self._group.sum(int(rollout.valid.sum()))
        if not num_steps:
            raise CollectError(
                "no agent acted in a whole rollout, so there is nothing to learn from; do the "
                "environments' agents ever live?"
            )
        self.watch.see(rollout)
        self.after_rollout()
        with self._timers("train"):
            lr_factor = self._lr_schedule(progress) * self.lr_scale
            self._numbers = self._updater.update(rollout, progress, lr_factor)
        self.iteration += 1
        normaliser = self._collector.normaliser
        if normaliser is not None and self._group.size > 1:
            fresh = torch.from_numpy(normaliser.fresh())
            normaliser.merge(self._group.stacked(fresh).numpy())
        self.steps += num_steps
        self.after_update()

    def metrics(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Numbers about the newest update, and about episodes."""
        self.episode_statistics = ended = self._episodes.statistics(self._group)
        numbers = {**self._numbers, **ended.metrics(), "time/iteration": float(self.iteration)}
        environments = seconds.get("rollout/env", 0.0) + seconds.get("rollout/send", 0.0)
        if environments:
            numbers["time/env_steps_per_second"] = (self.steps - self._line_steps) / environments
        self._line_steps = self.steps
        whole = sum(part for name, part in seconds.items() if "/" not in name)
        self._shares = {name: 100 * part / whole for name, part in seconds.items() if whole}
        return numbers

    def status(self) -> list[str]:
        """One line of timing, mean return, and reasons of episode ends."""
        return status(self._shares, self.episode_statistics)

    def evaluate(self) -> Evaluated | None:
        """Play whole episodes; in rank 0, for all."""
        episodes = self._params.reporting.evaluation_episodes
        if not episodes:
            return None
        evaluation = None
        if self._group.is_first:
            with contextlib.suppress(KeyboardInterrupt), self.interruptible():
                evaluation = self._played(episodes)
        evaluation = self._group.shared(evaluation)
        if evaluation is None:
            raise EvaluationInterrupted
        self.evaluations.append((self.steps, evaluation))
        log.info("evaluation after %s steps: %s", f"{self.steps:,}", evaluation)
        numbers = {
            "eval/return_mean": evaluation.mean_return,
            "eval/return_standard_error": evaluation.standard_error,
            "eval/length_mean": evaluation.mean_length,
        }
        return Evaluated(numbers, evaluation.mean_return)

    def state_dict(self, *, midway: bool) -> StateDict:
        """State that all ranks share, and the state of each rank.

        Midway the environments are somewhere on the way: they begin new episodes later.
        """
        normaliser = self._collector.normaliser
        rank_state = {
            "updater": self._updater.state_dict(),
            "episodes": self._episodes.state_dict(),
            "collector": None if midway else self._collector.state_dict(),
            "normaliser": None if normaliser is None else normaliser.state_dict(),
        }
        return {
            "iteration": self.iteration,
            "steps": self.steps,
            "evaluations": [[steps, asdict(returns)] for steps, returns in self.evaluations],
            "policy": self._policy.state_dict(),
            "ranks": self._group.gathered(rank_state),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from what ``state_dict`` returned in rank 0.

        Ranks beyond those that wrote it begin as rank 0 does, with environments and random numbers
        of their own.
        """
        ranks, rank = state_dict["ranks"], self._group.rank
        rank_state = ranks[rank] if rank < len(ranks) else {**ranks[0], "collector": None}
        self.iteration = whole_number(state_dict["iteration"])
        self.steps = whole_number(state_dict["steps"])
        self._line_steps = self.steps
        self.evaluations = [
            (steps, GroupReturns(**data)) for steps, data in state_dict["evaluations"]
        ]
        self._policy.load_state_dict(state_dict["policy"])
        self._updater.load_state_dict(rank_state["updater"])
        if rank >= len(ranks):
            self._updater.reseed(seed_of(stream(self._seed, Stream.BATCHES, rank)))
        self._episodes.load_state_dict(rank_state["episodes"])
        self.episode_statistics = self._episodes.statistics(self._group)
        if self._collector.normaliser is not None:
            self._collector.normaliser.load_state_dict(rank_state["normaliser"])
        if not self._put_back(rank_state["collector"]):
            self._episodes.forget_unfinished()
            log.warning(
                "the environments cannot be put back exactly where they were%s: they begin new "
                "episodes, so the run goes on, but not as it would have without a break",
                why_not_exact(rank_state["collector"]),
            )

    def _put_back(self, collector: StateDict | None) -> bool:
        """Put the environments where they were; False where that cannot be."""
        if collector is None:  # The run broke off in the middle of an iteration.
            self.start()
            return False
        return self._collector.load_state_dict(collector)

    def _played(self, episodes: int) -> GroupReturns:
        """Returns of about so many episodes of all agents together."""
        seed = stream(self._seed, Stream.EVALUATION, self.iteration)
        with seeded(seed):
            played = episodes_of(
                self._params,
                self._environments,
                self._policy,
                episodes=-(-episodes // len(self._environments.spec.agents)),
                seed=seed_of(seed),
                device=self._group.device(self._params.compute.device),
                normaliser=self._collector.normaliser,
            )
        return returns_of(played.groups, {})


def status(shares: Mapping[str, float], statistics: EpisodeStatistics) -> list[str]:
    """Remarks for people who watch a run; ``shares`` are per cent of the time by timer."""
    parts = [f"{shares.get(name, 0):.0f} % {name}" for name in ("rollout", "train")]
    if statistics.mean_return is not None:
        parts.append(f"return {statistics.mean_return:.1f}")
    counts = {name: count for name, count in statistics.reasons.items() if count}
    if counts:
        ended = sum(counts.values())
        parts.append(", ".join(f"{name} {count / ended:.0%}" for name, count in counts.items()))
    return parts
