"""The collector kit passes a right collector and fails each one broken on purpose."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from empo_core.errors import CollectError
from empo_core.protocols import Actor, ActorFactory, Collector, Weights
from empo_core.types import Experience
from empo_testing.collector import CollectorTests

Runner = Callable[..., set[str]]
NEVER = threading.Event()


class Right:
    """One actor, one experience per training step."""

    def __init__(self) -> None:
        self.actor: Actor | None = None
        self.version = self.env_steps = 0
        self.weights: Weights | None = None

    def start(self, make_actor: ActorFactory) -> None:
        try:
            self.actor = make_actor(0)
        except ValueError as error:
            raise CollectError(traceback.format_exc()) from error

    def publish(self, weights: Weights, training_step: int) -> None:
        self.version += 1
        self.weights = {name: tensor.clone() for name, tensor in weights.items()}
        self.running().load(self.weights, self.version)

    def collect(self, training_step: int) -> Sequence[Experience]:
        experience = self.running().act(training_step)
        self.env_steps += experience.env_steps
        return [experience]

    def counters(self) -> dict[str, float]:
        return {"env_steps": self.env_steps}

    def state_dict(self) -> dict[str, Any]:
        counts = {"env_steps": self.env_steps, "version": self.version}
        return counts | {"actor": self.running().state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.env_steps, self.version = state_dict["env_steps"], state_dict["version"]
        assert self.weights is not None
        self.running().load(self.weights, self.version)
        self.running().load_state_dict(state_dict["actor"])

    def stop(self) -> None:
        self.actor = None

    def running(self) -> Actor:
        assert self.actor is not None
        return self.actor


class CannotStop:
    start = Right.start
    publish = Right.publish
    collect = Right.collect
    running = Right.running

    def __init__(self) -> None:
        Right.__init__(self)  # type: ignore[arg-type]


class LosesSome(Right):
    def collect(self, training_step: int) -> Sequence[Experience]:
        found = super().collect(training_step)
        return [] if training_step == 2 else found


class BringsSomeTwice(Right):
    def collect(self, training_step: int) -> Sequence[Experience]:
        found = super().collect(training_step)
        return [*found, *found] if training_step == 2 else found


class TurnsThemRound(Right):
    def collect(self, training_step: int) -> Sequence[Experience]:
        return [*super().collect(training_step), *super().collect(training_step)][::-1]


class RoundsNumbers(Right):
    def collect(self, training_step: int) -> Sequence[Experience]:
        (found,) = super().collect(training_step)
        arrays = {k: v.astype("f4") if k == "draw" else v for k, v in found.arrays.items()}
        return [Experience(arrays, found.env_steps, found.actor, found.version)]


class ForgetsEmptyArrays(Right):
    def collect(self, training_step: int) -> Sequence[Experience]:
        (found,) = super().collect(training_step)
        arrays = {name: array for name, array in found.arrays.items() if array.size}
        return [Experience(arrays, found.env_steps, found.actor, found.version)]


class PublishesOnce(Right):
    def publish(self, weights: Weights, training_step: int) -> None:
        if self.version == 0:
            super().publish(weights, training_step)


class NumbersNothing(Right):
    def publish(self, weights: Weights, training_step: int) -> None:
        super().publish(weights, training_step)
        self.running().load(weights, 1)


class CountsDown(Right):
    def publish(self, weights: Weights, training_step: int) -> None:
        self.version -= 2
        super().publish(weights, training_step)


class HandsOutViews(Right):
    def publish(self, weights: Weights, training_step: int) -> None:
        super().publish(weights, training_step)
        self.running().load(weights, self.version)


class CountsWhatItLikes(Right):
    def counters(self) -> dict[str, float]:
        return {"env_steps": self.env_steps % 40}


class CountsInTensors(Right):
    def counters(self) -> dict[str, Any]:
        return {"env_steps": torch.tensor(self.env_steps)}


class StopsOnce(Right):
    def stop(self) -> None:
        self.running()
        super().stop()


class LeavesAThread(Right):
    def collect(self, training_step: int) -> Sequence[Experience]:
        if training_step == 0:
            threading.Thread(target=NEVER.wait, args=(3.0,), name="left", daemon=True).start()
        return super().collect(training_step)


class PassesErrorsThrough(Right):
    def start(self, make_actor: ActorFactory) -> None:
        self.actor = make_actor(0)


class HidesTheTraceback(Right):
    def start(self, make_actor: ActorFactory) -> None:
        try:
            self.actor = make_actor(0)
        except ValueError as error:
            raise CollectError(f"ValueError: {error}") from error


class HidesFailures(Right):
    def collect(self, training_step: int) -> Sequence[Experience]:
        try:
            return super().collect(training_step)
        except RuntimeError as error:
            raise CollectError("no actor works any more") from error


class KeepsObjects(Right):
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"weights": object()}


class ForgetsTheActor(Right):
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.env_steps, self.version = state_dict["env_steps"], state_dict["version"]


class ForgetsTheVersion(Right):
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.running().load(self.weights or {}, 99)


class ForgetsItsCounters(Right):
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(dict(state_dict) | {"env_steps": 0})


class DrawsGlobally(Right):
    def collect(self, training_step: int) -> Sequence[Experience]:
        torch.rand(1)
        return super().collect(training_step)


def case_of(kind: type) -> type[CollectorTests]:
    class TestCase(CollectorTests):
        @pytest.fixture
        def collector(self) -> Collector:
            made: Collector = kind()
            return made

    return TestCase


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken collectors would have every test wait for what never comes."""
    monkeypatch.setattr("empo_testing.collector.PATIENCE_S", 0.5)


