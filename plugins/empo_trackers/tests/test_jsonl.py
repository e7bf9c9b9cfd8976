import json
import math
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.protocols import Tracker
from empo_core.types import Histogram
from empo_testing.tracker import TrackerTests
from empo_trackers.jsonl import JsonlTracker
from empo_trackers.plugin import JsonlParams


class TestJsonlTracker(TrackerTests):
    @pytest.fixture
    def tracker(self) -> Tracker:
        return JsonlTracker(JsonlParams())


def no_constants(name: str) -> object:
    raise AssertionError(f"{name} is not JSON")


def read(directory: Path) -> list[dict[str, Any]]:
    text = (directory / "metrics.jsonl").read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line, parse_constant=no_constants) for line in text.splitlines()]


@pytest.fixture
def tracker(tmp_path: Path) -> Iterator[JsonlTracker]:
    tracker = JsonlTracker(JsonlParams())
    tracker.start(tmp_path, {"seed": 0})
    yield tracker
    tracker.finish("finished")


def test_each_call_is_one_line_with_its_step_first(tracker: JsonlTracker, tmp_path: Path) -> None:
    tracker.log(0, {"exact/v_r": -1.5, "progress/states": 12})
    tracker.log(3, {})
    tracker.finish("finished")
    lines = (tmp_path / "metrics.jsonl").read_text()
    assert lines == '{"step": 0, "exact/v_r": -1.5, "progress/states": 12}\n{"step": 3}\n'


def test_numbers_that_json_lacks_are_strings_that_float_reads(
    tracker: JsonlTracker, tmp_path: Path
) -> None:
    tracker.log(0, {"a": math.nan, "b": math.inf, "c": -math.inf})
    tracker.finish("finished")
    (row,) = read(tmp_path)
    assert row == {"step": 0, "a": "NaN", "b": "Infinity", "c": "-Infinity"}
    assert float(row["c"]) == -math.inf


@settings(max_examples=50)
@given(value=st.floats() | st.integers(-(2**63), 2**63))
def test_every_number_is_read_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, value: float
) -> None:
    directory = tmp_path_factory.mktemp("run")
    tracker = JsonlTracker(JsonlParams())
    tracker.start(directory, {})
    tracker.log(0, {"x": value})
    tracker.finish("finished")
    (row,) = read(directory)
    number = float(row["x"]) if isinstance(row["x"], str) else row["x"]
    assert number == value or (math.isnan(number) and math.isnan(value))


def test_histograms_and_the_scalars_of_numpy_and_torch_are_plain_json(
    tracker: JsonlTracker, tmp_path: Path
) -> None:
    histogram = Histogram(edges=[-math.inf, np.float64(0.5), 1.0], counts=[3, 4])
    scalars = {"torch": torch.tensor(2.5), "numpy": np.float32(0.25), "int": np.int32(7)}
    tracker.log(1, {"h": histogram, **scalars})  # type: ignore[dict-item]
    tracker.finish("finished")
    assert read(tmp_path) == [
        {
            "step": 1,
            "h": {"edges": ["-Infinity", 0.5, 1.0], "counts": [3, 4]},
            "torch": 2.5,
            "numpy": 0.25,
            "int": 7,
        }
    ]


def test_a_line_can_be_read_as_soon_as_it_is_logged(tracker: JsonlTracker, tmp_path: Path) -> None:
    tracker.log(5, {"x": 1.0})
    assert read(tmp_path) == [{"step": 5, "x": 1.0}]
    tracker.finish("interrupted")


