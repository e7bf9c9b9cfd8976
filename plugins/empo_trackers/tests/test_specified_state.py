"""States saved by classes that are written from the specification alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from empo_trackers import EpisodicEMATrackerWithHistogram, FastVectorizedHistogram

REWARDS, LENGTHS = [0.0, 10.0, 20.0, 50.0, 100.0], [1.0, 2.0, 4.0, 8.0]


class Average(nn.Module):
    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha
        self.register_buffer("ema", torch.tensor(0.0))
        self.register_buffer("N", torch.tensor(0))

    def update(self, value: Tensor) -> None:
        self.ema.mul_(1 - self.alpha).add_(self.alpha * value)
        self.N.add_(1)


class Bins(nn.Module):
    def __init__(self, edges: list[float]) -> None:
        super().__init__()
        self.register_buffer("bin_edges", torch.tensor(edges))
        self.register_buffer("bins", torch.zeros(len(edges) - 1, dtype=torch.int64))

    def update_batch(self, values: Tensor) -> None:
        place = torch.searchsorted(self.bin_edges[1:-1], values.float(), right=True)
        self.bins.add_(torch.bincount(place, minlength=len(self.bins)))


class Specified(nn.Module):
    """The tracker with exactly the buffers and modules that the specification lists."""

    def __init__(self, num_envs: int, alpha: float) -> None:
        super().__init__()
        self.num_envs = num_envs
        self.register_buffer("episode_rewards", torch.zeros(num_envs))
        self.register_buffer("episode_lengths", torch.zeros(num_envs, dtype=torch.int64))
        self.register_buffer("termination_counts", torch.zeros(3, dtype=torch.int64))
        for name in ("total_terminations", "episodes_completed", "total_steps"):
            self.register_buffer(name, torch.tensor(0))
        self.ema_reward_tracker, self.ema_length_tracker = Average(alpha), Average(alpha)
        self.ema_termination_trackers = nn.ModuleList([Average(alpha) for _ in range(3)])
        self.reward_histogram, self.length_histogram = Bins(REWARDS), Bins(LENGTHS)

    def step_update(self, rewards: Tensor, dones: Tensor, reasons: Tensor) -> None:
        self.episode_rewards.add_(rewards)
        self.episode_lengths.add_(1)
        self.total_steps.add_(self.num_envs)
        if not dones.any():
            return
        for name in ("reward", "length"):
            done = getattr(self, f"episode_{name}s")[dones]
            getattr(self, f"ema_{name}_tracker").update(done.float().mean())
            getattr(self, f"{name}_histogram").update_batch(done)
            getattr(self, f"episode_{name}s")[dones] = 0
        self.termination_counts.add_(torch.bincount(reasons[dones], minlength=3))
        self.total_terminations.add_(dones.sum())
        self.episodes_completed.add_(dones.sum())


def drive(tracker: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(30):
        rewards = 10 * torch.rand(5, generator=generator)
        dones = torch.rand(5, generator=generator) < 0.3
        tracker.step_update(rewards, dones, torch.randint(3, (5,), generator=generator))


def test_a_saved_state_of_the_specified_classes_loads_and_goes_on(tmp_path: Path) -> None:
    specified = Specified(5, 0.2)
    drive(specified, 0)
    torch.save(specified.state_dict(), tmp_path / "state.pt")
    ours = EpisodicEMATrackerWithHistogram(5, 0.2, reward_bins=REWARDS, length_bins=LENGTHS)
    drive(ours, 7)  # All that it knew is replaced, also what the specification does not count.
    ours.step_update([float("nan")] * 5, [True] * 5, [-1] * 5)
    assert ours.reward_histogram.nan == 5
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    keys = set(saved)
    ours.load_state_dict(saved)
    assert set(saved) == keys  # What the caller has is left as it is.
    assert (int(ours.nan_episodes), int(ours.other_terminations)) == (0, 0)
    for seed in (1, 2):
        mine, theirs = ours.state_dict(), specified.state_dict()
        for name in mine.keys() & theirs.keys():
            torch.testing.assert_close(mine[name], theirs[name], rtol=1e-5, atol=1e-5)
        assert {name.split(".")[0] for name in theirs.keys() - mine.keys()} == {
            "ema_termination_trackers"
        }
        drive(ours, seed)
        drive(specified, seed)


def test_a_state_that_lacks_what_is_specified_is_still_refused() -> None:
    ours = EpisodicEMATrackerWithHistogram(5, 0.2)
    state = ours.state_dict()
    del state["total_terminations"]
    with pytest.raises(RuntimeError, match=r'Missing key.*"total_terminations"'):
        ours.load_state_dict(state)


def test_bins_and_edges_are_called_as_specified_and_move_with_the_tracker() -> None:
    histogram = FastVectorizedHistogram(REWARDS)
    histogram.update_batch([5.0, 15.0, 75.0])
    assert histogram.bins.tolist() == [1, 1, 0, 1]
    assert histogram.bins.dtype == torch.int64
    tracker = EpisodicEMATrackerWithHistogram(5, reward_bins=REWARDS, length_bins=LENGTHS)
    assert tracker.reward_bin_edges.tolist() == REWARDS
    assert tracker.length_bin_edges.tolist() == LENGTHS
    tracker.to("meta")
    assert tracker.reward_bin_edges.device.type == tracker.length_bin_edges.device.type == "meta"
