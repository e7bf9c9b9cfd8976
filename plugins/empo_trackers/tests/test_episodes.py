"""The trackers of episodes as parts of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from empo_core.config import installed
from empo_core.errors import ConfigError
from empo_core.protocols import Tracker
from empo_core.tracker_group import TrackerGroup
from empo_core.types import Histogram
from empo_learning.checkpoint import Checkpoints
from empo_testing.tracker import TrackerTests
from empo_trackers.episodes import EpisodicEma, EpisodicHistogram
from empo_trackers.plugin import EpisodicEmaParams, EpisodicHistogramParams


class TestEpisodicEma(TrackerTests):
    @pytest.fixture
    def tracker(self) -> Tracker:
        return EpisodicEma(EpisodicEmaParams())


class TestEpisodicHistogram(TrackerTests):
    @pytest.fixture
    def tracker(self) -> Tracker:
        return EpisodicHistogram(
            EpisodicHistogramParams(ema_update="per_episode", track_extremes=True)
        )


def from_registry(*names: str, **params: Any) -> TrackerGroup:
    """Trackers as a config names them."""
    members = []
    for name in names:
        component = installed().get("tracker", name)
        component_params = params if name.startswith("episodic") else {}
        members.append(component.load()(component.params(**component_params)))
    return TrackerGroup(members)


def step(
    trackers: TrackerGroup, rewards: list[float], dones: list[int], reasons: list[int]
) -> None:
    flags = torch.tensor(dones, dtype=torch.bool)
    trackers.step_episodes(torch.tensor(rewards), flags, torch.tensor(reasons))


def test_histograms_reach_tensorboard_as_histograms(tmp_path: Path) -> None:
    trackers = from_registry(
        "tensorboard", "episodic-histogram", alpha=0.5, reward_bins=[0, 1, 5], length_bins=[1, 2, 9]
    )
    trackers.start(tmp_path, {})
    trackers.log(0, {"loss": 1.0})
    trackers.start_episodes(3, ["won", "lost"])
    step(trackers, [0.5, 2.0, 7.0], [0, 1, 1], [-1, 0, 1])
    trackers.log(1, {"loss": 2.0})
    step(trackers, [3.0, 0.5, 0.5], [1, 1, 0], [1, 1, -1])
    trackers.log(2, {"loss": 3.0})
    trackers.finish("finished")

    events = EventAccumulator(str(tmp_path), size_guidance={"histograms": 0, "scalars": 0})
    events.Reload()
    rewards = events.Histograms("histograms/reward")
    assert [event.step for event in rewards] == [1, 2]
    assert list(rewards[-1].histogram_value.bucket_limit) == [0.0, 1.0, 5.0]
    assert [list(e.histogram_value.bucket) for e in rewards] == [[0, 0, 2], [0, 1, 3]]
    lengths = events.Histograms("histograms/length")
    assert [list(e.histogram_value.bucket) for e in lengths] == [[0, 2, 0], [0, 3, 1]]
    scalars = {
        key: [event.value for event in events.Scalars(key)]
        for key in events.Tags()["scalars"]
        if key != "loss"
    }
    assert scalars == {
        # By alpha 0.5 and from 0 on, divided by what one and two numbers weigh together.
        "episodes/reward_ema": [2.25 / 0.5, pytest.approx((1.125 + 2.0 / 2) / 0.75)],
        "episodes/length_ema": [0.5 / 0.5, pytest.approx((0.25 + 1.5 / 2) / 0.75)],
        "episodes/termination_won_prob": [0.5, 0.25],
        "episodes/termination_lost_prob": [0.5, 0.75],
        "episodes/completed": [2.0, 4.0],
        "episodes/total_steps": [3.0, 6.0],
        "histograms/reward_underflow": [0.0, 0.0],
        "histograms/reward_overflow": [1.0, 1.0],
        "histograms/length_underflow": [0.0, 0.0],
        "histograms/length_overflow": [0.0, 0.0],
    }


def test_numbers_reach_the_lines_of_a_run(tmp_path: Path) -> None:
    trackers = from_registry("episodic-ema", "jsonl", alpha=1.0, key_style="nested")
    trackers.start(tmp_path, {})
    trackers.start_episodes(2, ["won"])
    step(trackers, [2.0, 4.0], [1, 1], [0, -1])
    trackers.log(7, {})
    trackers.finish("finished")
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {
        "step": 7,
        "episodes/reward_ema": 3.0,
        "episodes/length_ema": 1.0,
        "episodes/termination/won_prob": 0.5,
        "episodes/termination/other_prob": 0.5,
        "episodes/completed": 2,
        "episodes/total_steps": 2,
    }


def test_running_episodes_survive_a_checkpoint_on_disk(tmp_path: Path) -> None:
    whole = from_registry("episodic-ema", "episodic-histogram")
    whole.start(tmp_path, {})
    whole.start_episodes(2, ["won"])
    step(whole, [2.0, 4.0], [0, 1], [-1, 0])
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(1, {"trackers": whole.state_dict()})

    resumed = from_registry("episodic-ema", "episodic-histogram")
    resumed.start(tmp_path, {})
    resumed.start_episodes(2, ["won"])
    resumed.load_state_dict(checkpoints.load(1)["trackers"])
    for trackers in (whole, resumed):
        step(trackers, [3.0, 1.0], [1, 0], [0, -1])
    assert resumed.episode_statistics() == whole.episode_statistics()
    histogram = resumed.episode_statistics()["histograms/length"]
    assert isinstance(histogram, Histogram)
    assert histogram.counts == [2, 0, 0, 0, 0, 0, 0]


def test_a_checkpoint_of_other_environments_is_refused() -> None:
    tracker = EpisodicEma(EpisodicEmaParams())
    tracker.start_episodes(2, ["won"])
    state = tracker.state_dict()
    for num_envs, reasons, name in ((3, ["won"], "episode_lengths"), (2, [], "termination_counts")):
        other = EpisodicEma(EpisodicEmaParams())
        other.start_episodes(num_envs, reasons)
        with pytest.raises(ConfigError, match=rf"{name} .*environments"):
            other.load_state_dict(state)
    more = EpisodicHistogram(EpisodicHistogramParams())
    more.start_episodes(2, ["won"])
    with pytest.raises(ConfigError, match=r"its length_histogram\.bin_edges"):
        more.load_state_dict(state)


def test_steps_before_anybody_says_of_how_many_environments_are_refused() -> None:
    tracker = EpisodicEma(EpisodicEmaParams())
    with pytest.raises(ValueError, match="call start_episodes first"):
        tracker.step_episodes(torch.ones(2), torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="call start_episodes first"):
        tracker.load_state_dict({"episode_rewards": torch.ones(2)})
    tracker.load_state_dict({})


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"reward_bins": [0, 1, 1]}, "edge 2 is 1 .*after 1"),
        ({"reward_bins": [1, 1.00000001]}, "also as float32"),
        ({"length_bins": [1]}, "too_short"),
        ({"alpha": 0}, "greater_than,"),
        ({"ema_update": "mean"}, "batch_mean"),
    ],
)
def test_params_that_make_no_sense_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EpisodicHistogramParams(**params)
