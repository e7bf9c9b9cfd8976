import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from empo_core.protocols import Tracker
from empo_core.testing.tracker import TrackerTests
from empo_core.types import Histogram
from empo_trackers.plugin import TensorboardParams
from empo_trackers.tensorboard import TensorboardTracker


class TestTensorboardTracker(TrackerTests):
    @pytest.fixture
    def tracker(self) -> Tracker:
        return TensorboardTracker(TensorboardParams())


@pytest.fixture
def tracker(tmp_path: Path) -> TensorboardTracker:
    tracker = TensorboardTracker(TensorboardParams())
    tracker.start(tmp_path, {"seed": 7, "algorithm": {"name": "exact"}})
    return tracker


def events(directory: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def test_numbers_are_scalars_at_their_steps(tracker: TensorboardTracker, tmp_path: Path) -> None:
    for step in range(30):
        tracker.log(step, {"value/V_r": -1.0 / (step + 1), "loss/policy": math.nan})
    tracker.finish("finished")
    found = events(tmp_path)
    values = [(event.step, event.value) for event in found.Scalars("value/V_r")]
    assert values == [(step, pytest.approx(-1.0 / (step + 1))) for step in range(30)]
    assert all(math.isnan(event.value) for event in found.Scalars("loss/policy"))


def test_a_histogram_keeps_its_counts_and_bins(tracker: TensorboardTracker, tmp_path: Path) -> None:
    tracker.log(2, {"goals": Histogram(edges=[0.0, 1.0, 3.0], counts=[4, 2])})
    tracker.finish("finished")
    (event,) = events(tmp_path).Histograms("goals")
    value = event.histogram_value
    assert event.step == 2
    assert list(value.bucket_limit) == [0.0, 1.0, 3.0]
    assert list(value.bucket) == [0.0, 4.0, 2.0]
    assert (value.min, value.max, value.num) == (0.0, 3.0, 6.0)
    assert value.sum == 4 * 0.5 + 2 * 2.0
    assert value.sum_squares == 4 * 0.25 + 2 * 4.0


@pytest.mark.parametrize(
    ("edges", "drawn"),
    [
        ([-math.inf, 0.0, 1.0, math.inf], [0.0, 0.0, 1.0, 1.0]),
        ([-math.inf, math.inf], [0.0, 0.0]),
    ],
)
def test_unbounded_bins_are_drawn_at_their_finite_edge(
    tracker: TensorboardTracker, tmp_path: Path, edges: list[float], drawn: list[float]
) -> None:
    tracker.log(0, {"x": Histogram(edges=edges, counts=[1] * (len(edges) - 1))})
    tracker.finish("finished")
    (event,) = events(tmp_path).Histograms("x")
    assert list(event.histogram_value.bucket_limit) == drawn
    assert math.isfinite(event.histogram_value.sum)


def test_the_config_is_shown_as_text(tracker: TensorboardTracker, tmp_path: Path) -> None:
    tracker.finish("finished")
    found = events(tmp_path)
    assert found.Tags()["tensors"] == ["config/text_summary"]
    (event,) = found.Tensors("config/text_summary")
    text = event.tensor_proto.string_val[0].decode()
    assert '    "algorithm": {' in text
    assert '"seed": 7' in text


def test_a_resumed_run_adds_to_what_is_there(tracker: TensorboardTracker, tmp_path: Path) -> None:
    tracker.log(0, {"x": 1.0})
    tracker.finish("interrupted")
    resumed = TensorboardTracker(TensorboardParams())
    resumed.start(tmp_path, {})
    resumed.log(1, {"x": 2.0})
    resumed.finish("finished")
    assert [event.step for event in events(tmp_path).Scalars("x")] == [0, 1]


def test_logging_before_the_start_says_so() -> None:
    with pytest.raises(ValueError, match="call start first"):
        TensorboardTracker(TensorboardParams()).log(0, {"x": 1.0})
