"""Conformance kit of collectors: lose nothing, act on what was published, end when told."""

from __future__ import annotations

import copy
import multiprocessing
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from empo_core.errors import CollectError
from empo_core.protocols import Actor, ActorFactory, Collector, Weights
from empo_core.trees import StateDict
from empo_core.types import Experience
from empo_testing.exploration import global_randomness_untouched, stored

Start = Callable[..., Collector]
"""Starts a collector, with actors of a kind."""
PATIENCE_S = 60.0
"""Time in seconds that actors may take until something arrives; a test fails after that."""
ENVIRONMENTS = 4
"""Environments of each actor of the kit, so steps per experience."""


class CountingActor:
    """Notes in every experience its number, the weight it acts with, and a random draw."""

    def __init__(self, actor: int, fails_at: int | None = None) -> None:
        """Start counting.

        Args:
            actor: Number of the actor.
            fails_at: The experience that it fails to collect; None fails at none.
        """
        self._actor, self._fails_at = actor, fails_at
        self._acted, self._version = 0, 0
        self._weight: np.ndarray = np.array(np.nan)
        self._random = torch.Generator().manual_seed(actor)

    def load(self, weights: Weights, version: int) -> None:
        """Act with this weight from now on, which may not change any more by itself."""
        # A view: a collector that hands out tensors which change later is noticed.
        self._weight, self._version = weights["weight"].numpy(), version

    def act(self, training_step: int) -> Experience:
        """Pretend that every environment takes one step."""
        if self._acted == self._fails_at:
            raise RuntimeError("the environment caught fire")
        arrays = {
            "serial": np.array([self._acted]),
            "weight": np.array(self._weight, copy=True).reshape(1),
            "draw": torch.rand(1, generator=self._random, dtype=torch.float64).numpy(),
            "nothing": np.zeros((0, 3), dtype=np.int16),
        }
        self._acted += 1
        return Experience(arrays, ENVIRONMENTS, self._actor, self._version)

    def state_dict(self) -> StateDict:
        """The counter and the generator."""
        return {"acted": self._acted, "random": self._random.get_state()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._acted = state_dict["acted"]
        self._random.set_state(state_dict["random"])


def unbuildable(actor: int) -> Actor:
    """A factory that fails."""
    raise ValueError(f"actor {actor} has no such world")


def burning(actor: int) -> Actor:
    """A factory of actors that fail at their third experience."""
    return CountingActor(actor, fails_at=2)


def weights(value: float) -> dict[str, torch.Tensor]:
    """Weights that the learner of these tests publishes."""
    return {"weight": torch.tensor(value, dtype=torch.float64)}


class CollectorTests:
    """Subclass this in your plugin's tests and override ``collector``.

    Choose params with which it hands out experience soon, and, where actors may be replaced,
    with which it gives them up soon.
    """

    exact_resume = True
    """True if a collector that goes on from a state gives what the first would have given."""

    @pytest.fixture
    def collector(self) -> Collector:
        """A fresh collector that has not started."""
        raise NotImplementedError("override the fixture 'collector'")

    @pytest.fixture
    def another(self, collector: Collector) -> Collector:
        """A second one of the same params; override this if yours cannot be copied."""
        return copy.deepcopy(collector)

    @pytest.fixture
    def start(self, request: pytest.FixtureRequest, another: Collector) -> Start:
        """Starts a collector, and stops it after the test."""

        def start(collector: Collector, make_actor: ActorFactory = CountingActor) -> Collector:
            request.addfinalizer(collector.stop)
            collector.start(make_actor)
            return collector

        return start

    @pytest.fixture
    def running(self, collector: Collector, start: Start) -> Collector:
        """A collector whose actors act with weight 1."""
        start(collector)
        collector.publish(weights(1.0), 0)
        return collector

    def test_it_fits_the_protocol(self, collector: Collector) -> None:
        assert isinstance(collector, Collector)

    def test_every_experience_arrives_once_and_in_order(self, running: Collector) -> None:
        collected = gather(running, 60)
        by_actor = defaultdict(list)
        for experience in collected:
            by_actor[experience.actor].append(int(experience.arrays["serial"][0]))
        for actor, serials in by_actor.items():
            assert serials == list(range(len(serials))), f"of actor {actor} came {serials}"

    def test_experience_arrives_unchanged(self, running: Collector) -> None:
        generators: dict[int, torch.Generator] = {}
        for experience in gather(running, 20):
            generator = generators.setdefault(
                experience.actor, torch.Generator().manual_seed(experience.actor)
            )
            draw = torch.rand(1, generator=generator, dtype=torch.float64)
            assert experience.env_steps == ENVIRONMENTS
            arrays = experience.arrays
            assert set(arrays) == {"serial", "weight", "draw", "nothing"}
            assert arrays["draw"].tolist() == draw.tolist()
            assert arrays["nothing"].shape == (0, 3)
            assert arrays["nothing"].dtype == np.int16

    def test_actors_act_with_what_was_published_last(self, running: Collector) -> None:
        experiences = gather(running, 4)
        running.publish(weights(2.0), 1)
        running.publish(weights(3.0), 2)
        values: dict[int, float] = {}
        experiences += wait_for(
            running, lambda e: e.arrays["weight"].tolist() == [3.0], "the last weights published"
        )
        newest: dict[int, int] = defaultdict(int)
        for experience in experiences:
            value = float(experience.arrays["weight"][0])
            assert values.setdefault(experience.version, value) == value
            assert experience.version >= newest[experience.actor], "an actor went back"
            newest[experience.actor] = experience.version

    def test_a_version_is_what_was_published_whatever_happens_to_the_tensors(
        self, running: Collector
    ) -> None:
        published = weights(5.0)
        running.publish(published, 0)
        published["weight"].fill_(-1.0)
        experiences = wait_for(
            running, lambda e: float(e.arrays["weight"][0]) in (5.0, -1.0), "the new weights"
        )
        experiences += gather(running, 8)
        assert not [e for e in experiences if float(e.arrays["weight"][0]) == -1.0], (
            "it hands out a view"
        )

    def test_counters_only_grow(self, running: Collector) -> None:
        last, received = 0.0, 0
        for step in range(30):
            received += sum(experience.env_steps for experience in running.collect(step))
            counters = running.counters()
            assert all(isinstance(value, int | float) for value in counters.values())
            assert counters["env_steps"] >= max(last, received)
            last = counters["env_steps"]

    def test_stopping_is_possible_at_any_time_and_twice(
        self, collector: Collector, another: Collector, start: Start
    ) -> None:
        collector.stop()
        start(another)
        another.publish(weights(1.0), 0)
        gather(another, 3)
        another.stop()
        another.stop()
        assert another.counters()["env_steps"] > 0

    def test_nothing_is_left_running(self, running: Collector) -> None:
        threads = set(threading.enumerate())
        gather(running, 3)
        running.stop()
        deadline = time.monotonic() + PATIENCE_S
        while multiprocessing.active_children() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not multiprocessing.active_children(), "processes still run after stop"
        for thread in set(threading.enumerate()) - threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"thread {thread.name} still runs after stop"

    def test_an_actor_that_cannot_be_built_is_reported(
        self, collector: Collector, start: Start
    ) -> None:
        with pytest.raises(CollectError) as caught:
            start(collector, unbuildable)
        message = str(caught.value)
        assert "ValueError" in message
        assert "has no such world" in message
        assert "in unbuildable" in message, "the traceback is missing"
        collector.stop()

    def test_an_actor_that_always_fails_ends_collecting(
        self, collector: Collector, start: Start
    ) -> None:
        start(collector, burning)
        collector.publish(weights(1.0), 0)
        # Its own error where it acts in this process, else one that quotes it.
        with pytest.raises((CollectError, RuntimeError), match="the environment caught fire"):
            gather(collector, 10**6)

    def test_a_state_is_a_tree_that_a_checkpoint_holds(self, running: Collector) -> None:
        gather(running, 3)
        assert isinstance(stored(running.state_dict()), dict)

    def test_a_resumed_collector_goes_on(
        self, running: Collector, another: Collector, start: Start
    ) -> None:
        for step in range(10):
            running.collect(step)
        before = running.counters()["env_steps"]
        saved = stored(running.state_dict())
        expected = [running.collect(step) for step in range(10, 20)] if self.exact_resume else []
        running.stop()
        start(another)
        another.publish(weights(1.0), 10)
        another.load_state_dict(saved)
        if self.exact_resume:
            assert another.counters()["env_steps"] == before
            assert any(expected), "choose params with which something is due in 10 steps"
            actual = [another.collect(step) for step in range(10, 20)]
            assert list(map(plain, actual)) == list(map(plain, expected))
        else:
            assert another.counters()["env_steps"] >= before
            gather(another, 3)

    def test_global_randomness_is_left_alone(self, running: Collector) -> None:
        with global_randomness_untouched():
            gather(running, 10)


def gather(collector: Collector, count: int) -> list[Experience]:
    """At least so many experiences."""
    return collect_until(
        collector, lambda collected: len(collected) >= count, f"{count} experiences"
    )


def wait_for(
    collector: Collector, accepts: Callable[[Experience], bool], name: str
) -> list[Experience]:
    """Experience until the newest of each actor satisfies a condition."""

    def done(collected: Sequence[Experience]) -> bool:
        newest = {experience.actor: experience for experience in collected}
        return bool(newest) and all(map(accepts, newest.values()))

    return collect_until(collector, done, name)


def collect_until(
    collector: Collector, done: Callable[[Sequence[Experience]], bool], name: str
) -> list[Experience]:
    """Experience of successive training steps, until it is enough."""
    collected: list[Experience] = []
    deadline, step = time.monotonic() + PATIENCE_S, 0
    while not done(collected):
        assert time.monotonic() < deadline, f"{name} did not arrive"
        fresh = collector.collect(step)
        collected += fresh
        step += 1
        if not fresh:
            time.sleep(0.001)
    return collected


def plain(collected: Sequence[Experience]) -> list[tuple[object, ...]]:
    """Experiences as something that can be compared."""
    return [
        (
            experience.actor, experience.version, experience.env_steps,
            {name: array.tolist() for name, array in experience.arrays.items()},
        )
        for experience in collected
    ]  # fmt: skip
