"""A run of ``phase2`` in progress: it collects, trains, reports, and can stop and go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from empo_core.errors import EmpoError, NonFiniteError, StorageError
from empo_core.protocols import Collector, Rewindable, RunContext, Weights
from empo_core.types import Fit, Quantity
from empo_learning.checkpoint import Checkpoints
from empo_learning.interrupts import Interrupts
from empo_learning.randomness import capture, restore
from empo_learning.stage_profile import StageProfile
from empo_phase2 import metrics
from empo_phase2.compare import Comparison
from empo_phase2.experience import Block
from empo_phase2.explorers.explorer_set import ExplorerSet
from empo_phase2.learner import Learner
from empo_phase2.params import Phase2Params
from empo_phase2.replay.buffer import Replay
from empo_phase2.targets import BatchTargets
from empo_phase2.values import ValueEstimator
from empo_phase2.warmup import WarmUpSchedule

log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
TASK = "training"
SHOW_S = 0.2
"""Seconds between signs of progress."""


class Session:
    """The moving parts of a run, and the loop that moves them.

    Attributes:
        step: Training steps so far.
        seconds: How long they took, over all attempts.
        losses: The loss of each quantity, now and then.
    """

    def __init__(
        self,
        params: Phase2Params,
        context: RunContext,
        learner: Learner,
        replay: Replay,
        collector: Collector,
        team: ExplorerSet,
        profile: StageProfile,
        comparison: Comparison | None,
    ) -> None:
        """Put the parts together.

        Args:
            params: Everything about the run.
            context: What the run was given.
            learner: Trains.
            replay: Remembers.
            collector: Brings experience; started already.
            team: The learner's copies of the explorers, of which some learn.
            profile: Measures the stages of target computation.
            comparison: What the values are compared with; None compares with nothing.
        """
        self._params, self._context, self._schedule = params, context, WarmUpSchedule(params)
        self._learner, self._replay, self._collector = learner, replay, collector
        self._team, self._profile, self._comparison = team, profile, comparison
        self._checkpoints = Checkpoints(
            context.directory / CHECKPOINTS, keep=params.reporting.keep_checkpoints
        )
        self._published: Weights = {}
        self._exploration: dict[str, float] = {}
        self._shown = 0.0
        self.step = 0
        self.seconds = 0.0
        self.losses: list[tuple[int, dict[str, float]]] = []

    def train(self, learned: ValueEstimator) -> None:
        """Train until all steps are done, from wherever the session stands.

        Args:
            learned: What the learner says about states of the world.

        Raises:
            KeyboardInterrupt: The run was stopped; there is a checkpoint to go on from.
            EmpoError: It cannot go on; there is a checkpoint of where it stood, with nothing in it
                that is not finite.
        """
        with Interrupts() as interrupts:
            try:
                if not self._published:
                    self._publish()
                while self.step < self._params.steps:
                    interrupts.check()
                    self._advance(learned)
            except StorageError:
                raise  # The disk refused a checkpoint; it would refuse another one.
            except (KeyboardInterrupt, EmpoError) as error:
                try:
                    self.save()
                except NonFiniteError as refusal:
                    error.add_note(f"There is no checkpoint of this step: {refusal}")
                raise
        self._context.tracker.progress(TASK, self.step, self._params.steps)

    def resume(self) -> None:
        """Go on from the newest checkpoint that can be loaded; from the start where there is none.

        Raises:
            StorageError: There are checkpoints, but all are damaged.
        """
        found = self._checkpoints.newest()
        if found is None:
            self._rewind()
            return
        self.step, state = found
        self.seconds = state["seconds"]
        self.losses = [(step, losses) for step, losses in state["losses"]]
        self._learner.load_state_dict(state["learner"])
        self._replay.load_state_dict(state["replay"])
        self._published = state["published"]
        self._collector.publish(self._published, self.step)
        self._collector.load_state_dict(state["collector"])
        self._team.load_state_dict(state["team"])
        if self._comparison:
            self._comparison.load_state_dict(state["comparison"])
        restore(state["randomness"])
        self._rewind()
        log.info("going on from step %d", self.step)

    def _rewind(self) -> None:
        """Let trackers forget what an interrupted attempt logged after this step."""
        if isinstance(self._context.tracker, Rewindable):
            self._context.tracker.rewind(self.step)

    def save(self) -> None:
        """Write a checkpoint."""
        state = {
            "seconds": self.seconds,
            "losses": [[step, losses] for step, losses in self.losses],
            "learner": self._learner.state_dict(),
            "replay": self._replay.state_dict(),
            "published": dict(self._published),
            "collector": self._collector.state_dict(),
            "team": self._team.state_dict(),
            "comparison": self._comparison.state_dict() if self._comparison else None,
            "randomness": capture(),
        }
        self._checkpoints.save(self.step, state, score=self._score())

    def _score(self) -> float | None:
        """How good the values are, where that is known; the best checkpoint is kept."""
        if self._comparison is None or not self._comparison.history:
            return None
        return -self._comparison.history[-1].metrics["Compare/V_r_mean_rel"]

    def _advance(self, learned: ValueEstimator) -> None:
        """Collect what is due, and train once if there is anything to train on."""
        began = time.perf_counter()
        self._collect()
        if len(self._replay) == 0:
            return
        targets, fits = self._learner.step(self.step, self._replay)
        self.step += 1
        if self.step % self._params.optimisation.publish_interval == 0:
            self._publish()
        self.seconds += time.perf_counter() - began
        self._report(targets, fits)
        if self._comparison and self._is_due(self._params.reporting.compare_interval):
            self._context.tracker.log(self.step, self._comparison.record(self.step, learned))
        if self._is_due(self._params.reporting.checkpoint_interval):
            self.save()

    def _collect(self) -> None:
        """Remember what actors bring, and let explorers learn from it."""
        for experience in self._collector.collect(self.step):
            block = Block.from_arrays(experience.arrays)
            self._replay.add(block, actor=experience.actor, training_step=self.step)
            if self._comparison:
                self._comparison.observe(block)
            if self._team.learns:
                self._exploration = self._team.learn(block)

    def _is_due(self, interval: int) -> bool:
        return self.step % interval == 0 or self.step == self._params.steps

    def _publish(self) -> None:
        """Send the newest values to whoever acts."""
        weights = self._learner.published() | self._team.weights()
        self._collector.publish(weights, self.step)
        self._published = weights

    def _report(self, targets: BatchTargets, fits: Mapping[Quantity, Fit]) -> None:
        """Tell the trackers how it goes, now and then."""
        tracker, reporting, now = self._context.tracker, self._params.reporting, time.monotonic()
        if now - self._shown > SHOW_S or self.step == self._params.steps:
            tracker.progress(TASK, self.step, self._params.steps)
            self._shown = now
        if self._is_due(reporting.log_interval):
            numbers = metrics.of_step(self.step - 1, self._schedule, self._learner, targets, fits)
            self.losses.append((self.step, {q: float(fit.loss) for q, fit in fits.items()}))
            numbers |= metrics.of_collection(self._collector, self._replay) | self._exploration
            tracker.log(self.step, numbers)
        if reporting.profile_batching and self._is_due(reporting.profile_batching_interval):
            tracker.log(self.step, metrics.of_profile(self._profile))
            log.info("%s", metrics.as_text(self._profile.table()))
            self._profile.reset()
