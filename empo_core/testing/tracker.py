"""What every tracker must do: take everything, disturb nothing, and leave nothing open."""

from __future__ import annotations

import copy
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from empo_core.protocols import RunStatus, Tracker
from empo_core.testing.exploration import global_randomness_untouched
from empo_core.types import Histogram

CONFIG: dict[str, Any] = {
    "world_model": {"name": "table", "params": {"file": "/somewhere/world.yaml"}},
    "algorithm": {"name": "exact", "params": {"beta_h": 10.0, "list": [1, None, True]}},
    "trackers": [],
    "seed": 3,
}
# numpy's scalars are no floats for a type checker, but end up among metrics all the same.
METRICS: list[dict[str, Any]] = [
    {},
    {"value/V_r": -1.5},
    {"count": 3, "deep/er/key": 1e300, "tiny": 5e-324, "ü/µ with space": 0.0},
    {"nan": float("nan"), "high": float("inf"), "low": -float("inf")},
    {"numpy": np.float64(0.25), "narrow": np.float32(0.5), "integer": np.int64(7)},
    {"histogram": Histogram(edges=[0.0, 0.5, 2.0], counts=[3, 0]), "beside": 1.0},
    {"empty": Histogram(edges=[-1.0, 1.0], counts=[0])},
]
GRACE_S = 1.0
"""How long a thread may take to notice that its tracker has finished."""
STATUSES: tuple[RunStatus, ...] = ("finished", "failed", "interrupted")


