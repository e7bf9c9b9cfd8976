"""Inputs that the episodic tracker accepts and refuses, and isolation of its state."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from empo_trackers import (
    EMATracker,
    EpisodicEMATracker,
    EpisodicEMATrackerWithHistogram,
    TerminationReason,
)


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.tensor(1.0), ones(3)), r"rewards .*\(3,\), .* got \(\)"),
        ((ones(1), ones(3)), r"rewards .*\(3,\), .* got \(1,\)"),
        ((ones(3, 1), ones(3)), r"rewards must .* got \(3, 1\)"),
        ((ones(3), ones(1)), "dones .*shape"),
        ((ones(3), True), "dones .*shape"),
        ((ones(3), ones(3), torch.tensor([1])), "termination_reasons .*shape"),
        ((ones(3), ones(3), ones(3)), r"termination_reasons .*torch.float32"),
        ((ones(3) * 1j, ones(3)), "rewards .*torch.complex64"),
        ((["a", "b", "c"], ones(3)), "rewards .*got list"),
        (([[1.0], [1.0, 2.0], [1.0]], ones(3)), "rewards .*got list"),
        ((None, ones(3)), "rewards .*got NoneType"),
    ],
)
@pytest.mark.parametrize("sync", [True, False])
def test_what_is_wrong_is_refused_and_changes_nothing(
    arguments: tuple[Any, ...], message: str, sync: bool
) -> None:
    tracker = EpisodicEMATracker(3)
    tracker.step_update(ones(3), torch.tensor([1, 0, 0]))
    before = copy.deepcopy(tracker.state_dict())
    with pytest.raises(ValueError, match=message):
        tracker.step_update(*arguments, sync=sync)
    with pytest.raises(ValueError, match=r"active .*shape"):
        tracker.step_update(ones(3), ones(3), active=True, sync=sync)
    after = tracker.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": -1}, "num_envs is -1"),
        ({"num_envs": True}, "num_envs is True"),
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"alpha": math.nan}, "alpha .*nan"),
        ({"reasons": "won"}, "reasons .*'won'"),
        ({"reasons": ["won", ""]}, r"reasons .*''"),
        ({"reasons": ["won", "won"]}, "won, won"),
        ({"reasons": ["other"]}, "called 'other'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EpisodicEMATracker(**{"num_envs": 2, **options})


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float32])
@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.int64, torch.bool])
def test_rewards_and_dones_come_in_any_real_dtype(dtype: torch.dtype, kind: torch.dtype) -> None:
    tracker = EpisodicEMATracker(2)
    result = tracker.step_update(torch.ones(2, dtype=kind), torch.tensor([0, 1]).to(dtype))
    assert result["completed_episodes"]["env_indices"].tolist() == [1]
    assert result["completed_episodes"]["rewards"].tolist() == [1.0]
    assert tracker.episode_rewards.dtype == torch.float32


def test_arrays_and_lists_are_taken_like_tensors() -> None:
    tracker = EpisodicEMATracker(2, alpha=1.0)
    rewards = np.array([2.0, 1.0])[::-1]
    rewards.flags.writeable = False
    result = tracker.step_update(rewards, [True, False], np.array([2, 0], dtype=np.int16))
    assert result["completed_episodes"]["rewards"].tolist() == [1.0]
    tracker.step_update([1, 1], (0, 1), [TerminationReason.TIME_LIMIT] * 2)
    assert tracker.termination_counts.tolist() == [1, 0, 1]
    tracker.reset_env([0])
    assert tracker.episode_rewards.tolist() == [0.0, 0.0]
    # Most of a sparse view is not next to each other in memory.
    sparse = torch.tensor([[True, False], [False, False]])[:, 0]
    assert tracker.step_update(ones(2), sparse)["completed_episodes"]["count"] == 1


def test_no_gradient_flows_into_the_tracker() -> None:
    tracker = EpisodicEMATrackerWithHistogram(2)
    rewards = torch.ones(2, requires_grad=True)
    for dones in ([0, 0], [1, 0]):
        result = tracker.step_update(rewards, torch.tensor(dones))
    assert not result["completed_episodes"]["rewards"].requires_grad
    assert not any(buffer.requires_grad for buffer in tracker.buffers())


def test_it_works_in_inference_mode_and_afterwards() -> None:
    tracker = EpisodicEMATracker(2, alpha=1.0)
    with torch.inference_mode():
        tracker.step_update(ones(2), torch.tensor([True, False]), active=torch.tensor([1, 1]))
        tracker.step_update(ones(2), torch.tensor([True, False]), sync=False)
        _ = tracker.episode_lengths
    completed = tracker.step_update(ones(2), torch.tensor([True, True]))["completed_episodes"]
    assert completed["lengths"].tolist() == [1, 3]


def test_a_reward_that_is_nan_shows_and_stays_in_its_environment() -> None:
    for sync in (True, False):
        tracker = EpisodicEMATrackerWithHistogram(2, alpha=1.0, track_extremes=True)
        tracker.step_update(torch.tensor([math.nan, 1.0]), torch.tensor([0, 1]), sync=sync)
        assert tracker.get_statistics()["episodes/reward_ema"] == 1.0
        assert "episodes/nan" not in tracker.get_statistics()
        tracker.step_update(torch.tensor([1.0, 4.0]), torch.tensor([1, 1]), sync=sync)
        statistics = tracker.get_statistics()
        assert math.isnan(statistics["episodes/reward_ema"])
        assert statistics["episodes/nan"] == 1
        assert (statistics["episodes/reward_min"], statistics["episodes/reward_max"]) == (1.0, 4.0)
        assert tracker.reward_histogram.nan == 1
        completed = tracker.step_update(torch.tensor([2.0, 2.0]), torch.tensor([1, 1]))
        assert completed["completed_episodes"]["rewards"].tolist() == [2.0, 2.0]


def test_only_episodes_that_end_have_a_reason() -> None:
    tracker = EpisodicEMATracker(3, reasons=["won", "lost"], key_style="nested")
    dones = torch.tensor([True, True, False])
    tracker.step_update(ones(3), dones, torch.tensor([0, -1, 99]))
    tracker.step_update(ones(3), dones, torch.tensor([7, 0, 1]))
    statistics = tracker.get_statistics()
    shares = {key: value for key, value in statistics.items() if "termination" in key}
    assert shares == {
        "episodes/termination/won_prob": 0.5,
        "episodes/termination/lost_prob": 0.0,
        "episodes/termination/other_prob": 0.5,
    }
    assert int(tracker.termination_counts.sum() + tracker.other_terminations) == 4
    assert int(tracker.total_terminations) == 4


def test_environments_that_take_no_step_stay_as_they_are() -> None:
    tracker = EpisodicEMATracker(3)
    tracker.step_update(ones(3), torch.zeros(3))
    result = tracker.step_update(
        torch.tensor([1.0, math.nan, 1.0]),
        torch.tensor([1, 1, 0]),
        torch.tensor([0, 0, 0]),
        active=[True, False, True],
    )
    assert result["completed_episodes"]["env_indices"].tolist() == [0]
    assert tracker.episode_rewards.tolist() == [0.0, 1.0, 2.0]
    assert tracker.episode_lengths.tolist() == [0, 1, 2]
    assert int(tracker.total_steps) == 5
    assert int(tracker.total_terminations) == 1


@pytest.mark.parametrize(
    ("index", "error"), [([3], IndexError), ([-1], IndexError), ([0.5], ValueError)]
)
def test_only_environments_that_exist_can_be_reset(index: Any, error: type[Exception]) -> None:
    tracker = EpisodicEMATracker(3)
    tracker.step_update(ones(3), torch.zeros(3))
    with pytest.raises(error, match="env_indices"):
        tracker.reset_env(torch.tensor(index))
    with pytest.raises(ValueError, match=r"env_indices .*torch\.bool"):
        tracker.reset_env(torch.tensor([True, False, True]))
    assert tracker.episode_rewards.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("change", ["half", "bfloat16", "double"])
def test_a_model_in_half_precision_leaves_its_tracker_exact(change: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    model.append(EpisodicEMATrackerWithHistogram(1, alpha=1.0))
    tracker: Any = model[1]
    tracker.step_update(torch.tensor([2049.0]), torch.tensor([False]))
    getattr(model, change)()
    assert model[0].weight.dtype != torch.float32
    tracker.step_update(torch.tensor([0.25]), torch.tensor([True]))
    assert tracker.get_statistics()["episodes/reward_ema"] == 2049.25
    assert {buffer.dtype for buffer in tracker.buffers()} == {torch.float32, torch.int64}


def test_lengths_read_as_they_are_whatever_way_they_are_read() -> None:
    tracker = EpisodicEMATracker(2)
    for _ in range(3):
        tracker.step_update(ones(2), torch.zeros(2))
    assert dict(tracker.named_buffers())["episode_lengths"].tolist() == [3, 3]
    tracker.step_update(ones(2), torch.tensor([0, 1]))
    state = torch.nn.ModuleDict({"tracker": tracker}).state_dict()
    assert state["tracker.episode_lengths"].tolist() == [4, 0]
    assert int(state["tracker.total_steps"]) == 8
    tracker.step_update(ones(2), torch.zeros(2))
    assert copy.deepcopy(tracker).episode_lengths.tolist() == [5, 1]
    tracker.episode_lengths[0] = 100
    tracker.step_update(ones(2), torch.zeros(2))
    assert tracker.episode_lengths.tolist() == [101, 2]
    tracker.to("meta")
    assert tracker.episode_lengths.device.type == "meta"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: x.share_memory()])
def test_wherever_its_memory_is_it_counts_there(copied: Any) -> None:
    tracker = EpisodicEMATrackerWithHistogram(1, alpha=0.5)
    tracker.step_update(ones(1), ones(1), torch.zeros(1, dtype=torch.int64))
    other = copied(tracker)
    other.step_update(3 * ones(1), ones(1), torch.zeros(1, dtype=torch.int64))
    assert int(other.episodes_completed) == int(other.reward_histogram.bins.sum()) == 2
    assert other.ema_reward_tracker.value == 1.75
    assert int(tracker.episodes_completed) == (1 if copied is copy.deepcopy else 2)


def test_its_parts_are_what_they_are_called() -> None:
    tracker = EpisodicEMATracker(2, alpha=0.25)
    assert isinstance(tracker.ema_reward_tracker, EMATracker)
    assert tracker.ema_length_tracker.decay == 0.75
    assert set(tracker.state_dict()) == {
        "episode_rewards", "episode_lengths", "termination_counts", "other_terminations",
        "total_terminations", "episodes_completed", "nan_episodes", "total_steps",
        "ema_reward_tracker.ema", "ema_reward_tracker.N",
        "ema_length_tracker.ema", "ema_length_tracker.N",
    }  # fmt: skip


def test_the_flags_of_a_step_may_be_used_again() -> None:
    tracker = EpisodicEMATracker(2)
    dones = torch.tensor([True, False])
    assert tracker.newest_episodes() == {}
    tracker.step_update(ones(2), dones, sync=False)
    dones.zero_()
    assert tracker.newest_episodes()["completed_episodes"]["env_indices"].tolist() == [0]
    tracker.step_update(ones(2), dones, sync=False)
    assert tracker.newest_episodes() == {}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_step_that_is_not_asked_for_waits_for_no_device() -> None:
    tracker = EpisodicEMATrackerWithHistogram(
        3, device="cuda", ema_update="per_episode", track_extremes=True
    )
    dones = torch.tensor([True, False, True], device="cuda")
    step = torch.ones(3, device="cuda"), dones, dones.long()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            tracker.step_update(*step, sync=False)
            tracker.step_update(*step, active=dones, sync=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert tracker.newest_episodes()["completed_episodes"]["count"] == 2
    assert tracker.get_statistics()["episodes/completed"] == 12
