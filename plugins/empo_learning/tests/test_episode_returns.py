"""Returns of episodes: what is added up, what ends, what is averaged, what trackers are told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from empo_core.protocols import Tracker
from empo_core.tracker_group import TrackerGroup
from empo_learning.distributed import Group
from empo_learning.episode_returns import WINDOW, EpisodeReturns

NAMES = ("terminated", "truncated", "bored")
FIRST, SECOND = slice(0, 2), slice(2, 4)


def returns_of_four(**how: Any) -> EpisodeReturns:
    """Of two blocks of two agents each."""
    return EpisodeReturns(4, reasons=NAMES, **how)


def observe(
    episodes: EpisodeReturns,
    reward: list[float],
    reason: list[int] | None = None,
    *,
    agents: slice | None = FIRST,
    acted: list[bool] | None = None,
    **flags: list[Any],
) -> None:
    """Take in a step; episodes end for the reasons of their flags, unless others are given."""

    def flag(name: str) -> np.ndarray:
        return np.array(flags.get(name, [False] * len(reward)))

    terminated, truncated = flag("terminated"), flag("truncated")
    told = np.where(terminated, 0, np.where(truncated, 1, -1))
    episodes.observe(
        np.array(reward, np.float32),
        terminated | truncated,
        told if reason is None else np.array(reason),
        success=np.array(flags["success"], np.int8) if "success" in flags else None,
        starts=np.array(flags["starts"]) if "starts" in flags else None,
        acted=None if acted is None else np.array(acted),
        **({} if agents is None else {"agents": agents}),
    )


def test_rewards_add_up_until_an_episode_ends() -> None:
    episodes = returns_of_four()
    assert episodes.statistics().mean_return is None
    assert episodes.statistics().metrics() == {}
    observe(episodes, [1.0, 10.0])
    observe(episodes, [2.0, 20.0], terminated=[True, False])
    assert (list(episodes.returns), list(episodes.lengths)) == ([3.0], [2])
    observe(episodes, [5.0, 40.0], truncated=[True, True])
    assert (list(episodes.returns), list(episodes.lengths)) == ([3.0, 5.0, 70.0], [2, 1, 3])
    assert episodes.completed == 3
    assert episodes.reasons.tolist() == [1, 2, 0]
    found = episodes.statistics()
    assert found.mean_return == pytest.approx(26.0)
    assert found.mean_length == pytest.approx(2.0)
    assert found.reasons == {"terminated": 1, "truncated": 2, "bored": 0}
    assert found.metrics() == {
        "episode/return_mean": found.mean_return,
        "episode/length_mean": found.mean_length,
        "episode/completed": 3.0,
    }


def test_all_agents_may_step_at_once() -> None:
    episodes = EpisodeReturns(2)
    observe(episodes, [1.0, 2.0], agents=None)
    observe(episodes, [1.0, 2.0], agents=None, terminated=[False, True])
    observe(episodes, [1.0, 2.0], agents=None, truncated=[True, False])
    assert (list(episodes.returns), list(episodes.lengths)) == ([4.0, 3.0], [2, 3])
    assert episodes.statistics().reasons == {"terminated": 1, "truncated": 1}


def test_blocks_are_counted_apart() -> None:
    episodes = returns_of_four()
    observe(episodes, [1.0, 1.0])
    observe(episodes, [5.0, 7.0], agents=SECOND, terminated=[True, True])
    assert sorted(episodes.returns) == [5.0, 7.0]


def test_who_did_not_act_earns_nothing_and_ends_nothing() -> None:
    episodes = returns_of_four()
    observe(episodes, [9.0, 1.0], acted=[False, True], terminated=[True, True], success=[1, 0])
    assert (list(episodes.returns), list(episodes.lengths)) == ([1.0], [1])
    observe(episodes, [2.0, 2.0], terminated=[True, True], success=[-1, -1])
    assert list(episodes.returns) == [1.0, 2.0, 2.0]
    assert list(episodes.successes) == [0]


def test_an_environment_may_say_why_an_episode_ended() -> None:
    episodes = returns_of_four()
    observe(episodes, [0.0, 0.0], [2, -1], terminated=[True, True])
    assert episodes.completed == 2
    assert episodes.reasons.tolist() == [0, 0, 1]


def test_an_episode_that_was_lost_counts_for_nothing() -> None:
    episodes = returns_of_four()
    observe(episodes, [5.0, 1.0], success=[1, 0])
    observe(episodes, [0.0, 1.0], acted=[False, True], starts=[True, False], success=[-1, -1])
    observe(episodes, [2.0, 1.0], terminated=[True, True], success=[-1, -1])
    assert list(episodes.returns) == [2.0, 3.0]
    assert list(episodes.lengths) == [1, 3]
    assert list(episodes.successes) == [0]


def test_an_episode_that_ended_is_over_whether_or_not_the_next_begins_at_once() -> None:
    episodes = returns_of_four()
    observe(episodes, [5.0, 1.0], terminated=[True, True], starts=[True, False])
    observe(episodes, [1.0, 1.0], terminated=[True, True], starts=[True, True])
    assert list(episodes.returns) == [5.0, 1.0, 1.0, 1.0]


def test_an_episode_succeeds_that_achieved_its_task_at_any_step() -> None:
    episodes = returns_of_four()
    observe(episodes, [0.0, 0.0], success=[1, -1])
    observe(episodes, [0.0, 0.0], success=[0, 0])
    observe(episodes, [0.0, 0.0], success=[-1, -1], terminated=[True, True])
    assert list(episodes.successes) == [1, 0]
    assert episodes.statistics().metrics()["episode/success"] == 0.5


def test_only_episodes_of_which_the_environment_says_so_succeed_or_fail() -> None:
    episodes = returns_of_four()
    observe(episodes, [0.0, 0.0], terminated=[True, True])
    observe(episodes, [0.0, 0.0], terminated=[True, True], success=[-1, -1])
    assert episodes.statistics().success is None
    assert "episode/success" not in episodes.statistics().metrics()
    observe(episodes, [0.0, 0.0], terminated=[True, True], success=[1, -1])
    assert episodes.completed == 6
    assert episodes.statistics().success == 1.0


@pytest.mark.parametrize(("how", "window"), [({}, WINDOW), ({"window": 6}, 6)])
def test_only_the_newest_episodes_are_averaged(how: dict[str, int], window: int) -> None:
    episodes = returns_of_four(**how)
    for number in range(window):
        success = int(number >= window / 2)
        observe(episodes, [number, number], terminated=[True, True], success=[success, success])
    assert episodes.completed == 2 * window
    assert len(episodes.returns) == len(episodes.lengths) == len(episodes.successes) == window
    assert min(episodes.returns) == window / 2
    assert min(episodes.successes) == 1
    other = returns_of_four(**how)
    other.load_state_dict(episodes.state_dict())
    observe(other, [1.0, 1.0], terminated=[True, True], success=[0, 0])
    assert len(other.returns) == len(other.lengths) == len(other.successes) == window


def test_counting_goes_on_from_a_saved_state() -> None:
    one, other = returns_of_four(), returns_of_four()
    steps: list[dict[str, Any]] = [
        {"reward": [1.0, 2.0], "terminated": [False, True], "success": [1, 0]},
        {"reward": [3.0, 4.0], "agents": SECOND, "truncated": [True, False], "success": [-1, 0]},
        {"reward": [5.0, 6.0], "terminated": [True, True], "success": [0, -1]},
    ]
    observe(one, **steps[0])
    other.load_state_dict(one.state_dict())
    for step in steps[1:]:
        observe(one, **step)
        observe(other, **step)
    assert list(one.returns) == list(other.returns) == [2.0, 3.0, 6.0, 6.0]
    assert list(one.lengths) == list(other.lengths) == [1, 1, 2, 1]
    assert list(one.successes) == list(other.successes) == [0, 1]
    assert one.statistics() == other.statistics()


def test_a_saved_state_stays_as_it_is() -> None:
    episodes = returns_of_four()
    observe(episodes, [1.0, 2.0], terminated=[False, True], success=[1, 0])
    state = episodes.state_dict()
    observe(episodes, [5.0, 6.0], terminated=[True, True], success=[0, 1])
    other = returns_of_four()
    other.load_state_dict(state)
    assert (list(other.returns), other.reasons.tolist()) == ([2.0], [1, 0, 0])
    observe(other, [0.0, 0.0], terminated=[True, False], success=[-1, -1])
    assert (list(other.returns), list(other.successes)) == ([2.0, 1.0], [0, 1])


def test_unfinished_episodes_can_be_forgotten() -> None:
    episodes = returns_of_four()
    observe(episodes, [1.0, 2.0], terminated=[False, True], success=[1, 1])
    observe(episodes, [3.0, 4.0], agents=SECOND)
    episodes.forget_unfinished()
    observe(episodes, [5.0, 6.0], terminated=[True, False], success=[0, 0])
    observe(episodes, [7.0, 8.0], agents=SECOND, terminated=[True, True])
    assert list(episodes.returns) == [2.0, 5.0, 7.0, 8.0]
    assert list(episodes.lengths) == [1, 1, 1, 1]
    assert list(episodes.successes) == [1, 0]


class Twofold(Group):
    """Two processes in which the same happened."""

    def totals(self, numbers: Mapping[str, float]) -> dict[str, float]:
        return {name: 2 * number for name, number in numbers.items()}


def test_statistics_are_of_all_processes() -> None:
    episodes = returns_of_four()
    observe(episodes, [1.0, 2.0], terminated=[True, True], success=[1, 0])
    observe(episodes, [6.0, 0.0], truncated=[True, False])
    alone, both = episodes.statistics(Group()), episodes.statistics(Twofold())
    assert alone == episodes.statistics()
    assert (alone.completed, both.completed) == (3, 6)
    assert alone.mean_return == both.mean_return == 3.0
    assert alone.mean_length == both.mean_length == 1.0
    assert alone.success == both.success == 0.5
    assert both.reasons == {"terminated": 4, "truncated": 2, "bored": 0}


class Follower(Tracker):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.followed: tuple[int, list[str]] | None = None
        self.steps: list[list[list[float] | None]] = []

    def start_episodes(self, num_envs: int, reasons: list[str]) -> None:
        self.followed = (num_envs, list(reasons))

    def step_episodes(self, *parts: torch.Tensor | None) -> None:
        self.steps.append([None if part is None else part.tolist() for part in parts])

    def episode_statistics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: object) -> None: ...


@pytest.fixture
def follower() -> Follower:
    return Follower()


@pytest.fixture
def trackers(follower: Follower) -> TrackerGroup:
    group = TrackerGroup([follower])
    group.start(Path(), {})
    return group


def test_trackers_of_episodes_are_told_who_took_a_step(
    follower: Follower, trackers: TrackerGroup
) -> None:
    episodes = returns_of_four(tracker=trackers)
    assert follower.followed == (4, list(NAMES))
    observe(episodes, [3.0, 4.0], agents=SECOND, truncated=[False, True], acted=[False, True])
    rewards, dones, reasons, active = follower.steps[0]
    assert rewards == [0.0, 0.0, 3.0, 4.0]
    assert dones == [False, False, False, True]
    assert reasons is not None
    assert reasons[3] == 1
    assert active == [False, False, False, True]
    observe(episodes, [3.0, 4.0], agents=SECOND, terminated=[True, False])
    _, dones, _, active = follower.steps[1]
    assert dones == [False, False, True, False]
    assert active == [False, False, True, True]


def test_trackers_of_episodes_are_told_of_steps_that_all_agents_took(
    follower: Follower, trackers: TrackerGroup
) -> None:
    episodes = EpisodeReturns(2, trackers)
    assert follower.followed == (2, ["terminated", "truncated"])
    observe(episodes, [3.0, 4.0], agents=None, truncated=[False, True])
    observe(episodes, [3.0, 4.0], agents=None, acted=[True, False], terminated=[True, True])
    assert follower.steps == [
        [[3.0, 4.0], [False, True], [-1, 1], None],
        [[3.0, 4.0], [True, False], [0, 0], [True, False]],
    ]


def test_episodes_are_counted_without_any_tracker() -> None:
    trackers = TrackerGroup([])
    trackers.start(Path(), {})
    episodes = EpisodeReturns(2, trackers)
    observe(episodes, [3.0, 4.0], agents=None, truncated=[False, True])
    assert episodes.completed == 1
