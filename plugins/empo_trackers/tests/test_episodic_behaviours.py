"""The 25 behaviours that the episodic tracker is specified by, one by one."""

from __future__ import annotations

import timeit
from typing import Any

import numpy as np
import pytest
import torch

from empo_trackers import (
    EpisodicEMATracker,
    EpisodicEMATrackerWithHistogram,
    FastVectorizedHistogram,
    TerminationReason,
)

REWARD_BINS = [0.0, 10.0, 20.0, 50.0, 100.0]


def flags(*dones: int) -> torch.Tensor:
    return torch.tensor(dones, dtype=torch.bool)


def one_by_one(tracker: EpisodicEMATracker, *rewards: float) -> None:
    """Episodes of a single step each in a single environment."""
    for reward in rewards:
        tracker.step_update(torch.tensor([reward]), flags(1))


def test_01_everything_begins_with_zero() -> None:
    tracker = EpisodicEMATracker(num_envs=4, alpha=0.1)
    assert (tracker.num_envs, tracker.alpha) == (4, 0.1)
    assert tracker.episode_rewards.tolist() == [0.0] * 4
    assert tracker.episode_rewards.dtype == torch.float32
    assert tracker.episode_lengths.tolist() == [0] * 4
    assert tracker.episode_lengths.dtype == torch.int64
    assert tracker.termination_counts.tolist() == [0, 0, 0]
    for counter in (tracker.total_terminations, tracker.episodes_completed, tracker.total_steps):
        assert counter.shape == ()
        assert (int(counter), counter.dtype) == (0, torch.int64)


def test_02_a_step_without_a_completed_episode_only_adds_up() -> None:
    tracker = EpisodicEMATracker(3)
    result = tracker.step_update(torch.tensor([1.0, 2.0, 3.0]), flags(0, 0, 0))
    assert "completed_episodes" not in result
    assert tracker.episode_rewards.tolist() == [1.0, 2.0, 3.0]
    assert tracker.episode_lengths.tolist() == [1, 1, 1]
    assert int(tracker.total_steps) == 3


def test_03_one_environment_completes_and_the_others_go_on() -> None:
    tracker = EpisodicEMATracker(3)
    tracker.step_update(torch.tensor([1.0, 2.0, 3.0]), flags(0, 0, 0))
    result = tracker.step_update(torch.tensor([1.0, 1.0, 1.0]), flags(0, 1, 0))
    completed = result["completed_episodes"]
    assert completed["count"] == 1
    assert completed["rewards"].tolist() == [3.0]
    assert completed["lengths"].tolist() == [2]
    assert completed["env_indices"].tolist() == [1]
    assert tracker.episode_rewards.tolist() == [2.0, 0.0, 4.0]
    assert tracker.episode_lengths.tolist() == [2, 0, 2]
    assert int(tracker.total_steps) == 6


def test_04_environments_that_complete_together_come_in_ascending_order() -> None:
    tracker = EpisodicEMATracker(4)
    completed = tracker.step_update(torch.tensor([1.0, 2.0, 3.0, 4.0]), flags(0, 1, 0, 1))[
        "completed_episodes"
    ]
    assert completed["count"] == 2
    assert completed["env_indices"].tolist() == [1, 3]
    assert completed["rewards"].tolist() == [2.0, 4.0]


def test_05_the_averages_start_at_zero_without_correction() -> None:
    tracker = EpisodicEMATracker(1, alpha=0.5)
    one_by_one(tracker, 10.0)
    statistics = tracker.get_statistics()
    assert (statistics["episodes/reward_ema"], statistics["episodes/length_ema"]) == (5.0, 0.5)
    tracker.step_update(torch.tensor([5.0]), flags(0))
    one_by_one(tracker, 15.0)
    statistics = tracker.get_statistics()
    assert (statistics["episodes/reward_ema"], statistics["episodes/length_ema"]) == (12.5, 1.25)


def test_06_extremes_are_told_if_asked_for() -> None:
    tracker = EpisodicEMATracker(1, track_extremes=True)
    names = [
        f"episodes/{quantity}_{end}" for quantity in ("reward", "length") for end in ("min", "max")
    ]
    assert [tracker.get_statistics()[name] for name in names] == [0.0, 0.0, 0, 0]
    for reward, steps in ((5.0, 3), (10.0, 5), (1.0, 1)):
        for _ in range(steps - 1):
            tracker.step_update(torch.zeros(1), flags(0))
        one_by_one(tracker, reward)
    assert [tracker.get_statistics()[name] for name in names] == [1.0, 10.0, 1, 5]
    assert not set(names) & set(EpisodicEMATracker(1).get_statistics())


