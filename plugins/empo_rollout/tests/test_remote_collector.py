"""Actors that collect segments in step: what they bring does not depend on what happens to them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from empo_core.components import build
from empo_core.config import RunConfig
from empo_core.errors import CollectError, ConfigError
from empo_core.experiment import run
from empo_core.protocols import Executor
from empo_environments.normalisation import Moments, normalise_observations
from empo_learning.episode_returns import EpisodeReturns
from empo_learning.timers import Timers
from empo_rollout.collector import build_normaliser
from empo_rollout.factory import EnvironmentFactory
from empo_rollout.params import RolloutParams
from empo_rollout.policy import build_policy
from empo_rollout.remote_collector import RemoteCollector
from empo_rollout.segment_worker import Share, part_of

ACTORS = 2


@pytest.fixture(autouse=True)
def by_value() -> Iterator[None]:
    """Worker processes cannot import this module."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def params(**changed: Any) -> dict[str, Any]:
    """Of four environments, for two actors."""
    return {
        "total_steps": 96, "num_envs": 4, "environment": "gymnasium/CartPole-v1",
        "vectorisation": {"backend": "serial"}, "experience": {"bptt_horizon": 8},
        "policy": {"network": {"name": "mlp", "params": {"hidden": [8]}}},
        "update": {"minibatch_size": 8},
        "compute": {"threads": 1}, "reporting": {"evaluation_episodes": 2},
        "collection": {"actors": ACTORS},
    } | changed  # fmt: skip


