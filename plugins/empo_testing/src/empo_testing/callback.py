"""Conformance kit of callbacks: follow any run, disturb nothing, and go on from their state."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from empo_core.protocols import Callback, Training
from empo_core.suggestions import nearest
from empo_learning.state_tree import flatten
from empo_testing.exploration import global_randomness_untouched, stored

SCORES = (1.0, 3.0, 2.0, 2.5, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0)
"""Scores of evaluations that get better, then worse, then better again."""
RESEMBLANCE = 0.82
"""Share of common letters from which a method counts as a misspelt hook."""


class CallbackTests:
    """Subclass this in your plugin's tests and override ``callback``."""

    @pytest.fixture
    def callback(self) -> Callback:
        """A fresh callback that has not started."""
        raise NotImplementedError("override the fixture 'callback'")

    @pytest.fixture
    def other(self) -> Callback | None:
        """A second one, made like the first; None leaves out the test of its state."""
        return None

    @pytest.fixture
    def training(self, tmp_path: Path) -> Training:
        """A run that has not begun."""
        return training_of(tmp_path)

    def test_it_is_a_callback(self, callback: Callback) -> None:
        assert isinstance(callback, Callback)

    def test_no_hook_is_misspelt(self, callback: Callback) -> None:
        hooks = [name for name in vars(Callback) if not name.startswith("_")]
        for name, member in vars(type(callback)).items():
            if callable(member) and not name.startswith("_") and name not in hooks:
                hook = nearest(name, hooks, cutoff=RESEMBLANCE)
                assert hook is None, f"no run calls {name!r}; the hook of callbacks is {hook!r}"

    def test_a_whole_run_can_be_followed(self, callback: Callback, training: Training) -> None:
        callback.start(training)
        follow(callback, training, SCORES)
        callback.finish(training)
        assert math.isfinite(training.lr_scale)
        assert training.lr_scale > 0

    def test_a_run_may_end_before_anything_happens(
        self, callback: Callback, training: Training
    ) -> None:
        callback.start(training)
        callback.finish(training)

    def test_an_evaluation_may_have_no_score(self, callback: Callback, training: Training) -> None:
        callback.start(training)
        callback.after_evaluation(training, None, {})

    def test_its_state_can_be_stored_at_any_time(
        self, callback: Callback, training: Training
    ) -> None:
        stored(callback.state_dict())
        callback.start(training)
        for score in SCORES:
            follow(callback, training, [score])
            stored(callback.state_dict())

    def test_it_goes_on_from_its_state(
        self, callback: Callback, other: Callback | None, tmp_path: Path
    ) -> None:
        if other is None:
            pytest.skip("override the fixture 'other' to test the state")
        first, second = training_of(tmp_path / "one"), training_of(tmp_path / "two")
        callback.start(first)
        follow(callback, first, SCORES[:5])
        other.start(second)
        other.load_state_dict(stored(callback.state_dict()))
        for name in ("steps", "scores", "lr_scale", "stop_reason"):
            setattr(second, name, getattr(first, name))
        first.metrics.clear()
        first.is_save_due = False
        for callback_, training in ((callback, first), (other, second)):
            follow(callback_, training, SCORES[5:])
        assert snapshot(other, second) == snapshot(callback, first)

    def test_global_randomness_is_left_alone(self, callback: Callback, training: Training) -> None:
        with global_randomness_untouched():
            callback.start(training)
            follow(callback, training, SCORES)
            callback.finish(training)

    def test_standard_output_is_left_to_the_result(
        self, callback: Callback, training: Training, capfd: pytest.CaptureFixture[str]
    ) -> None:
        callback.start(training)
        follow(callback, training, SCORES)
        callback.finish(training)
        assert capfd.readouterr().out == "", "use training.log; results may be piped"


def training_of(directory: Path) -> Training:
    """A run that is evaluated after every unit of work."""
    directory.mkdir(exist_ok=True)
    return Training(directory=directory, total_steps=100, evaluation_interval=1)


def follow(callback: Callback, training: Training, scores: tuple[float, ...] | list[float]) -> None:
    """Let a callback follow a rollout, an update and an evaluation for each score."""
    for score in scores:
        callback.after_rollout(training)
        training.steps += 1
        callback.after_update(training)
        training.scores = (*training.scores, score)
        callback.after_evaluation(training, score, {"eval/return_mean": score})


def snapshot(callback: Callback, training: Training) -> str:
    """Everything that a callback remembers, and has asked of a run."""
    data, tensors = flatten(callback.state_dict())
    values = {name: tensor.tolist() for name, tensor in tensors.items()}
    asked_for = training.lr_scale, training.stop_reason, training.metrics, training.is_save_due
    return f"{data} {values} {asked_for}"
