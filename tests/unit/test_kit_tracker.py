"""The tracker kit passes a right tracker and fails each one broken on purpose."""

import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from empo_core.protocols import Tracker
from empo_core.testing.tracker import TrackerTests
from empo_core.types import Histogram

Runner = Callable[..., set[str]]
NEVER = threading.Event()
KEPT_OPEN: list[int] = []


class Right:
    """Notes what it is told in a file."""

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        self.config = config
        self.path = directory / "notes.txt"
        self.written: list[str] = []
        self.note("started")

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        self.written += metrics
        self.note(f"{step}: {', '.join(metrics)}")

    def progress(self, task: str, done: float, total: float) -> None:
        self.note(f"{task} {done}/{total}")

    def finish(self, status: str) -> None:
        self.note(status)

    def note(self, line: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


class NeverFinishes:
    start = Right.start
    log = Right.log
    progress = Right.progress


class KnowsTwoEndings(Right):
    def finish(self, status: str) -> None:
        super().finish(status)
        {"finished": 0, "failed": 1}[status]


class NeedsALog(Right):
    def finish(self, status: str) -> None:
        super().finish(status)
        self.written[-1]


class NeedsFiniteNumbers(Right):
    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        numbers = {k: v for k, v in metrics.items() if not isinstance(v, Histogram)}
        json.dumps({name: float(value) for name, value in numbers.items()}, allow_nan=False)
        super().log(step, metrics)


class NeedsNumbers(Right):
    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        for value in metrics.values():
            float(value)  # type: ignore[arg-type]
        super().log(step, metrics)


class FixesItsColumns(Right):
    columns: tuple[str, ...] = ()

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        self.columns = self.columns or tuple(metrics)
        if tuple(metrics) != self.columns:
            raise KeyError(f"expected {self.columns}")
        super().log(step, metrics)


class DividesByTheTotal(Right):
    def progress(self, task: str, done: float, total: float) -> None:
        super().progress(task, done / total, 1)


class WritesWhereItStands(Right):
    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        super().start(directory, config)
        Path("notes.txt").write_text("", encoding="utf-8")


class TidiesUp(Right):
    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        for path in directory.iterdir():
            path.unlink()
        super().start(directory, config)


class StartsOver(Right):
    """Its second part is shorter than its first, and replaces it."""

    parts = 0

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        self.parts += 1
        (directory / "notes.txt").write_text("", encoding="utf-8")
        super().start(directory, config)

    def progress(self, task: str, done: float, total: float) -> None:
        if self.parts == 1:
            super().progress(task, done, total)


class PopsItsSettings(Right):
    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        super().start(directory, config)
        config.pop("seed", None)  # type: ignore[attr-defined]


class LooksBackAtTheConfig(Right):
    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        super().log(step, metrics)
        self.config["seed"]


class Samples(Right):
    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        super().log(step, metrics)
        torch.rand(1)


class Prints(Right):
    def progress(self, task: str, done: float, total: float) -> None:
        super().progress(task, done, total)
        print(task)


class ChangesDirectory(Right):
    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        super().start(directory, config)
        os.chdir(directory)


class LeavesAThread(Right):
    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        super().start(directory, config)
        threading.Thread(target=NEVER.wait, daemon=True).start()


class LeavesAFileOpen(Right):
    def finish(self, status: str) -> None:
        super().finish(status)
        KEPT_OPEN.append(os.open(self.path, os.O_RDONLY))


FLAWS: list[tuple[type, list[str]]] = [
    (NeverFinishes, ["test_it_fits_the_protocol"]),
    (KnowsTwoEndings, ["test_a_whole_run_can_be_tracked"]),
    (NeedsALog, ["test_a_run_may_end_before_anything_happens"]),
    (NeedsFiniteNumbers, ["test_every_kind_of_number_is_taken"]),
    (NeedsNumbers, ["test_every_kind_of_number_is_taken"]),
    (FixesItsColumns, ["test_metrics_may_come_and_go"]),
    (DividesByTheTotal, ["test_progress_comes_in_any_unit"]),
    (WritesWhereItStands, ["test_files_go_into_the_run_directory_only"]),
    (TidiesUp, ["test_files_of_others_stay_as_they_are"]),
    (StartsOver, ["test_a_run_can_go_on_in_its_directory"]),
    (PopsItsSettings, ["test_what_it_is_given_stays_as_it_is"]),
    (LooksBackAtTheConfig, ["test_later_changes_to_what_it_was_given_are_harmless"]),
    (Samples, ["test_global_randomness_is_left_alone"]),
    (Prints, ["test_standard_output_is_left_to_the_result"]),
    (ChangesDirectory, ["test_the_environment_is_left_alone"]),
    (LeavesAThread, ["test_nothing_is_left_running"]),
    (LeavesAFileOpen, ["test_no_file_is_left_open"]),
]


def subclass(make: type) -> type:
    class TestIt(TrackerTests):
        @pytest.fixture
        def tracker(self) -> Tracker:
            return make()  # type: ignore[no-any-return]

    return TestIt


def test_a_right_tracker_passes(kit_failures: Runner) -> None:
    assert kit_failures(subclass(Right)) == set()


@pytest.mark.parametrize(("make", "caught_by"), FLAWS)
def test_a_broken_tracker_fails(kit_failures: Runner, make: type, caught_by: list[str]) -> None:
    try:
        assert kit_failures(subclass(make), only=caught_by) == set(caught_by)
    finally:
        NEVER.set()
        NEVER.clear()
        while KEPT_OPEN:
            os.close(KEPT_OPEN.pop())


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, names in FLAWS for name in names}
    assert caught == {name for name in vars(TrackerTests) if name.startswith("test_")}