class TrackerTests:
    """Subclass this in your plugin's tests and override ``tracker``."""

    @pytest.fixture
    def tracker(self) -> Tracker:
        """A fresh tracker that has not started."""
        raise NotImplementedError("override the fixture 'tracker'")

    @pytest.fixture
    def directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A run directory; the working and home directories lie elsewhere."""
        for name in ("run", "elsewhere", "home"):
            (tmp_path / name).mkdir()
        (tmp_path / "run" / "config.yaml").write_text("seed: 3\n", encoding="utf-8")
        monkeypatch.chdir(tmp_path / "elsewhere")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        return tmp_path / "run"

    def test_it_fits_the_protocol(self, tracker: Tracker) -> None:
        assert isinstance(tracker, Tracker)

    @pytest.mark.parametrize("status", STATUSES)
    def test_a_whole_run_can_be_tracked(
        self, tracker: Tracker, directory: Path, status: RunStatus
    ) -> None:
        run_once(tracker, directory, status)

    @pytest.mark.parametrize("status", STATUSES)
    def test_a_run_may_end_before_anything_happens(
        self, tracker: Tracker, directory: Path, status: RunStatus
    ) -> None:
        tracker.start(directory, {})
        tracker.finish(status)

    @pytest.mark.parametrize("metrics", METRICS, ids=lambda metrics: "+".join(metrics) or "none")
    def test_every_kind_of_number_is_taken(
        self, tracker: Tracker, directory: Path, metrics: dict[str, float | Histogram]
    ) -> None:
        tracker.start(directory, CONFIG)
        tracker.log(0, metrics)
        tracker.log(10**12, metrics)
        tracker.finish("finished")

    def test_metrics_may_come_and_go(self, tracker: Tracker, directory: Path) -> None:
        tracker.start(directory, CONFIG)
        for step in (0, 0, 5, 3):
            tracker.log(step, {f"only/{step}": 1.0, "always": float(step)})
        tracker.finish("finished")

    def test_progress_comes_in_any_unit(self, tracker: Tracker, directory: Path) -> None:
        tracker.start(directory, CONFIG)
        for task, done, total in (
            ("nothing to do", 0, 0),
            ("never finished", 1, 3),
            ("one of two", 0.25, 0.5),
            ("other of two", 10**9, 2 * 10**9),
            ("one of two", 0.5, 0.5),
            ("a total that grows", 5, 10),
            ("a total that grows", 10, 20),
            ("one of two", 0.0, 0.5),
            ("[with] markup", 1, 1),
        ):
            tracker.progress(task, done, total)
        tracker.finish("finished")

    def test_files_go_into_the_run_directory_only(self, tracker: Tracker, directory: Path) -> None:
        before = tree(directory.parent)
        run_once(tracker, directory, "finished")
        changed = {
            path
            for path, content in tree(directory.parent).items()
            if before.get(path) != content and directory not in path.parents
        }
        assert not changed, f"written outside the run directory: {sorted(map(str, changed))}"

    def test_files_of_others_stay_as_they_are(self, tracker: Tracker, directory: Path) -> None:
        before = tree(directory)
        run_once(tracker, directory, "finished")
        after = tree(directory)
        assert {path: after.get(path) for path in before} == before

    def test_a_run_can_go_on_in_its_directory(self, tracker: Tracker, directory: Path) -> None:
        run_once(tracker, directory, "interrupted")
        before = tree(directory)
        run_once(tracker, directory, "finished")
        lost = [
            str(path) for path in before if len(tree(directory).get(path, b"")) < len(before[path])
        ]
        assert not lost, f"the second part of the run shortened {lost}"

    def test_what_it_is_given_stays_as_it_is(self, tracker: Tracker, directory: Path) -> None:
        config, metrics = copy.deepcopy(CONFIG), dict(METRICS[5])
        tracker.start(directory, config)
        tracker.log(0, metrics)
        tracker.finish("finished")
        assert config == CONFIG
        assert metrics == METRICS[5]

    def test_later_changes_to_what_it_was_given_are_harmless(
        self, tracker: Tracker, directory: Path
    ) -> None:
        config, metrics = copy.deepcopy(CONFIG), {"value": 1.0}
        tracker.start(directory, config)
        config.clear()
        for step in range(3):
            tracker.log(step, metrics)
            metrics.clear()
            metrics["value"] = float(step)
        tracker.finish("finished")

    def test_global_randomness_is_left_alone(self, tracker: Tracker, directory: Path) -> None:
        with global_randomness_untouched():
            run_once(tracker, directory, "finished")

    def test_standard_output_is_left_to_the_result(
        self, tracker: Tracker, directory: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        run_once(tracker, directory, "finished")
        assert capfd.readouterr().out == "", "write to standard error; results may be piped"

    def test_the_environment_is_left_alone(self, tracker: Tracker, directory: Path) -> None:
        before = Path.cwd(), dict(os.environ)
        run_once(tracker, directory, "finished")
        assert (Path.cwd(), dict(os.environ)) == before

    def test_nothing_is_left_running(self, tracker: Tracker, directory: Path) -> None:
        before = set(threading.enumerate())
        run_once(tracker, directory, "finished")
        left = []
        for thread in set(threading.enumerate()) - before:
            thread.join(GRACE_S)
            if thread.is_alive():
                left.append(thread.name)
        assert not left, f"threads still running after finish: {left}"

    def test_no_file_is_left_open(self, tracker: Tracker, directory: Path) -> None:
        descriptors = Path("/proc/self/fd")
        if not descriptors.exists():
            pytest.skip("this system does not list open files")
        run_once(tracker, directory, "finished")
        left = [
            target
            for target in (os.path.realpath(entry) for entry in descriptors.iterdir())
            if target.startswith(str(directory.resolve()))
        ]
        assert not left, f"still open after finish: {left}"


def run_once(tracker: Tracker, directory: Path, status: RunStatus) -> None:
    """Everything a run may tell a tracker."""
    tracker.start(directory, CONFIG)
    for step, metrics in enumerate(METRICS):
        tracker.progress("steps", step, len(METRICS))
        tracker.log(step, metrics)
    tracker.progress("steps", len(METRICS), len(METRICS))
    tracker.finish(status)


def tree(directory: Path) -> dict[Path, bytes]:
    """The content of every file below a directory."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