def test_07_environments_can_be_reset() -> None:
    tracker = EpisodicEMATracker(4, alpha=0.5)
    tracker.step_update(torch.ones(4), flags(1, 0, 0, 0))
    tracker.step_update(torch.ones(4), flags(0, 0, 0, 0))
    before = tracker.get_statistics()
    tracker.reset_env(torch.tensor([1, 3]))
    assert tracker.episode_rewards.tolist() == [1.0, 0.0, 2.0, 0.0]
    assert tracker.episode_lengths.tolist() == [1, 0, 2, 0]
    assert tracker.get_statistics() == before


@pytest.mark.parametrize("sync", [True, False])
def test_08_there_may_be_no_environment(sync: bool) -> None:
    tracker = EpisodicEMATrackerWithHistogram(0, track_extremes=True)
    nothing = torch.zeros(0)
    assert tracker.step_update(nothing, nothing.bool(), nothing.long(), sync=sync) == {}
    tracker.reset_env(nothing.long())
    assert tracker.get_statistics()["episodes/total_steps"] == 0


def test_09_all_environments_may_complete_at_once() -> None:
    tracker = EpisodicEMATracker(3, alpha=1.0)
    completed = tracker.step_update(torch.tensor([3.0, 6.0, 9.0]), flags(1, 1, 1))
    assert completed["completed_episodes"]["count"] == 3
    assert tracker.episode_rewards.tolist() == [0.0] * 3
    assert tracker.episode_lengths.tolist() == [0] * 3
    assert tracker.get_statistics()["episodes/reward_ema"] == 6.0


def test_10_rewards_may_be_zero_or_negative() -> None:
    tracker = EpisodicEMATracker(3, alpha=1.0)
    tracker.step_update(torch.tensor([-1.0, 0.0, -2.5]), flags(0, 0, 0))
    completed = tracker.step_update(torch.tensor([-1.0, 0.0, 2.5]), flags(1, 1, 1))
    assert completed["completed_episodes"]["rewards"].tolist() == [-2.0, 0.0, 0.0]
    assert tracker.get_statistics()["episodes/reward_ema"] == pytest.approx(-2 / 3)


def test_11_statistics_before_any_episode_are_zero() -> None:
    assert EpisodicEMATracker(5).get_statistics() == {
        "episodes/reward_ema": 0.0,
        "episodes/length_ema": 0.0,
        "episodes/termination_time_limit_prob": 0.0,
        "episodes/termination_progress_complete_prob": 0.0,
        "episodes/termination_collision_death_prob": 0.0,
        "episodes/completed": 0,
        "episodes/total_steps": 0,
    }


@pytest.mark.parametrize("sync", [True, False])
def test_12_each_episode_may_be_averaged_of_its_own(sync: bool) -> None:
    tracker = EpisodicEMATracker(3, alpha=0.2, ema_update="per_episode")
    tracker.step_update(torch.tensor([5.0, 10.0, 15.0]), flags(1, 1, 1), sync=sync)
    statistics = tracker.get_statistics()
    assert statistics["episodes/reward_ema"] == pytest.approx(5.24)
    assert statistics["episodes/length_ema"] == pytest.approx(0.488)
    assert statistics["episodes/completed"] == 3
    tracker.step_update(torch.tensor([1.0, 1.0, 1.0]), flags(1, 1, 1), sync=sync)
    assert tracker.get_statistics()["episodes/completed"] == 6
    tracker.step_update(torch.tensor([1.0, 1.0, 1.0]), flags(1, 0, 1), sync=sync)
    assert tracker.get_statistics()["episodes/completed"] == 8


def test_13_statistics_are_plain_floats_and_integers() -> None:
    tracker = EpisodicEMATracker(2)
    tracker.step_update(torch.ones(2), flags(1, 0), torch.tensor([0, 0]))
    for key, value in tracker.get_statistics().items():
        assert type(value) is (int if key.endswith(("completed", "steps")) else float), key
    completed = tracker.step_update(torch.ones(2), flags(1, 0))["completed_episodes"]
    assert type(completed["count"]) is int


def test_14_what_is_returned_lies_on_the_module_s_device_and_is_nobody_else_s() -> None:
    tracker = EpisodicEMATracker(2, device=torch.device("cpu"))
    rewards = torch.tensor([2.0, 3.0])
    completed = tracker.step_update(rewards, flags(1, 1))["completed_episodes"]
    for name, dtype in (
        ("rewards", torch.float32), ("lengths", torch.int64), ("env_indices", torch.int64),
    ):  # fmt: skip
        assert completed[name].device == tracker.episode_rewards.device
        assert completed[name].dtype == dtype
    tracker.step_update(rewards, flags(0, 0))
    assert completed["rewards"].tolist() == [2.0, 3.0]
    assert completed["lengths"].tolist() == [1, 1]
    completed["rewards"].zero_()
    assert tracker.episode_rewards.tolist() == [2.0, 3.0]