def test_a_right_collector_passes(kit_failures: Runner) -> None:
    assert kit_failures(case_of(Right)) == set()


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        (CannotStop, "test_it_fits_the_protocol"),
        (LosesSome, "test_every_experience_arrives_once_and_in_order"),
        (BringsSomeTwice, "test_every_experience_arrives_once_and_in_order"),
        (TurnsThemRound, "test_every_experience_arrives_once_and_in_order"),
        (RoundsNumbers, "test_experience_arrives_unchanged"),
        (ForgetsEmptyArrays, "test_experience_arrives_unchanged"),
        (PublishesOnce, "test_actors_act_with_what_was_published_last"),
        (NumbersNothing, "test_actors_act_with_what_was_published_last"),
        (CountsDown, "test_actors_act_with_what_was_published_last"),
        (
            HandsOutViews,
            "test_a_version_is_what_was_published_whatever_happens_to_the_tensors",
        ),
        (CountsWhatItLikes, "test_counters_only_grow"),
        (CountsInTensors, "test_counters_only_grow"),
        (StopsOnce, "test_stopping_is_possible_at_any_time_and_twice"),
        (LeavesAThread, "test_nothing_is_left_running"),
        (PassesErrorsThrough, "test_an_actor_that_cannot_be_built_is_reported"),
        (HidesTheTraceback, "test_an_actor_that_cannot_be_built_is_reported"),
        (HidesFailures, "test_an_actor_that_always_fails_ends_collecting"),
        (KeepsObjects, "test_a_state_is_a_tree_that_a_checkpoint_holds"),
        (ForgetsTheActor, "test_a_resumed_collector_goes_on"),
        (ForgetsTheVersion, "test_a_resumed_collector_goes_on"),
        (ForgetsItsCounters, "test_a_resumed_collector_goes_on"),
        (DrawsGlobally, "test_global_randomness_is_left_alone"),
    ],
)
def test_a_broken_collector_is_caught(broken: type, caught_by: str, kit_failures: Runner) -> None:
    assert caught_by in kit_failures(case_of(broken), [caught_by])


def test_the_kit_says_what_to_override(kit_failures: Runner) -> None:
    assert len(kit_failures(CollectorTests)) > 10


def test_the_kits_actor_can_be_sent_to_other_processes() -> None:
    import cloudpickle  # type: ignore[import-untyped]

    from empo_testing import collector

    for factory in (collector.CountingActor, collector.burning, collector.unbuildable):
        assert len(cloudpickle.dumps(factory)) < 200, "by name, so that no code travels"
