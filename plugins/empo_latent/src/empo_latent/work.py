"""Estimates of how long the rest of a run takes, from how long its parts took so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from empo_latent.params import LatentParams

UPDATE = ("update", "replay")
"""Timers of what an update takes."""
EVALUATION = "evaluation"
"""Timer of evaluations."""
UNMEASURED = 30.0
"""Duration of an update or a planned action in steps of the environment, before one is measured."""


class Work(NamedTuple):
    """Numbers of things done, or left to do.

    Attributes:
        steps: Steps of the environments.
        decisions: Those of them whose actions are chosen, and not random.
        updates: Updates.
        evaluations: Evaluations.
    """

    steps: float
    decisions: float
    updates: float
    evaluations: float


class WorkPlan:
    """All work of a run."""

    def __init__(
        self,
        params: LatentParams,
        seed_steps: int,
        seed_updates: int,
        episode_lengths: Sequence[int],
    ) -> None:
        """Plan a run with so many random steps, updates after them, and steps of an episode."""
        reporting, self._total = params.reporting, params.total_steps
        self._envs, self._seed_updates = params.num_envs, seed_updates
        # All environments step at once, so that there may be more random steps than are asked for.
        self._seed_steps = -(-seed_steps // self._envs) * self._envs
        self._updates_per_step = params.learning.updates_per_step
        self._plans = params.collection.acting == "planner"
        # Where the planner is evaluated, what the policy takes beside it does not matter.
        self._evaluates_planner = "planner" in reporting.evaluate
        self._evaluations, self._evaluation_steps = 0, 0
        if reporting.evaluation_episodes:
            self._evaluations = -(-self._total // (reporting.evaluation_interval or self._total))
            self._evaluation_steps = reporting.evaluation_episodes * sum(episode_lengths)

    def decisions(self, steps: float) -> float:
        """How many of so many steps have actions that are chosen, and not random."""
        return max(0.0, steps - self._seed_steps)

    def left(self, done: Work, owed_updates: float) -> Work:
        """What is left when updates are owed for steps that are done."""
        later = self.decisions(self._total) - self.decisions(done.steps)
        updates = owed_updates + self._updates_per_step * max(0.0, later)
        updates += self._seed_updates if done.steps < self._seed_steps else 0
        evaluations = max(0.0, self._evaluations - done.evaluations)
        return Work(self._total - done.steps, max(0.0, later), updates, evaluations)

    def seconds_left(
        self,
        total_seconds: Mapping[str, float],
        first: Mapping[str, float],
        done: Work,
        owed_updates: float,
    ) -> float:
        """Seconds that what is left takes at the rates so far.

        The first update and the first choice of actions of this attempt are left out of the rates:
        they may have been compiled, which takes as long as thousands of others.

        Args:
            total_seconds: Seconds so far, by name of the timer.
            first: Those of them that its first measurement took, by name of the timer.
            done: What they were spent on.
            owed_updates: Updates that steps have paid for.
        """
        step = total_seconds.get("environment", 0.0) / done.steps if done.steps else 1e-3
        later = {name: seconds - first.get(name, 0.0) for name, seconds in total_seconds.items()}
        decisions = done.decisions - self._envs * ("act" in first)
        decision = later.get("act", 0.0) / decisions if decisions > 0 else UNMEASURED * step
        updates = done.updates - ("update" in first)
        updating = sum(later.get(name, 0.0) for name in UPDATE)
        update = updating / updates if updates > 0 else UNMEASURED * step
        evaluation = self._evaluation_steps * (step + self._evaluated_decision(step, decision))
        if done.evaluations:
            evaluation = total_seconds.get(EVALUATION, 0.0) / done.evaluations
        unit_seconds = (step, decision, update, evaluation)
        left = self.left(done, owed_updates)
        return sum(number * seconds for number, seconds in zip(left, unit_seconds, strict=True))

    def _evaluated_decision(self, step: float, decision: float) -> float:
        """Seconds of a decision in an evaluation, by those of a step and of one in training."""
        if self._evaluates_planner == self._plans:
            return decision
        return max(decision, UNMEASURED * step) if self._evaluates_planner else step