def test_15_long_episodes_add_up() -> None:
    tracker = EpisodicEMATracker(2, alpha=1.0)
    for _ in range(99):
        assert tracker.step_update(torch.tensor([0.1, 0.2]), flags(0, 0)) == {}
    completed = tracker.step_update(torch.tensor([1.0, 2.0]), flags(1, 1))["completed_episodes"]
    torch.testing.assert_close(completed["rewards"], torch.tensor([10.9, 21.8]))
    assert completed["lengths"].tolist() == [100, 100]
    assert int(tracker.total_steps) == 200


def test_16_a_histogram_counts_what_falls_into_its_bins() -> None:
    histogram = FastVectorizedHistogram(REWARD_BINS)
    assert histogram.get_counts().tolist() == [0, 0, 0, 0]
    assert histogram.get_counts().dtype == torch.int64
    histogram.update_batch(torch.tensor([5.0, 15.0, 75.0]))
    assert histogram.get_counts().tolist() == [1, 1, 0, 1]
    histogram.reset()
    histogram.update_batch(torch.tensor([5.0, 15.0, 25.0, 75.0, 8.0, 12.0]))
    assert histogram.get_counts().tolist() == [2, 2, 1, 1]
    histogram.update_batch(torch.tensor([]))
    assert histogram.get_counts().tolist() == [2, 2, 1, 1]
    histogram.reset()
    histogram.update_batch(torch.tensor([-5.0, 150.0]))
    assert histogram.get_counts().tolist() == [1, 0, 0, 1]
    histogram.reset()
    assert histogram.get_probabilities().tolist() == [0.0] * 4
    histogram.update_batch(torch.tensor([5.0, 15.0, 15.0, 25.0]))
    assert histogram.get_probabilities().tolist() == [0.25, 0.5, 0.25, 0.0]
    assert histogram.get_probabilities().dtype == torch.float32


def test_17_bins_have_defaults_and_can_be_chosen() -> None:
    default = EpisodicEMATrackerWithHistogram(2)
    edges = default.get_histograms()
    assert edges["histograms/reward_bin_edges"].tolist() == [0, 1, 5, 10, 20, 50, 100, 200]
    assert edges["histograms/length_bin_edges"].tolist() == [1, 10, 25, 50, 100, 150, 200, 300]
    assert [len(edges[f"histograms/{x}_counts"]) for x in ("reward", "length")] == [7, 7]
    chosen = EpisodicEMATrackerWithHistogram(
        2, 0.01, None, [0, 10, 20, 50, 100], [1, 10, 50, 100]
    ).get_histograms()
    assert [len(chosen[f"histograms/{x}_counts"]) for x in ("reward", "length")] == [4, 3]


def test_18_completed_episodes_fill_both_histograms() -> None:
    tracker = EpisodicEMATrackerWithHistogram(
        3, reward_bins=REWARD_BINS, length_bins=[1, 10, 25, 50]
    )
    tracker.step_update(torch.tensor([8.0, 15.0, 75.0]), flags(1, 1, 1))
    histograms = tracker.get_histograms()
    assert histograms["histograms/reward_counts"].tolist() == [1, 1, 0, 1]
    assert histograms["histograms/length_counts"].tolist() == [3, 0, 0]
    tracker.step_update(torch.tensor([8.0, 15.0, 75.0]), flags(0, 0, 0))
    assert tracker.get_histograms()["histograms/reward_counts"].tolist() == [1, 1, 0, 1]


def test_19_histograms_have_six_keys_and_statistics_none_of_them() -> None:
    tracker = EpisodicEMATrackerWithHistogram(2)
    tracker.step_update(torch.ones(2), flags(1, 1))
    histograms = tracker.get_histograms()
    assert set(histograms) == {
        f"histograms/{quantity}_{part}"
        for quantity in ("reward", "length")
        for part in ("counts", "distribution", "bin_edges")
    }
    assert all(isinstance(array, np.ndarray) for array in histograms.values())
    assert not any("histogram" in key for key in tracker.get_statistics())


def test_20_histograms_can_be_reset_alone() -> None:
    tracker = EpisodicEMATrackerWithHistogram(2, alpha=0.5)
    tracker.step_update(torch.tensor([4.0, 8.0]), flags(1, 1))
    before = tracker.get_statistics()
    tracker.reset_histograms()
    assert tracker.get_histograms()["histograms/reward_counts"].sum() == 0
    assert tracker.get_histograms()["histograms/length_counts"].sum() == 0
    assert tracker.get_statistics() == before
    assert before["episodes/reward_ema"] == 3.0


def test_21_lengths_fall_into_their_bins() -> None:
    tracker = EpisodicEMATrackerWithHistogram(1, length_bins=[1, 5, 10, 25, 50])
    for length in (1, 8, 23):
        for step in range(length):
            tracker.step_update(torch.zeros(1), flags(step == length - 1))
    assert tracker.get_histograms()["histograms/length_counts"].tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("make", [EpisodicEMATracker, EpisodicEMATrackerWithHistogram])
