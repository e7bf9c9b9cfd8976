"""The callbacks ``early-stopping``, ``best-checkpoint`` and ``plateau``, which watch scores."""

from __future__ import annotations

from collections.abc import Mapping

from empo_core.protocols import Callback, Training
from empo_core.trees import StateDict, whole_number
from empo_core.types import Histogram
from empo_learning.plugin import BestCheckpointParams, EarlyStoppingParams, PlateauParams


class ScoreWatch(Callback):
    """Base class of callbacks that react to whether evaluations get better.

    Attributes:
        best: The best score so far; None before the first.
        num_failures: Evaluations in a row, the newest ones, that were no better.
    """

    needs_evaluations = True

    def __init__(self, min_improvement: float) -> None:
        """Watch; smaller improvements count as none."""
        self._min_improvement = min_improvement
        self.best: float | None = None
        self.num_failures = 0

    def is_better(self, score: float | None) -> bool:
        """True if a score is the best so far, which is then noted."""
        if score is None:
            return False
        if self.best is not None and not score > self.best + self._min_improvement:
            self.num_failures += 1
            return False
        self.best, self.num_failures = score, 0
        return True

    def state_dict(self) -> StateDict:
        """The best score and how long ago it was."""
        return {"best": self.best, "num_failures": self.num_failures}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        best = state_dict["best"]
        self.best = None if best is None else float(best)
        self.num_failures = whole_number(state_dict["num_failures"])


class EarlyStopping(ScoreWatch):
    """Stops a run whose evaluations do not get better any more."""

    def __init__(self, params: EarlyStoppingParams) -> None:
        super().__init__(params.min_improvement)
        self._patience = params.patience

    def after_evaluation(
        self, training: Training, score: float | None, metrics: Mapping[str, float | Histogram]
    ) -> None:
        """Stop after so many evaluations in a row that were no better than the best."""
        if not self.is_better(score) and self.num_failures >= self._patience:
            training.stop(
                f"early-stopping: {self.num_failures} evaluations in a row were no better than "
                f"{self.best:g}"
            )


class BestCheckpoint(ScoreWatch):
    """Writes a checkpoint after each evaluation that is the best so far."""

    def __init__(self, params: BestCheckpointParams) -> None:
        super().__init__(params.min_improvement)

    def after_evaluation(
        self, training: Training, score: float | None, metrics: Mapping[str, float | Histogram]
    ) -> None:
        """Save what is better than all before."""
        if self.is_better(score):
            training.save()


class Plateau(ScoreWatch):
    """Lowers the learning rate of a run whose evaluations do not get better any more."""

    def __init__(self, params: PlateauParams) -> None:
        super().__init__(params.min_improvement)
        self._params = params

    def after_evaluation(
        self, training: Training, score: float | None, metrics: Mapping[str, float | Histogram]
    ) -> None:
        """Multiply the rate by ``factor`` after so many evaluations that were no better."""
        params = self._params
        if not self.is_better(score) and self.num_failures >= params.patience:
            training.lr_scale = max(training.lr_scale * params.factor, params.min_scale)
            self.num_failures = 0
        training.log({"optim/lr_scale": training.lr_scale})
