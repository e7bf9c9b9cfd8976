import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.util.tensor_util import make_ndarray

from empo_core.protocols import Tracker
from empo_core.types import Histogram
from empo_testing.tracker import TrackerTests
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
    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0, "histograms": 0})
    accumulator.Reload()
    return accumulator


def test_numbers_are_scalars_at_their_steps(tracker: TensorboardTracker, tmp_path: Path) -> None:
    for step in range(30):
        tracker.log(step, {"exact/v_r": -1.0 / (step + 1), "loss/policy": math.nan})
    tracker.finish("finished")
    accumulator = events(tmp_path)
    values = [(event.step, event.value) for event in accumulator.Scalars("exact/v_r")]
    assert values == [(step, pytest.approx(-1.0 / (step + 1))) for step in range(30)]
    assert all(math.isnan(event.value) for event in accumulator.Scalars("loss/policy"))


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
    accumulator = events(tmp_path)
    assert accumulator.Tags()["tensors"] == ["config/text_summary"]
    (event,) = accumulator.Tensors("config/text_summary")
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


def attempt(directory: Path, *, truncate: int | None, steps: range, value: float) -> None:
    """One stretch of a run: it may go on from an earlier step than the last one logged."""
    tracker = TensorboardTracker(TensorboardParams())
    tracker.start(directory, {"seed": 7})
    if truncate is not None:
        tracker.truncate(truncate)
    for step in steps:
        tracker.log(step, {"x": value, "counts": Histogram(edges=[0.0, 1.0], counts=[step])})
    if value == 1.0:
        tracker.log(steps[-1], {"only/then": value})
    tracker.finish("interrupted")


def test_steps_that_are_logged_again_are_drawn_once(tmp_path: Path) -> None:
    attempt(tmp_path, truncate=None, steps=range(1, 10), value=1.0)
    attempt(tmp_path, truncate=4, steps=range(5, 13), value=2.0)
    attempt(tmp_path, truncate=10, steps=range(11, 15), value=3.0)
    expected = [(step, 1.0 if step <= 4 else 2.0 if step <= 10 else 3.0) for step in range(1, 15)]

    accumulator = events(tmp_path)
    assert [(event.step, event.value) for event in accumulator.Scalars("x")] == expected
    assert [event.step for event in accumulator.Histograms("counts")] == list(range(1, 15))
    assert accumulator.Scalars("only/then") == []

    # What TensorBoard itself reads with.
    server = EventMultiplexer({"run": str(tmp_path)}, tensor_size_guidance={"scalars": 0})
    server.Reload()
    points = server.Tensors("run", "x")
    assert [(p.step, float(make_ndarray(p.tensor_proto))) for p in points] == expected
    assert server.Tensors("run", "only/then") == []


def test_a_run_that_starts_over_leaves_only_its_own_steps(tmp_path: Path) -> None:
    attempt(tmp_path, truncate=None, steps=range(0, 10), value=1.0)
    attempt(tmp_path, truncate=-1, steps=range(0, 3), value=2.0)
    accumulator = events(tmp_path)
    assert [(event.step, event.value) for event in accumulator.Scalars("x")] == [
        (0, 2.0), (1, 2.0), (2, 2.0),
    ]  # fmt: skip
    assert accumulator.Tags()["tensors"] == ["config/text_summary"]
    assert len(accumulator.Tensors("config/text_summary")) > 0


def test_truncating_before_the_start_says_so() -> None:
    with pytest.raises(ValueError, match=r"call start\b"):
        TensorboardTracker(TensorboardParams()).truncate(0)


def test_logging_before_the_start_says_so() -> None:
    with pytest.raises(ValueError, match=r"call start\b"):
        TensorboardTracker(TensorboardParams()).log(0, {"x": 1.0})
