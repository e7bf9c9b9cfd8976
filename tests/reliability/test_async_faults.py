"""Actors that die, hang, raise and lie: nothing accepted is lost, and the learner goes on."""

from __future__ import annotations

import importlib.util
import logging
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from empo_async_actors.collector import AsyncCollector
from empo_async_actors.plugin import AsyncParams
from empo_core.errors import CollectError


@pytest.fixture(scope="module")
def actors() -> Iterator[ModuleType]:
    """The module of faulty actors; sent to processes by value, for they cannot import it."""
    path = Path(__file__).with_name("async_learner.py")
    specification = importlib.util.spec_from_file_location("async_learner", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["async_learner"] = module
    specification.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    yield module
    cloudpickle.unregister_pickle_by_value(module)


Start = Callable[..., Any]


@pytest.fixture
def start(actors: ModuleType) -> Iterator[Start]:
    """Starts a collector for a learner, and stops it in the end."""
    started = []

    def start(factory: Any, **params: Any) -> Any:
        settings = {"min_env_steps": 1, "max_env_steps_per_training_step": None, "actors": 2}
        collector = AsyncCollector(AsyncParams.model_validate(settings | params))
        started.append(collector)
        collector.start(factory)
        return actors.Learner(collector)

    yield start
    for collector in started:
        collector.stop()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def settle(learner: Any) -> None:
    """Stop, and check all accounts."""
    learner.collector.stop()
    assert not learner.wrong
    assert not learner.imbalance()


def learn_until(learner: Any, condition: Callable[[], bool]) -> None:
    while not condition():
        if not learner.learn():
            time.sleep(0.001)  # Leaves the processor to actors that are being built.


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("payload", [100, 200_000])
def test_kills_at_random_points_lose_nothing_that_was_accepted(
    actors: ModuleType, start: Start, payload: int, method: str
) -> None:
    kills = 6 if method == "forkserver" else 3
    learner = start(
        actors.counting(payload=payload),
        executor={"name": "local", "params": {"start_method": method}},
        max_restarts=100,
    )
    actors.kill_at_random(learner, kills, random.Random(payload), kill)
    learn_until(learner, lambda: learner.collector.counters()["restarts"] == kills)
    before = learner.collector.counters()["env_steps"]
    learn_until(learner, lambda: learner.collector.counters()["env_steps"] > before + 100)
    settle(learner)


@pytest.mark.slow
@pytest.mark.parametrize("run", range(5))
def test_a_hundred_kills_in_five_runs_lose_nothing(
    actors: ModuleType, start: Start, run: int
) -> None:
    size = (100, 20_000, 200_000, 2_000_000, 0)[run]
    learner = start(actors.counting(payload=size), max_restarts=1000, queue_size=1000)
    actors.kill_at_random(learner, 20, random.Random(run), kill)
    learn_until(learner, lambda: learner.collector.counters()["restarts"] == 20)
    settle(learner)


@pytest.mark.parametrize("fault", ["sleep", "stop"])
def test_an_actor_that_hangs_is_replaced(
    actors: ModuleType, start: Start, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    learner = start(actors.counting(fault=fault, at=20), heartbeat_s=0.5, max_restarts=100)
    learn_until(learner, lambda: len(learner.seen) >= 4)
    settle(learner)
    assert "showed no sign of life for 0.5 s (heartbeat_s) and was killed" in caplog.text


@pytest.mark.slow
def test_actors_stopped_in_the_middle_of_messages_never_block_the_learner(
    actors: ModuleType, start: Start
) -> None:
    learner = start(actors.counting(payload=5_000_000), heartbeat_s=0.3, max_restarts=100)
    chance = random.Random(1)
    actors.kill_at_random(learner, 4, chance, lambda pid: os.kill(pid, signal.SIGSTOP))
    learn_until(learner, lambda: learner.collector.counters()["restarts"] >= 2)
    settle(learner)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("raise", "RuntimeError: the planted fault"),
        ("exit", "SystemExit: 0"),
        ("_exit", "exited with code 0 without being asked to"),
        ("kill", "killed by signal 9; signal 9 often means that memory ran out"),
    ],
)
def test_where_no_actor_can_be_replaced_the_learner_gets_the_reason(
    actors: ModuleType, start: Start, fault: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    learner = start(actors.counting(fault=fault, at=5), max_restarts=2)
    with pytest.raises(CollectError) as caught:
        learn_until(learner, lambda: False)
    assert str(caught.value).startswith("none of the 2 actors works any more")
    assert str(caught.value).count(says) == 2
    assert caplog.text.count(says) == 6
    assert learner.collector.counters()["restarts"] == 4
    # What had arrived was returned before the error.
    assert learner.seen == dict.fromkeys(range(6), 4)
    settle(learner)


def test_the_traceback_leads_into_the_actor(actors: ModuleType, start: Start) -> None:
    learner = start(actors.counting(fault="raise", at=1), max_restarts=0)
    with pytest.raises(CollectError, match=r"async_learner\.py\", line \d+, in fail"):
        learn_until(learner, lambda: False)


def test_actors_that_cannot_be_built_end_the_run_at_once(start: Start) -> None:
    def make(index: int) -> None:
        raise RuntimeError("no such world")

    with pytest.raises(CollectError, match=r"(?s)built.*RuntimeError: no such"):
        start(make)


def test_actors_killed_while_they_are_built_use_up_the_budget(start: Start) -> None:
    def make(index: int) -> None:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(CollectError, match=r"(?s)2 .* signal 9"):
        start(make, max_restarts=2)


@pytest.mark.slow  # Three fork servers.
def test_too_few_descriptors_are_reported_before_anything_is_collected(start: Start) -> None:
    start(lambda index: None, actors=1)  # Now there is a fork server, with the usual limit.
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    free = [number for number in range(4096) if number not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[10], before[1]))
    try:
        with pytest.raises(CollectError, match=r"started: .*Too many"):
            start(lambda index: None, actors=20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    # A fork server whose client fails in the midst of a request ends, and refuses until it is gone.
    for _ in range(1000):
        try:
            start(lambda index: None, actors=1)
            break
        except CollectError:
            time.sleep(0.01)


def test_an_actor_that_takes_too_long_to_build_counts_as_failed(start: Start) -> None:
    def make(index: int) -> None:
        import time

        time.sleep(1e9)

    with pytest.raises(CollectError, match=r"0.3 s \(start_timeout_s\)"):
        start(make, max_restarts=0, start_timeout_s=0.3)


def test_the_others_go_on_where_one_is_given_up(
    actors: ModuleType, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = actors.counting(fault="raise", at=2)
    sound = actors.counting()
    learner = start(lambda index: sound(index) if index == 0 else faulty(index), max_restarts=1)
    learn_until(learner, lambda: "given up after 2 failures" in caplog.text)
    before = learner.seen[0]
    learn_until(learner, lambda: learner.seen[0] > before + 10)
    assert learner.collector.counters()["actors"] == 1
    settle(learner)


def test_pauses_between_replacements_grow(
    actors: ModuleType, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    learner = start(actors.counting(fault="_exit", at=1), max_restarts=4, actors=1)
    with pytest.raises(CollectError):
        learn_until(learner, lambda: False)
    pauses = [f"replaced in {pause} s" for pause in ("0.05", "0.10", "0.20", "0.40")]
    assert [pause in caplog.text for pause in pauses] == [True] * 4


def test_a_stale_policy_is_noticed(actors: ModuleType, start: Start) -> None:
    class Stale(actors.CountingActor):  # type: ignore[name-defined, misc]
        """Claims every version and keeps the weights of the first."""

        def load(self, weights: Any, version: int) -> None:
            if self.version == 0:
                super().load(weights, version)
            self.version = version

    learner = start(lambda index: Stale(index))
    learn_until(learner, lambda: learner.collector.counters()["acknowledged_version"] >= 3)
    learn_until(learner, lambda: any("stale" in wrong for wrong in learner.wrong))


def test_actors_follow_the_newest_policy_and_never_go_back(
    actors: ModuleType, start: Start
) -> None:
    learner = start(actors.counting())
    newest = {0: 0, 1: 0}
    while learner.step < 40 or min(newest.values()) < 8:
        for experience in learner.learn():
            assert experience.version >= newest[experience.actor]
            newest[experience.actor] = experience.version
        counters = learner.collector.counters()
        assert counters["acknowledged_version"] <= counters["policy_version"]
    assert counters["acknowledged_version"] >= 8
    settle(learner)


def test_a_paused_learner_is_not_flooded(actors: ModuleType, start: Start) -> None:
    learner = start(actors.counting(payload=1000), queue_size=200)
    learner.learn()
    counters = learner.collector.counters
    while counters()["queued_env_steps"] < 200:
        time.sleep(0.001)
    for _ in range(10):
        learner.publish()  # No reason to go on.
        assert counters()["queued_env_steps"] < 200 + 2 * actors.STEPS
    before = counters()["env_steps"]
    learn_until(learner, lambda: counters()["env_steps"] > before + 400)
    settle(learner)


def test_slow_actors_do_not_hold_up_the_learner(actors: ModuleType, start: Start) -> None:
    learner = start(actors.counting(pause_s=0.1))
    empty = sum(not learner.learn() for _ in range(50))
    assert empty > 40
    settle(learner)