def test_a_resumed_run_goes_on_after_the_last_whole_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "x": 1.0}\n{"step": 1, "x"')
    tracker = JsonlTracker(JsonlParams())
    tracker.start(tmp_path, {})
    tracker.log(1, {"x": 2.0})
    tracker.finish("finished")
    assert read(tmp_path) == [{"step": 0, "x": 1.0}, {"step": 1, "x": 2.0}]


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """As on a full disk, a write takes some of the bytes, and the next one none."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, limit[1]))
    try:
        with pytest.raises(OSError, match="large"):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_a_line_that_the_disk_refuses_leaves_no_part_and_comes_before_the_next(
    tracker: JsonlTracker, tmp_path: Path
) -> None:
    tracker.log(1, {"loss": 1.0})
    with refusals(tmp_path / "metrics.jsonl"):
        tracker.log(2, {"loss": 0.5})
    assert [line["step"] for line in read(tmp_path)] == [1]
    tracker.log(3, {"loss": 0.25})
    tracker.finish("finished")
    assert [line["step"] for line in read(tmp_path)] == [1, 2, 3]


def test_a_line_that_the_disk_refuses_is_written_once_by_resumptions(tmp_path: Path) -> None:
    first = JsonlTracker(JsonlParams())
    first.start(tmp_path, {})
    first.log(1, {"loss": 1.0})
    with refusals(tmp_path / "metrics.jsonl"):
        first.log(2, {"loss": 0.5})
    state = first.state_dict()
    first.finish("failed")
    for _ in range(2):  # The first one breaks off before its first checkpoint.
        resumed = JsonlTracker(JsonlParams())
        resumed.start(tmp_path, {})
        resumed.load_state_dict(state)
        resumed.truncate(2)
        assert resumed.state_dict() == {}
        resumed.log(3, {"loss": 0.25})
        resumed.finish("interrupted")
    assert [line["step"] for line in read(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("line", ['{"step": 1}', '{"step": 1}\n{"step": 2}\n', "no JSON\n", "[]\n"])
def test_a_checkpoint_adds_nothing_but_lines_of_metrics(
    tracker: JsonlTracker, tmp_path: Path, line: str
) -> None:
    with pytest.raises(ValueError, match="of metrics"):
        tracker.load_state_dict({"refused": [line]})
    assert read(tmp_path) == []


def test_lines_of_steps_that_are_logged_again_are_dropped(tmp_path: Path) -> None:
    first = JsonlTracker(JsonlParams())
    first.start(tmp_path, {})
    for step in range(10):
        first.log(step, {"x": 1.0})
        first.log(step, {"y": 1.0})
    first.finish("interrupted")
    resumed = JsonlTracker(JsonlParams())
    resumed.start(tmp_path, {})
    resumed.truncate(3)
    for step in range(4, 6):
        resumed.log(step, {"x": 2.0})
    resumed.finish("finished")
    rows = read(tmp_path)
    assert [(row["step"], row["x"]) for row in rows if "x" in row] == [
        (0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0), (5, 2.0),
    ]  # fmt: skip
    assert [row["step"] for row in rows if "y" in row] == [0, 1, 2, 3]


def test_truncating_drops_nothing_that_is_not_of_a_later_step(
    tracker: JsonlTracker, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'not ours\n[1]\n{"x": 1}\n{"step": 2}\n{"step": 3}\n\xff\n')
    tracker.truncate(2)
    assert path.read_bytes() == b'not ours\n[1]\n{"x": 1}\n{"step": 2}\n\xff\n'
    before = path.stat().st_ino
    tracker.truncate(5)
    assert path.stat().st_ino == before, "a file with nothing to drop is not written again"
    tracker.log(3, {})
    tracker.truncate(-1)
    assert path.read_bytes() == b'not ours\n[1]\n{"x": 1}\n\xff\n'
    tracker.finish("finished")


def test_truncating_before_the_start_says_so() -> None:
    with pytest.raises(ValueError, match=r"call start\b"):
        JsonlTracker(JsonlParams()).truncate(0)


def test_a_metric_called_step_is_refused(tracker: JsonlTracker) -> None:
    with pytest.raises(ValueError, match="called 'step'"):
        tracker.log(0, {"step": 1.0})
    tracker.finish("failed")


def test_logging_before_the_start_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"call start\b"):
        JsonlTracker(JsonlParams()).log(0, {"x": 1.0})


WRITER = """
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from empo_trackers.jsonl import JsonlTracker
from empo_trackers.plugin import JsonlParams

tracker = JsonlTracker(JsonlParams())
tracker.start(Path(sys.argv[1]), {})
step = 0
while True:
    tracker.log(step, {f"metric/{i}": step / 7 for i in range(50)})
    print(step, flush=True)
    step += 1
"""


def test_killing_the_process_loses_no_line_that_was_logged(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(200):
        logged = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    printed = process.stdout.read().splitlines()
    process.wait()
    process.stdout.close()
    logged = int(printed[-1]) if printed and printed[-1].isdigit() else logged
    lines = (tmp_path / "metrics.jsonl").read_bytes().split(b"\n")
    whole = [json.loads(line) for line in lines[:-1]]
    assert [row["step"] for row in whole] == list(range(len(whole)))
    assert len(whole) > logged
    assert all(len(row) == 51 for row in whole)
