"""The episodic tracker against a loop over environments that anybody can check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_trackers import EpisodicEMATracker, EpisodicEMATrackerWithHistogram

NAMES = ("won", "lost")
EDGES = [-1.0, 0.0, 2.0, 3.0]


@dataclass
class Reference:
    """One environment after the other, in Python's own numbers."""

    num_envs: int
    alpha: float
    per_episode: bool
    rewards: list[float] = field(init=False)
    lengths: list[int] = field(init=False)
    averages: list[float] = field(default_factory=lambda: [0.0, 0.0])
    done: list[tuple[int, float, int]] = field(default_factory=list)
    reasons: list[int] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self.reset(range(self.num_envs), fresh=True)

    def reset(self, envs: Any, fresh: bool = False) -> None:
        if fresh:
            self.rewards, self.lengths = [0.0] * self.num_envs, [0] * self.num_envs
        for env in envs:
            self.rewards[env], self.lengths[env] = 0.0, 0

    def step(self, step: dict[str, Any]) -> list[tuple[int, float, int]]:
        ended = []
        for env in range(self.num_envs):
            if step["active"] is not None and not step["active"][env]:
                continue
            self.rewards[env] += step["rewards"][env]
            self.lengths[env] += 1
            self.steps += 1
            if step["dones"][env]:
                ended.append((env, self.rewards[env], self.lengths[env]))
                if step["reasons"] is not None:
                    self.reasons.append(step["reasons"][env])
                self.reset([env])
        for which in (0, 1):
            values = [row[1 + which] for row in ended]
            if values and not self.per_episode:
                values = [sum(values) / len(values)]
            for value in values:
                average = self.averages[which]
                self.averages[which] = self.alpha * value + (1 - self.alpha) * average
        self.done += ended
        return ended


def vectors(num_envs: int, elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(elements, min_size=num_envs, max_size=num_envs)


@st.composite
def stories(draw: st.DrawFn) -> tuple[int, list[dict[str, Any]]]:
    """Strategy for random inputs of some environments, step by step."""
    num_envs = draw(st.integers(0, 5))
    steps = st.fixed_dictionaries(
        {
            # Quarters add up exactly.
            "rewards": vectors(num_envs, st.integers(-12, 12).map(lambda x: x / 4)),
            "dones": vectors(num_envs, st.booleans()),
            "reasons": st.none() | vectors(num_envs, st.integers(-1, 3)),
            "active": st.none() | vectors(num_envs, st.booleans()),
            "reset": st.lists(st.integers(0, num_envs - 1), max_size=2)
            if num_envs
            else st.just([]),
        }
    )
    return num_envs, draw(st.lists(steps, max_size=12))


def tell(tracker: EpisodicEMATracker, step: dict[str, Any], sync: bool) -> dict[str, Any]:
    """One step of the tracker, and what it says completed, in either mode."""
    dtypes = {"rewards": torch.float32, "dones": torch.bool, "reasons": torch.int64}
    arguments = [
        None if step[name] is None else torch.tensor(step[name], dtype=dtype)
        for name, dtype in dtypes.items()
    ]
    active = None if step["active"] is None else torch.tensor(step["active"], dtype=torch.bool)
    result = tracker.step_update(*arguments, active=active, sync=sync)
    if not sync:
        assert result == {}
        result = tracker.newest_episodes()
    return result.get("completed_episodes", {})


def check_step(completed: dict[str, Any], ended: list[tuple[int, float, int]]) -> None:
    assert completed.get("count", 0) == len(ended)
    if ended:
        actual = [completed[name].tolist() for name in ("env_indices", "rewards", "lengths")]
        assert list(zip(*actual, strict=True)) == ended


def check_totals(tracker: EpisodicEMATrackerWithHistogram, expected: Reference) -> None:
    statistics = tracker.get_statistics()
    assert tracker.episode_rewards.tolist() == expected.rewards
    assert tracker.episode_lengths.tolist() == expected.lengths
    averages = [statistics["episodes/reward_ema"], statistics["episodes/length_ema"]]
    assert averages == pytest.approx(expected.averages, rel=1e-5, abs=1e-5)
    assert statistics["episodes/completed"] == len(expected.done)
    assert statistics["episodes/total_steps"] == expected.steps
    total = max(len(expected.reasons), 1)
    for at, name in enumerate(NAMES):
        share = expected.reasons.count(at) / total
        assert statistics[f"episodes/termination_{name}_prob"] == pytest.approx(share)
    others = [reason for reason in expected.reasons if reason not in (0, 1)]
    assert int(tracker.other_terminations) == len(others)
    for which, name in ((1, "reward"), (2, "length")):
        values = [row[which] for row in expected.done]
        extremes = [statistics[f"episodes/{name}_min"], statistics[f"episodes/{name}_max"]]
        assert extremes == ([min(values), max(values)] if values else [0, 0])
        bins = [sum(value >= edge for edge in EDGES[1:-1]) for value in values]
        counts = tracker.get_histograms()[f"histograms/{name}_counts"].tolist()
        assert counts == [bins.count(at) for at in range(3)]


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("per_episode", [False, True])
@settings(max_examples=20)
@given(story=stories(), alpha=st.sampled_from([0.01, 0.25, 1.0]))
def test_it_agrees_with_a_loop_over_environments(
    story: tuple[int, list[dict[str, Any]]], alpha: float, per_episode: bool, sync: bool
) -> None:
    num_envs, steps = story
    expected = Reference(num_envs, alpha, per_episode)
    tracker = EpisodicEMATrackerWithHistogram(
        num_envs,
        alpha,
        reward_bins=EDGES,
        length_bins=EDGES,
        reasons=NAMES,
        ema_update="per_episode" if per_episode else "batch_mean",
        track_extremes=True,
    )
    for step in steps:
        check_step(tell(tracker, step, sync), expected.step(step))
        expected.reset(step["reset"])
        tracker.reset_env(torch.tensor(step["reset"], dtype=torch.int64))
    check_totals(tracker, expected)


@settings(max_examples=20)
@given(story=stories(), cut=st.integers(0, 12), reads=st.lists(st.booleans(), min_size=12))
def test_neither_reading_nor_saving_nor_moving_changes_anything(
    story: tuple[int, list[dict[str, Any]]], cut: int, reads: list[bool]
) -> None:
    num_envs, steps = story
    left = EpisodicEMATracker(num_envs, 0.3, reasons=NAMES)
    right = EpisodicEMATracker(num_envs, 0.3, reasons=NAMES)
    for at, step in enumerate(steps):
        tell(left, step, True)
        tell(right, step, True)
        if reads[at]:
            _ = right.episode_lengths, dict(right.named_buffers())
        if at == cut:
            other = EpisodicEMATracker(num_envs, 0.3, reasons=NAMES)
            other.load_state_dict(right.state_dict())
            right = other.half().to("cpu").float()
    ours, theirs = left.state_dict(), right.state_dict()
    assert {k: v.tolist() for k, v in ours.items()} == {k: v.tolist() for k, v in theirs.items()}
    assert {v.dtype for v in theirs.values()} == {torch.float32, torch.int64}