class Broken(gymnasium.Env[np.ndarray, np.int64]):
    """Cannot take a step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> Any:
        raise RuntimeError("the planted fault")


class Made:
    """A collector with what it stands on."""

    def __init__(
        self, folder: Path, make_env: Callable[[], Any] | None = None, **changed: Any
    ) -> None:
        given = RolloutParams.model_validate(params(**changed))
        assert given.collection is not None
        environments = EnvironmentFactory(given, None, folder, 0, make_env)
        plan = environments.plan()
        generator = torch.Generator().manual_seed(1)
        policy = build_policy(given.policy, environments.spec, generator=generator)
        self.executor: Executor = build(given.collection.executor)
        self.episodes = EpisodeReturns(plan.num_agents, reasons=environments.spec.reasons)
        share = Share(given, environments, part_of(plan, ACTORS))
        self.collector = RemoteCollector(
            self.executor, given.collection, share, policy, self.episodes, Timers(),
            torch.device("cpu"), normaliser=build_normaliser(given, environments.spec),
        )  # fmt: skip

    def pid(self, actor: int) -> int:
        """The process of an actor."""
        pid: int = self.collector._slots[actor].call("pid").result(60)
        return pid

    def arrays(self, version: int) -> dict[str, np.ndarray]:
        """The next rollout."""
        rollout = self.collector.collect(version)
        named = {each.name: getattr(rollout, each.name) for each in fields(rollout)}
        return {name: value.numpy() for name, value in named.items() if value is not None}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Made]]:
    made = []

    def make(**changed: Any) -> Made:
        made.append(Made(tmp_path, **changed))
        return made[-1]

    yield make
    for each in made:
        each.collector.close()


def assert_same(actual: list[dict[str, np.ndarray]], expected: list[dict[str, np.ndarray]]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert one.keys() == other.keys()
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("normalise", [pytest.param(None, marks=pytest.mark.slow), {}])
def test_kills_and_breaks_change_nothing(
    make: Callable[..., Made], normalise: dict[str, Any] | None
) -> None:
    whole = make(normalise=normalise)
    whole.collector.start(7)
    expected = [whole.arrays(version) for version in range(6)]
    assert [rollout["observation"].shape for rollout in expected] == [(8, 4, 4)] * 6
    assert expected[0]["agent"].tolist() == [0, 1, 2, 3]
    assert not (expected[0]["observation"][:, :2] == expected[0]["observation"][:, 2:]).all()

    killed = make(normalise=normalise)
    killed.collector.start(7)
    found = [killed.arrays(version) for version in range(2)]
    os.kill(killed.pid(1), signal.SIGKILL)
    found += [killed.arrays(2)]
    os.kill(killed.pid(0), signal.SIGKILL)
    found += [killed.arrays(3)]
    state = killed.collector.state_dict()
    killed.collector.close()
    assert_same(found, expected[:4])

    resumed = make(normalise=normalise)
    if resumed.collector.normaliser and killed.collector.normaliser:
        resumed.collector.normaliser.load_state_dict(killed.collector.normaliser.state_dict())
    assert resumed.collector.load_state_dict(state), "exactly"
    assert_same([resumed.arrays(version) for version in (4, 5)], expected[4:])
    counted = [each.episodes.completed for each in (whole, killed, resumed)]
    assert counted[0] == counted[1] + counted[2] > 0


@pytest.mark.slow
def test_actors_begin_with_what_all_have_seen_and_go_on_with_their_own(
    make: Callable[..., Made],
) -> None:
    made, plain = make(normalise={"clip": 1000.0}), make()
    normaliser = made.collector.normaliser
    assert normaliser is not None
    begun = normaliser.moments[0]
    made.collector.start(3)
    plain.collector.start(3)
    # What environments begin with does not depend on the policy.
    raw, normal = (each.arrays(0)["observation"][0] for each in (plain, made))
    for part in (slice(0, 2), slice(2, 4)):
        moments = begun.merged(Moments.of(raw[part]))
        own = normalise_observations(raw[part], moments, 1000.0)
        np.testing.assert_allclose(normal[part], own, rtol=1e-5)
    # The observations behind a segment are those that the next begins with.
    assert normaliser.moments[0].count == pytest.approx(4 * (8 + 1), abs=0.01)
    made.arrays(1)
    assert normaliser.moments[0].count == pytest.approx(4 * (8 + 8 + 1), abs=0.01)


def test_who_is_late_is_left_out_and_takes_part_again(make: Callable[..., Made]) -> None:
    made = make(collection={"actors": ACTORS, "late_s": 0.3})
    made.collector.start(0)
    made.arrays(0)
    pid = made.pid(1)
    os.kill(pid, signal.SIGSTOP)
    late = made.arrays(1)
    assert late["valid"][:, :2].all()
    assert not late["valid"][:, 2:].any()
    os.kill(pid, signal.SIGCONT)
    while not made.arrays(2)["valid"].all():
        pass


def test_an_actor_that_fails_too_often_ends_the_run(make: Callable[..., Made]) -> None:
    made = make(collection={"actors": ACTORS, "max_restarts": 0})
    made.collector.start(0)
    made.executor.kill(0, "failed for this test")
    with pytest.raises(CollectError, match=r"actor 0 .*this test"):
        made.arrays(0)


def test_an_actor_that_raises_ends_the_run(make: Callable[..., Made]) -> None:
    made = make(environment=None, make_env=Broken)
    made.collector.start(0)
    with pytest.raises(CollectError, match=r"(?s)actor \d failed: .*the planted fault"):
        made.arrays(0)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"num_envs": 5}, r"collection.actors: 2 actors.* 5"),
        ({"vectorisation": {"backend": "process"}}, r"actors step"),
    ],
)
def test_what_cannot_be_divided_is_refused(changed: Any, says: str, tmp_path: Path) -> None:
    def plan() -> None:
        given = RolloutParams.model_validate(params(**changed))
        EnvironmentFactory(given, None, tmp_path).plan()

    with pytest.raises((ConfigError, ValidationError), match=says):
        plan()


def test_a_run_with_actors_learns_and_leaves_no_process(tmp_path: Path) -> None:
    config = {
        "algorithm": {"name": "rollout", "params": params(normalise={})},
        "trackers": [], "runs": str(tmp_path),
    }  # fmt: skip
    first, second = (run(RunConfig.model_validate(config)) for _ in range(2))
    for one, other in zip(first.policy.parameters(), second.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    assert first.policy.normalisation is not None, "a saved policy takes plain observations"
    assert not list(tmp_path.glob("*/actors"))
