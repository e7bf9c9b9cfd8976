"""Learning of ``phase2`` as ``empo_learning.loop`` runs it: collect, train, publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from empo_core.protocols import Collector, Weights
from empo_core.stages import Tell, stage
from empo_core.trees import StateDict, whole_number
from empo_core.types import Fit, Quantity
from empo_learning.bounded_curve import BoundedCurve
from empo_learning.learner import Evaluated
from empo_learning.learner import Learner as LoopLearner
from empo_learning.timers import Timers
from empo_phase2 import metrics
from empo_phase2.blind_spots import EnteredSituations, blind_spots
from empo_phase2.compare import Comparison
from empo_phase2.experience import Block
from empo_phase2.explorers.explorer_set import ExplorerSet
from empo_phase2.learner import Learner
from empo_phase2.params import Phase2Params
from empo_phase2.replay.buffer import Replay
from empo_phase2.targets import BatchTargets
from empo_phase2.values import ValueEstimator
from empo_phase2.warmup import WarmUpSchedule

WORST_MISFIT = 0.25
"""Distance from targets, relative to their size, above which nothing was learned yet."""

WORST_GAP = 0.1
"""Error of V_r at the start, relative to the right value, above which results are wrong."""


class Phase2Learner(LoopLearner):
    """One training step after the other, each with the experience that is due before it.

    Attributes:
        losses: The loss of each quantity at each line of the log, thinned out in long runs.
    """

    def __init__(
        self,
        params: Phase2Params,
        learner: Learner,
        learned: ValueEstimator,
        replay: Replay,
        collector: Collector,
        explorers: ExplorerSet,
        timers: Timers,
        comparison: Comparison | None,
        tell: Tell,
    ) -> None:
        self._params, self._schedule = params, WarmUpSchedule(params)
        self._learner, self._learned, self._replay = learner, learned, replay
        self._collector, self._explorers = collector, explorers
        self._timers, self._comparison, self._tell = timers, comparison, tell
        self._entered = EnteredSituations()
        self._published: Weights = {}
        self._exploration: dict[str, float] = {}
        self._newest: tuple[BatchTargets, Mapping[Quantity, Fit]] | None = None
        self.steps = self._line_steps = 0
        self.total_steps = params.total_steps
        self.losses: BoundedCurve[tuple[int, dict[str, float]]] = BoundedCurve()

    def start(self) -> None:
        """Publish the initial weights."""
        self._publish()

    def advance(self) -> None:
        """Collect what is due, and train once if there is anything to train on."""
        if len(self._replay):
            self._collect()
        else:
            with stage(self._tell, "first experience"):
                self._collect()
        if len(self._replay) == 0:
            return
        self._newest = self._learner.step(self.steps, self._replay)
        self.steps += 1
        if self.steps % self._params.optimiser.publish_interval == 0:
            self._publish()

    def warnings(self, describe: Callable[[Tensor], str]) -> list[str]:
        """What is wrong with what was learned, as far as that can be told; ``describe`` a state."""
        texts = [] if self._newest is None else [*self._misfits(*self._newest)]
        return [*texts, *self._gap(), *self._blind_spots(describe)]

    def _misfits(self, targets: BatchTargets, fits: Mapping[Quantity, Fit]) -> Iterator[str]:
        """Quantities that training leaves far from their targets."""
        for quantity in fits:
            # Samples scatter around what is learned, however well it is.
            if not self._learner.is_sampled:
                misfit = self._learner.misfit(quantity, targets)
                if misfit > WORST_MISFIT:
                    yield (
                        f"{quantity} is still off its targets by {misfit:.0%} on average, so "
                        "results mean little: train longer (algorithm.params.total_steps), or "
                        "raise or leave out algorithm.params.optimiser.lr"
                    )

    def _gap(self) -> Iterator[str]:
        """The error at the start, where the right value is known."""
        if self._comparison is not None and self._comparison.history:
            off = self._comparison.history[-1].metrics["Compare/V_r_root_rel"]
            if off > WORST_GAP:
                yield (
                    f"V_r at the start is {off:.0%} off the right value: train longer "
                    "(algorithm.params.total_steps)"
                )

    def _blind_spots(self, describe: Callable[[Tensor], str]) -> Iterator[str]:
        """Situations that were never entered, and X_h at its floor."""
        if not len(self._replay):
            return
        values, device = self._learner.values, self._params.compute.device
        spots = blind_spots(self._replay, self._entered, values, device)
        if warning := spots.warning(values.spec, describe):
            yield warning

    def metrics(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Numbers about the newest training step, and about collection."""
        numbers = metrics.of_collection(self._collector, self._replay) | self._exploration
        if self._newest is not None:
            targets, fits = self._newest
            self.losses.append((self.steps, {q: float(fit.loss) for q, fit in fits.items()}))
            numbers |= metrics.of_step(self.steps - 1, self._schedule, self._learner, targets, fits)
        if self._timers.enabled:
            numbers |= metrics.of_stages(self._timers.lap(), max(self.steps - self._line_steps, 1))
        self._line_steps = self.steps
        return numbers

    def evaluate(self) -> Evaluated | None:
        """The gap to the right values, where they are known."""
        if self._comparison is None:
            return None
        with self.interruptible():
            gap = self._comparison.record(self.steps, self._learned)
        named = {name.replace("Compare/", "eval/").lower(): value for name, value in gap.items()}
        return Evaluated(named, -gap["Compare/V_r_mean_rel"])

    def state_dict(self, *, midway: bool) -> StateDict:
        """Everything needed to resume exactly."""
        return {
            "steps": self.steps,
            "losses": self.losses.state_dict(),
            "learner": self._learner.state_dict(),
            "replay": self._replay.state_dict(),
            "published": dict(self._published),
            "collector": self._collector.state_dict(),
            "explorers": self._explorers.state_dict(),
            "comparison": self._comparison.state_dict() if self._comparison else None,
            "entered": self._entered.state_dict(),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from what ``state_dict`` returned."""
        self.steps = self._line_steps = whole_number(state_dict["steps"])
        self.losses.load_state_dict(state_dict["losses"])
        self._learner.load_state_dict(state_dict["learner"])
        self._replay.load_state_dict(state_dict["replay"])
        self._published = state_dict["published"]
        self._collector.publish(self._published, self.steps)
        self._collector.load_state_dict(state_dict["collector"])
        self._explorers.load_state_dict(state_dict["explorers"])
        if self._comparison:
            self._comparison.load_state_dict(state_dict["comparison"])
        self._entered.load_state_dict(state_dict["entered"])

    def _collect(self) -> None:
        """Put what actors bring into the replay, and let explorers learn from it."""
        for experience in self._collector.collect(self.steps):
            block = Block.from_arrays(experience.arrays)
            self._replay.add(block, training_step=self.steps)
            self._entered.add(block)
            if self._comparison:
                self._comparison.observe(block)
            if self._explorers.learns:
                self._exploration = self._explorers.learn(block)

    def _publish(self) -> None:
        """Send the newest values to the actors."""
        weights = self._learner.published() | self._explorers.weights()
        self._collector.publish(weights, self.steps)
        self._published = weights
