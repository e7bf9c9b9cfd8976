from pathlib import Path

import pytest

from empo_core.protocols import Tracker
from empo_core.types import Histogram
from empo_example_tracker.plugin import CsvParams
from empo_example_tracker.tracker import CsvTracker
from empo_testing.tracker import TrackerTests


class TestCsvTracker(TrackerTests):
    @pytest.fixture
    def tracker(self) -> Tracker:
        return CsvTracker(CsvParams())


@pytest.fixture
def table(tmp_path: Path) -> CsvTracker:
    tracker = CsvTracker(CsvParams(separator=";"))
    tracker.start(tmp_path, {})
    return tracker


def test_the_table_has_a_row_per_step_and_a_column_per_metric(
    table: CsvTracker, tmp_path: Path
) -> None:
    table.log(2, {"b": 0.5})
    table.log(1, {"a": 1.0})
    table.log(2, {"a": 3})
    table.finish("finished")
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines == ["step;b;a", "1;;1.0", "2;0.5;3.0"]


def test_a_histogram_takes_a_column_per_bin(table: CsvTracker, tmp_path: Path) -> None:
    table.log(0, {"h": Histogram(edges=[0.0, 0.5, 1.0], counts=[3, 4])})
    table.finish("finished")
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines == ["step;h[0, 0.5);h[0.5, 1)", "0;3;4"]


def test_a_resumed_run_keeps_its_rows(table: CsvTracker, tmp_path: Path) -> None:
    table.log(0, {"a": 1.0})
    table.finish("interrupted")
    table.start(tmp_path, {})
    table.log(1, {"b": 2.0})
    table.finish("finished")
    assert (tmp_path / "metrics.csv").read_text().splitlines() == ["step;a;b", "0;1.0;", "1;;2.0"]
