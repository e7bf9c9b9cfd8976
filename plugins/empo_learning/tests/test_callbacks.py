"""Callbacks that watch scores, in the run loop of a learner whose scores are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from empo_core.protocols import Callback, RunContext, Training
from empo_learning.callbacks import BestCheckpoint, EarlyStopping, Plateau
from empo_learning.checkpoint import Checkpoints
from empo_learning.learner import Evaluated, Learner
from empo_learning.loop import CHECKPOINTS, Loop
from empo_learning.params import Reporting
from empo_learning.plugin import BestCheckpointParams, EarlyStoppingParams, PlateauParams
from empo_testing.algorithm import RecordingTracker
from empo_testing.callback import CallbackTests


class Scored(Learner):
    """Counts steps; each evaluation has the score that is due after them."""

    def __init__(self, scores: Sequence[float]) -> None:
        self.steps, self.total_steps, self._scores = 0, len(scores), scores

    def start(self) -> None:
        """Nothing."""

    def advance(self) -> None:
        self.steps += 1

    def metrics(self, seconds: Mapping[str, float]) -> dict[str, float]:
        return {}

    def evaluate(self) -> Evaluated | None:
        score = float(self._scores[self.steps - 1])
        return Evaluated({"eval/score": score}, score)

    def state_dict(self, *, midway: bool) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.steps = state_dict["steps"]


class Lines(RecordingTracker):
    """Remembers numbers by step."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[int, dict[str, Any]] = {}

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.lines.setdefault(step, {}).update(metrics)


class TestEarlyStopping(CallbackTests):
    @pytest.fixture
    def callback(self) -> Callback:
        return EarlyStopping(EarlyStoppingParams(patience=4))

    @pytest.fixture
    def other(self) -> Callback:
        return EarlyStopping(EarlyStoppingParams(patience=4))


class TestBestCheckpoint(CallbackTests):
    @pytest.fixture
    def callback(self) -> Callback:
        return BestCheckpoint(BestCheckpointParams())

    @pytest.fixture
    def other(self) -> Callback:
        return BestCheckpoint(BestCheckpointParams())


class TestPlateau(CallbackTests):
    @pytest.fixture
    def callback(self) -> Callback:
        return Plateau(PlateauParams(patience=2))

    @pytest.fixture
    def other(self) -> Callback:
        return Plateau(PlateauParams(patience=2))


def ran(
    folder: Path, callbacks: Sequence[Callback], scores: Sequence[float], **reporting: int
) -> tuple[Scored, Lines, Loop]:
    """A run that is evaluated at every step; ``scores`` are those of steps 1, 2, ..."""
    learner, tracker = Scored(scores), Lines()
    context = RunContext(
        world=None, seed=0, directory=folder, tracker=tracker, resume=False, callbacks=callbacks
    )
    chosen = {"log_interval": 1, "evaluation_interval": 1, "checkpoint_interval": 0, **reporting}
    loop = Loop(learner, context, Reporting.model_validate(chosen))
    loop.run()
    return learner, tracker, loop


@pytest.mark.parametrize(
    ("params", "steps"),
    [
        ({"patience": 1}, 3),
        ({"patience": 2}, 7),
        ({"patience": 3}, 8),
        ({"patience": 5}, 9),
        ({"patience": 3, "min_improvement": 1.5}, 7),
    ],
)
def test_early_stopping_waits_for_so_many_evaluations_in_a_row(
    tmp_path: Path, params: dict[str, Any], steps: int
) -> None:
    callback = EarlyStopping(EarlyStoppingParams.model_validate(params))
    learner, _, loop = ran(tmp_path, [callback], [1, 2, 2, 3, 4, 3.5, 4, 1, 2])
    assert learner.steps == steps
    reason = loop.record.stop_reason
    assert reason is None if params["patience"] == 5 else "early-stopping" in str(reason)


def test_the_best_evaluation_leaves_a_checkpoint(tmp_path: Path) -> None:
    ran(tmp_path, [BestCheckpoint(BestCheckpointParams())], [1, 2, 5, 3, 4], keep_checkpoints=1)
    checkpoints = Checkpoints(tmp_path / CHECKPOINTS)
    assert checkpoints.steps() == [3, 5]
    best = checkpoints.best()
    assert best is not None
    assert best[1]["learner"]["steps"] == 3


def test_without_it_the_best_evaluation_is_lost(tmp_path: Path) -> None:
    ran(tmp_path, [], [1, 2, 5, 3, 4], keep_checkpoints=1)
    assert Checkpoints(tmp_path / CHECKPOINTS).steps() == [5]


def test_a_plateau_lowers_the_rate_as_far_as_it_may(tmp_path: Path) -> None:
    params = PlateauParams(patience=2, factor=0.1, min_scale=0.05)
    learner, tracker, _ = ran(tmp_path, [Plateau(params)], [3, 1, 1, 1, 1, 4, 4, 4])
    scales = [tracker.lines[step]["optim/lr_scale"] for step in range(1, 9)]
    assert scales == [1, 1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05]
    assert learner.lr_scale == 0.05


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_nobody_could_learn_with_is_an_error_of_the_callback(
    tmp_path: Path, scale: float
) -> None:
    class Breaks(Callback):
        def after_evaluation(self, training: Training, *_: object) -> None:
            training.lr_scale = scale

    with pytest.raises(Exception, match=r"Breaks.*after_evaluation.*lr_scale"):
        ran(tmp_path, [Breaks()], [1, 2, 3])


def test_hooks_come_in_their_order_and_see_the_run(tmp_path: Path) -> None:
    calls: list[Any] = []

    class Notes(Callback):
        def start(self, training: Training) -> None:
            calls.append(("start", training.total_steps, training.evaluation_interval))

        def after_evaluation(self, training: Training, score: Any, metrics: Any) -> None:
            calls.append((training.steps, score, training.scores, metrics))
            training.stop("enough")
            training.stop("never said")

        def finish(self, training: Training) -> None:
            calls.append(training.stop_reason)

    ran(tmp_path, [Notes()], [7, 8, 9])
    assert calls == [("start", 3, 1), (1, 7, (7,), {"eval/score": 7}), "enough"]
