"""Collecting in the learner's own process."""

from __future__ import annotations

import pytest

from empo_core.components import build
from empo_core.config import CollectorRef
from empo_core.errors import CollectError
from empo_core.protocols import Collector
from empo_core.types import Experience
from empo_learning.plugin import SyncParams
from empo_learning.sync_collector import Sync
from empo_testing.collector import (
    ENVIRONMENTS,
    CollectorTests,
    CountingActor,
    burning,
    unbuildable,
    weights,
)


class TestSync(CollectorTests):
    @pytest.fixture
    def collector(self) -> Collector:
        return Sync(SyncParams(min_env_steps=10, env_steps_per_training_step=2.5))


class Idle(CountingActor):
    """An actor that makes no step any more."""

    def act(self, training_step: int) -> Experience:
        return Experience({}, env_steps=0)


@pytest.fixture
def collector() -> Sync:
    collector = Sync(SyncParams(min_env_steps=10, env_steps_per_training_step=0.5))
    collector.start(CountingActor)
    return collector


def test_as_much_is_collected_as_is_due(collector: Collector) -> None:
    collector.publish(weights(1.0), 0)
    counts = [len(collector.collect(step)) for step in range(20)]
    # The first 10 steps take 3 rounds of 4 environments; then a round is due every 8 steps.
    assert counts == [3] + [0] * 4 + [1] + [0] * 7 + [1] + [0] * 6
    assert collector.counters() == {"env_steps": 5 * ENVIRONMENTS, "policy_version": 1}
    assert len(collector.collect(100)) == 10, "what is due is caught up with"


def test_it_is_the_default_collector_of_a_config() -> None:
    made = build(CollectorRef.model_validate("sync"))
    assert isinstance(made, Sync)
    assert SyncParams() == SyncParams(env_steps_per_training_step=32.0, min_env_steps=1000)


def test_an_error_of_the_actor_says_when() -> None:
    collector = Sync(SyncParams(min_env_steps=100))
    collector.start(burning)
    with pytest.raises(RuntimeError, match="caught fire") as caught:
        collector.collect(7)
    assert caught.value.__notes__ == ["This happened while acting, before training step 7."]


def test_an_actor_that_stands_still_is_noticed() -> None:
    collector = Sync(SyncParams())
    collector.start(Idle)
    with pytest.raises(CollectError, match="acted without"):
        collector.collect(0)


def test_it_wants_to_be_started_once_and_first() -> None:
    collector = Sync(SyncParams())
    with pytest.raises(CollectError, match="no actor"):
        collector.collect(0)
    with pytest.raises(CollectError, match=r"ValueError: actor 0 .*\nTraceback"):
        collector.start(unbuildable)
    collector.start(CountingActor)
    with pytest.raises(CollectError, match="runs already"):
        collector.start(CountingActor)
    collector.stop()
    with pytest.raises(CollectError, match="no actor"):
        collector.publish(weights(1.0), 0)