def test_22_a_disabled_tracker_keeps_nothing_and_does_nothing(make: Any) -> None:
    tracker = make(2, disable=True)
    assert tracker.step_update(torch.ones(2), flags(1, 1), torch.tensor([0, 1])) == {}
    assert tracker.step_update(None, None, sync=False) == {}
    assert tracker.get_statistics() == {}
    assert tracker.newest_episodes() == {}
    tracker.reset_env(torch.tensor([0]))
    if make is EpisodicEMATrackerWithHistogram:
        assert tracker.get_histograms() == {}
        tracker.reset_histograms()
    assert list(tracker.buffers()) == []
    assert tracker.state_dict() == {}
    with pytest.raises(AttributeError, match="episode_lengths"):
        _ = tracker.episode_lengths


@pytest.mark.slow
def test_22_a_disabled_tracker_costs_a_tenth_at_most() -> None:
    rewards, dones = torch.ones(64), torch.ones(64, dtype=torch.bool)
    on, off = EpisodicEMATracker(64), EpisodicEMATracker(64, disable=True)
    costs = [
        min(timeit.repeat(lambda t=tracker: t.step_update(rewards, dones), number=200, repeat=5))
        for tracker in (on, off)
    ]
    assert costs[0] > 10 * costs[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_23_inputs_are_moved_to_the_module_s_cuda_device() -> None:
    tracker = EpisodicEMATrackerWithHistogram(2, device=torch.device("cuda"), alpha=0.5)
    result = tracker.step_update(torch.ones(2), flags(1, 0), torch.tensor([2, 0]))
    assert result["completed_episodes"]["rewards"].device.type == "cuda"
    statistics = tracker.get_statistics()
    assert statistics["episodes/reward_ema"] == 0.5
    assert statistics["episodes/termination_collision_death_prob"] == 1.0
    assert tracker.get_histograms()["histograms/reward_counts"].tolist() == [0, 1, 0, 0, 0, 0, 0]


def test_23_inputs_need_not_be_tensors_on_the_module_s_device() -> None:
    """Without CUDA: the meta device refuses every operation with a tensor of another device."""
    tracker = EpisodicEMATracker(2, device="meta")
    tracker.step_update(torch.ones(2), torch.zeros(2, dtype=torch.int64), sync=False)
    tracker.step_update([1, 2], np.array([True, False]), [0, 1], sync=False)
    assert tracker.episode_rewards.device.type == "meta"


def test_24_reasons_are_counted_where_they_come() -> None:
    tracker = EpisodicEMATracker(3)
    reasons = torch.tensor(
        [
            TerminationReason.TIME_LIMIT,
            TerminationReason.COLLISION_DEATH,
            TerminationReason.COLLISION_DEATH,
        ]
    )
    tracker.step_update(torch.ones(3), flags(1, 1, 1), reasons)
    keys = [
        f"episodes/termination_{name}_prob"
        for name in ("time_limit", "progress_complete", "collision_death")
    ]
    expected = [1 / 3, 0.0, 2 / 3]
    assert [tracker.get_statistics()[key] for key in keys] == pytest.approx(expected)
    tracker.step_update(torch.ones(3), flags(1, 1, 1))
    statistics = tracker.get_statistics()
    assert [statistics[key] for key in keys] == pytest.approx(expected)
    assert statistics["episodes/completed"] == 6


def drive(tracker: EpisodicEMATracker, seed: int, steps: int) -> list[Any]:
    """Random steps, and what came of them."""
    generator = torch.Generator().manual_seed(seed)
    results: list[Any] = []
    for _ in range(steps):
        rewards = torch.randn(6, generator=generator)
        dones = torch.rand(6, generator=generator) < 0.3
        reasons = torch.randint(-1, 4, (6,), generator=generator)
        result = tracker.step_update(rewards, dones, reasons).get("completed_episodes", {})
        results.append({key: torch.as_tensor(value).tolist() for key, value in result.items()})
    results.append(tracker.get_statistics())
    return results


def test_25_a_state_that_is_loaded_goes_on_identically() -> None:
    options: dict[str, Any] = {"alpha": 0.2, "track_extremes": True, "ema_update": "per_episode"}
    original = EpisodicEMATrackerWithHistogram(6, **options)
    drive(original, 0, 20)
    other = EpisodicEMATrackerWithHistogram(6, **options)
    drive(other, 7, 3)  # Whatever it knew is replaced.
    other.load_state_dict(original.state_dict())
    assert drive(original, 1, 20) == drive(other, 1, 20)
    ours, theirs = original.get_histograms(), other.get_histograms()
    assert {k: v.tolist() for k, v in ours.items()} == {k: v.tolist() for k, v in theirs.items()}
