"""Back-pressure on actors, messages to them, and inputs that a collector refuses."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from empo_async_actors.collector import AsyncCollector
from empo_async_actors.plugin import AsyncParams
from empo_core.errors import CollectError, NonFiniteError
from empo_core.types import Experience
from empo_executors import silence

STEPS = 3


@pytest.fixture(autouse=True)
def by_value() -> Iterator[None]:
    """Actor processes cannot import this module."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Reporter:
    """Says what it was built with and what it knows."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.acted = 0
        self.version = 0

    def load(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        self.version = version

    def act(self, training_step: int) -> Experience:
        self.acted += 1
        values = [self.index, self.acted, training_step, torch.get_num_threads()]
        return Experience({"values": np.array(values)}, STEPS, version=self.version)

    def state_dict(self) -> dict[str, Any]:
        return {"acted": self.acted}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.acted = state_dict["acted"]


Start = Callable[..., AsyncCollector]


@pytest.fixture
def start() -> Iterator[Start]:
    started = []

    def start(make: Callable[[int], Any] = Reporter, **params: Any) -> AsyncCollector:
        collector = AsyncCollector(AsyncParams.model_validate({"min_env_steps": 1} | params))
        started.append(collector)
        collector.start(make)
        return collector

    yield start
    for collector in started:
        collector.stop()


def settled(collector: AsyncCollector) -> float:
    """Number of environment steps once the actors pause."""
    count = -1.0
    while count != (count := collector.counters()["env_steps"]):
        time.sleep(0.05)
    return count


def values(experience: Experience) -> list[int]:
    return experience.arrays["values"].tolist()


def test_training_waits_for_the_first_experience(start: Start) -> None:
    collector = start(min_env_steps=100, actors=2)
    first = collector.collect(0)
    # An actor that is ready before the other one may act on while half of its grant is taken back.
    assert 100 <= sum(experience.env_steps for experience in first) < 2 * 100
    assert collector.collect(0) == []


def test_actors_pause_beyond_so_many_steps_per_training_step(start: Start) -> None:
    collector = start(min_env_steps=10, max_env_steps_per_training_step=2.0, actors=2)
    for step in (0, 5, 20, 40, 41):
        collector.collect(step)
        collector.collect(step)
        limit = max(10, 2 * step)
        assert settled(collector) < limit + 2 * STEPS
        while collector.counters()["env_steps"] < limit:
            collector.collect(step)


def test_without_a_limit_only_the_queue_makes_actors_pause(start: Start) -> None:
    collector = start(max_env_steps_per_training_step=None, queue_size=60, actors=2)
    collector.collect(0)
    settled(collector)
    assert 60 <= collector.counters()["queued_env_steps"] < 60 + 2 * STEPS


def test_actors_learn_the_training_step_and_use_one_thread(start: Start) -> None:
    collector = start(max_env_steps_per_training_step=None, queue_size=10)
    while not (found := [values(e) for e in collector.collect(77)]) or found[-1][2] != 77:
        pass
    assert {threads for *_, threads in found} == {1}


def test_experience_names_its_actor_and_every_process_has_its_own_number(start: Start) -> None:
    def make(index: int) -> Reporter:
        if index in (0, 3):

            class Failing(Reporter):
                def act(self, training_step: int) -> Experience:
                    if self.acted == 2:
                        raise RuntimeError("enough")
                    return super().act(training_step)

            return Failing(index)
        return Reporter(index)

    collector = start(make, actors=3, max_env_steps_per_training_step=None, queue_size=30)
    built: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
    while 4 not in built[0]:
        for experience in collector.collect(0):
            built[experience.actor].add(values(experience)[0])
    assert built == {0: {0, 3, 4}, 1: {1}, 2: {2}}


def test_counters_say_what_happened(start: Start) -> None:
    collector = start(actors=2)
    collector.publish({}, 0)
    collector.publish({}, 0)
    delivered = collector.collect(0)
    while collector.counters()["acknowledged_version"] < 2:
        pass
    collector.stop()
    counters = collector.counters()
    assert counters["env_steps"] == STEPS * counters["accepted_frames"]
    queued = counters["accepted_frames"] - len(delivered)
    assert counters["queued_env_steps"] == STEPS * queued
    assert (counters["policy_version"], counters["acknowledged_version"]) == (2, 2)
    assert (counters["version_lag_mean"], counters["version_lag_max"]) == (0, 0)
    assert (counters["restarts"], counters["actors"]) == (0, 0)


def test_the_lag_is_counted_in_policies(start: Start) -> None:
    collector = start(max_env_steps_per_training_step=None, queue_size=STEPS)
    collector.publish({}, 0)
    collector.collect(0)
    while not collector.counters()["queued_env_steps"]:
        pass
    for _ in range(4):
        collector.publish({}, 0)
    collector.collect(0)
    assert collector.counters()["version_lag_max"] == 4
    assert 0 < collector.counters()["version_lag_mean"] < 4


def test_a_resumed_collector_goes_on_counting_and_acting(start: Start) -> None:
    first = start(actors=2)
    first.publish({}, 0)
    first.publish({}, 0)
    first.collect(0)
    state = first.state_dict()
    first.stop()
    assert [actor["acted"] > 0 for actor in state["actors"]].count(True) >= 1
    second = start(actors=2, min_env_steps=10**6, max_env_steps_per_training_step=None)
    second.load_state_dict(state | {"env_steps": 10**6})
    second.publish({}, 0)
    experience: list[Experience] = []
    while {e.actor for e in experience} != {0, 1}:
        experience += second.collect(0)  # Enough was collected before; it does not wait.
    for actor in (0, 1):
        numbers = [values(e)[1] for e in experience if e.actor == actor]
        assert numbers[0] == state["actors"][actor]["acted"] + 1
    assert {e.version for e in experience} == {3}
    assert second.counters()["accepted_frames"] > state["accepted_frames"]


def test_what_was_published_before_a_state_was_loaded_goes_on_under_its_number(
    start: Start,
) -> None:
    collector = start(actors=1)
    collector.publish({"weight": torch.ones(2)}, 0)
    state = {"env_steps": 0, "accepted_frames": 0, "restarts": 0}
    collector.load_state_dict(state | {"policy_version": 7, "actors": [None]})
    while collector.counters()["acknowledged_version"] < 7:
        collector.collect(0)
    assert collector.counters()["policy_version"] == 7


def test_a_state_may_come_from_more_or_fewer_actors(start: Start) -> None:
    state = {
        "env_steps": 5, "accepted_frames": 2, "restarts": 1, "policy_version": 4,
        "actors": [None, {"acted": 10}, {"acted": 20}],
    }  # fmt: skip
    collector = start(actors=2)
    collector.load_state_dict(state)
    assert collector.counters()["restarts"] == 1
    small = start(actors=4)
    small.load_state_dict(state)
    assert len(small.state_dict()["actors"]) == 4


def test_states_larger_than_a_pipe_travel_both_ways(start: Start) -> None:
    class Large(Reporter):
        def state_dict(self) -> dict[str, Any]:
            return {"acted": self.acted, "memory": torch.arange(1_000_000)}

        def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
            super().load_state_dict(state_dict)
            assert torch.equal(state_dict["memory"], torch.arange(1_000_000))

    first = start(Large)
    first.collect(0)
    state = first.state_dict()
    second = start(Large)
    second.load_state_dict(state)
    while not (experience := second.collect(1000)):
        pass
    assert values(experience[0])[1] == state["actors"][0]["acted"] + 1


def test_weights_that_are_not_finite_reach_no_actor(start: Start) -> None:
    collector = start()
    collector.publish({"w": torch.zeros(2)}, 0)
    with pytest.raises(NonFiniteError, match=r"not finite: w has 1 of 2"):
        collector.publish({"w": torch.tensor([0.0, float("nan")])}, 0)
    assert {e.version for e in collector.collect(0)} == {1}
    assert collector.counters()["policy_version"] == 1


def test_a_factory_that_cannot_be_sent_is_refused(start: Start) -> None:
    lock = threading.Lock()
    with pytest.raises(CollectError, match=r"factory.*'sync'"):
        start(lambda index: lock)


def test_an_actor_that_takes_no_steps_is_reported(start: Start) -> None:
    class Idle(Reporter):
        def act(self, training_step: int) -> Experience:
            return Experience({}, 0)

    collector = start(Idle, max_restarts=0)
    with pytest.raises(CollectError, match=r"experience of 0"):
        collector.collect(0)


def test_an_actor_that_sends_what_is_no_array_is_reported(start: Start) -> None:
    class Strange(Reporter):
        def act(self, training_step: int) -> Experience:
            return Experience({"what": np.array([object()])}, 1)

    collector = start(Strange, max_restarts=0)
    with pytest.raises(CollectError, match="array 'what'"):
        collector.collect(0)


def test_it_must_run_to_be_used_and_runs_once(start: Start) -> None:
    idle = AsyncCollector(AsyncParams())
    for use in (lambda: idle.collect(0), lambda: idle.publish({}, 0)):
        with pytest.raises(CollectError, match=r"call start\b"):
            use()
    running = start()
    with pytest.raises(CollectError, match=r"runs already"):
        running.start(Reporter)


def test_a_stopped_collector_can_start_again_and_goes_on_counting(
    start: Start,
) -> None:
    collector = start()
    collector.collect(0)
    collector.stop()
    before = collector.counters()["accepted_frames"]
    collector.start(Reporter)
    collector.publish({}, 0)
    while collector.counters()["accepted_frames"] < before + 1:
        collector.collect(1000)


@pytest.mark.parametrize(
    "params",
    [
        {"actors": 0}, {"queue_size": 0}, {"min_env_steps": 0}, {"heartbeat_s": 0.0},
        {"max_env_steps_per_training_step": 0.0}, 
        {"executor": {"name": "local", "params": {"start_method": "fork"}}},
        {"max_restarts": -1},
        {"actor": 2},
    ],
)  # fmt: skip
def test_wrong_params_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AsyncParams.model_validate(params)


def test_an_actor_that_hangs_while_it_is_built_holds_nothing_up(start: Start) -> None:
    def make(index: int) -> Reporter:
        if index == 1:
            time.sleep(1e9)
        return Reporter(index)

    begun = time.monotonic()
    collector = start(make, actors=2, min_env_steps=300)
    assert collector.counters()["actors"] == 1
    found = collector.collect(0)
    assert {experience.actor for experience in found} == {0}
    assert sum(experience.env_steps for experience in found) >= 300
    assert time.monotonic() - begun < 30
    assert collector.counters()["restarts"] == 0


def test_an_actor_that_hangs_in_its_first_round_keeps_nothing_from_the_others(start: Start) -> None:
    class Sleepy(Reporter):
        def act(self, training_step: int) -> Experience:
            if self.index == 1:
                time.sleep(1e9)
            return super().act(training_step)

    collector = start(Sleepy, actors=2, min_env_steps=300)
    found = collector.collect(0)
    assert {experience.actor for experience in found} == {0}
    assert sum(experience.env_steps for experience in found) >= 300


def test_the_first_round_may_take_longer_than_the_heartbeat(start: Start) -> None:
    class Compiling(Reporter):
        def act(self, training_step: int) -> Experience:
            time.sleep(1.5 if self.acted == 0 else 0.0)
            return super().act(training_step)

    collector = start(Compiling, heartbeat_s=0.5, min_env_steps=6)
    assert len(collector.collect(0)) >= 2
    assert collector.counters()["restarts"] == 0


@pytest.mark.parametrize("where", ["build", "act"])
def test_where_no_actor_makes_progress_the_run_ends(start: Start, where: str) -> None:
    class Sleepy(Reporter):
        def __init__(self, index: int) -> None:
            time.sleep(1e9 if where == "build" else 0.0)
            super().__init__(index)

        def act(self, training_step: int) -> Experience:
            time.sleep(1e9)
            raise AssertionError

    begun = time.monotonic()
    with pytest.raises(CollectError, match=r"1 s \(stall_timeout_s\)"):
        start(Sleepy, actors=2, stall_timeout_s=1.0).collect(0)
    assert time.monotonic() - begun < 30


def test_a_learner_that_wants_nothing_is_no_stall(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start(stall_timeout_s=30)
    collector.collect(0)
    begun = time.monotonic()
    for second in range(1, 60):  # So long by the collector's clock.
        clock = SimpleNamespace(monotonic=lambda second=second: begun + second)
        monkeypatch.setattr(silence, "time", clock)
        time.sleep(0.02)
        collector.collect(0)


def test_tensors_may_share_memory_and_need_gradients(start: Start) -> None:
    class Reader(Reporter):
        def load(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
            self.loaded = [weights["one"].tolist(), weights["part"].tolist()]
            assert weights["half"].dtype == torch.bfloat16

        def state_dict(self) -> dict[str, Any]:
            return {"loaded": self.loaded}

    collector = start(Reader)
    one = torch.arange(3.0, requires_grad=True)
    half = torch.ones(2, dtype=torch.bfloat16)
    collector.publish({"one": one, "same": one, "part": one[1:], "half": half}, 0)
    assert collector.state_dict()["actors"] == [{"loaded": [[0.0, 1.0, 2.0], [1.0, 2.0]]}]


def test_experience_can_be_written_to_and_has_every_dtype_and_shape(start: Start) -> None:
    class Various(Reporter):
        def act(self, training_step: int) -> Experience:
            arrays = {"a": np.arange(5.0), "b": np.ones((2, 0, 3), np.int16), "c": np.array(True)}
            return Experience(arrays, STEPS, version=self.version)

    (experience, *_) = start(Various).collect(0)
    arrays = experience.arrays
    assert [(a.dtype.str, a.shape) for a in arrays.values()] == [
        ("<f8", (5,)), ("<i2", (2, 0, 3)), ("|b1", ()),
    ]  # fmt: skip
    torch.from_numpy(arrays["a"])[0] = 9.0  # Warns where it is read-only.
    assert arrays["a"][0] == 9.0
