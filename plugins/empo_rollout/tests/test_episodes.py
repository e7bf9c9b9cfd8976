"""Episode statistics: returns, lengths and reasons for ending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from empo_core.protocols import Tracker
from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec, TimeStep
from empo_core.tracker_group import TrackerGroup
from empo_learning.distributed import Group
from empo_rollout.episodes import WINDOW, Episodes

NAMES = ("terminated", "truncated", "bored")


def env_spec(envs: int = 4, blocks: int = 2) -> EnvSpec:
    return EnvSpec(ObservationSpec(1), ActionSpec((2,)), ("a",), envs, blocks, reasons=NAMES)


def arrival(block: int, reward: list[float], **flags: list[Any]) -> TimeStep:
    count = len(reward)

    def flag(name: str) -> np.ndarray:
        return np.array(flags.get(name, [False] * count))

    return TimeStep(
        block=block,
        observation=np.zeros((count, 1), np.float32),
        reward=np.array(reward, np.float32),
        terminated=flag("terminated"),
        truncated=flag("truncated"),
        starts=flag("starts"),
        acts=np.ones(count, bool),
        final_row=np.zeros(0, np.int64),
        final_observation=np.zeros((0, 1), np.float32),
        reason=np.array(flags["reason"]) if "reason" in flags else None,
    )


ALL = np.array([True, True])


def test_rewards_add_up_until_an_episode_ends() -> None:
    episodes = Episodes(env_spec())
    assert episodes.record(Group()).mean_return is None
    assert episodes.record(Group()).metrics() == {}
    episodes.observe(arrival(0, [1.0, 10.0]), ALL)
    episodes.observe(arrival(0, [2.0, 20.0], terminated=[True, False]), ALL)
    assert (list(episodes.returns), list(episodes.lengths)) == ([3.0], [2])
    episodes.observe(arrival(0, [5.0, 40.0], truncated=[True, True]), ALL)
    assert (list(episodes.returns), list(episodes.lengths)) == ([3.0, 5.0, 70.0], [2, 1, 3])
    assert episodes.completed == 3
    assert episodes.reasons.tolist() == [1, 2, 0]
    record = episodes.record(Group())
    assert record.mean_return == pytest.approx(26.0)
    assert record.mean_length == pytest.approx(2.0)
    assert record.reasons == {"terminated": 1, "truncated": 2, "bored": 0}


def test_blocks_are_counted_apart() -> None:
    episodes = Episodes(env_spec())
    episodes.observe(arrival(0, [1.0, 1.0]), ALL)
    episodes.observe(arrival(1, [5.0, 7.0], terminated=[True, True]), ALL)
    assert sorted(episodes.returns) == [5.0, 7.0]


def test_who_did_not_act_earns_nothing_and_ends_nothing() -> None:
    episodes = Episodes(env_spec())
    ended = arrival(0, [9.0, 1.0], terminated=[True, True])
    episodes.observe(ended, np.array([False, True]))
    assert (list(episodes.returns), list(episodes.lengths)) == ([1.0], [1])


def test_an_environment_may_say_why_an_episode_ended() -> None:
    episodes = Episodes(env_spec())
    episodes.observe(arrival(0, [0.0, 0.0], terminated=[True, True], reason=[2, -1]), ALL)
    assert episodes.reasons.tolist() == [0, 0, 1]


def test_an_episode_that_was_lost_counts_for_nothing() -> None:
    episodes = Episodes(env_spec())
    episodes.observe(arrival(0, [5.0, 1.0]), ALL)
    episodes.observe(arrival(0, [0.0, 1.0], starts=[True, False]), np.array([False, True]))
    episodes.observe(arrival(0, [2.0, 1.0], terminated=[True, True]), ALL)
    assert list(episodes.returns) == [2.0, 3.0]


def test_only_the_newest_episodes_are_averaged() -> None:
    episodes = Episodes(env_spec(2, 1))
    for number in range(WINDOW):
        episodes.observe(arrival(0, [number, number], terminated=[True, True]), ALL)
    assert episodes.completed == 2 * WINDOW
    assert min(episodes.returns) == WINDOW / 2


def test_counting_goes_on_from_a_saved_state() -> None:
    one, other = Episodes(env_spec()), Episodes(env_spec())
    steps = [
        arrival(0, [1.0, 2.0], terminated=[False, True]),
        arrival(1, [3.0, 4.0], truncated=[True, False]),
        arrival(0, [5.0, 6.0], terminated=[True, True]),
    ]
    one.observe(steps[0], ALL)
    other.load_state_dict(one.state_dict())
    for step in steps[1:]:
        one.observe(step, ALL)
        other.observe(step, ALL)
    assert list(one.returns) == list(other.returns) == [2.0, 3.0, 6.0, 6.0]
    assert one.record(Group()) == other.record(Group())


class Follower(Tracker):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.followed: tuple[int, list[str]] | None = None
        self.steps: list[list[list[float]]] = []

    @property
    def episode_metric(self) -> Any:
        return self

    def follow(self, num_envs: int, reasons: list[str]) -> None:
        self.followed = (num_envs, list(reasons))

    def step(self, *parts: torch.Tensor) -> None:
        self.steps.append([part.tolist() for part in parts])

    def statistics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: object) -> None: ...


def test_trackers_of_episodes_are_told_who_took_a_step() -> None:
    follower = Follower()
    trackers = TrackerGroup([follower])
    trackers.start(Path(), {})
    episodes = Episodes(env_spec(), trackers)
    assert follower.followed == (4, list(NAMES))
    episodes.observe(arrival(1, [3.0, 4.0], truncated=[False, True]), np.array([False, True]))
    rewards, dones, reasons, active = follower.steps[0]
    assert rewards == [0.0, 0.0, 3.0, 4.0]
    assert dones == [False, False, False, True]
    assert reasons[3] == 1
    assert active == [False, False, False, True]
