"""A quick look by the programme of faults, and that it notices what does not hold."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import fault_children
import fault_kinds
import fault_runs
import faults
import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "only", ["exact", *(pytest.param(n, marks=pytest.mark.slow) for n in ("phase2", "certificate"))]
)
@pytest.mark.skipif(shutil.which("gcc") is None, reason="calls fail by a library in C")
def test_runs_that_are_killed_or_whose_calls_fail_end_as_undisturbed_ones(only: str) -> None:
    command = [sys.executable, str(HERE / "faults.py"), "kills", "calls", "--quick"]
    ended = subprocess.run(
        [*command, "--only", only], capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    for kind in ("kills", "calls"):
        (row,) = (line for line in ended.stdout.splitlines() if f"faults.py {kind} " in line)
        tried, held = row.split("|")[2:4]
        assert int(tried) == int(held) > 0


def test_what_does_not_hold_is_counted_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trials(count: int, seed: int, place: Path) -> list[fault_kinds.Trial]:
        return [fault_kinds.Trial("good", faults=count), fault_kinds.Trial("bad", "a line is lost")]

    monkeypatch.setattr(faults, "trials", trials, raising=False)
    kind = fault_kinds.Kind("some", "some faults", "faults:trials", 3, 1)
    outcome = faults.tried(kind, 3, 0, tmp_path / "some")
    assert (outcome.tried, outcome.held) == (4, 3)
    assert outcome.problems == ["bad: a line is lost"]
    assert "| some faults | 4 | 3 |" in faults.table([outcome])
    assert (tmp_path / faults.KEPT).exists()


def test_a_command_that_hangs_is_killed_unless_it_waits_for_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = fault_children.fork(tmp_path, lambda: time.sleep(600)).end(0.1)
    assert hung.code == -signal.SIGABRT
    assert "hung" in hung.fault
    starved = itertools.count(10.0, 10.0)
    monkeypatch.setattr(fault_children.Child, "_starved_s", lambda child: next(starved))
    assert fault_children.fork(tmp_path, lambda: time.sleep(0.5)).end(0.1).code == 0


def test_what_killed_programmes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    over = subprocess.Popen(["true"])
    over.wait()
    names = [
        f"empo-faults-{over.pid}-left", f"empo-faults-{os.getpid()}-runs",
        f"empo-faults-{over.pid}-bad", "empo-faults-mine", "others",
    ]  # fmt: skip
    left, *stay = (tmp_path / name for name in names)
    for folder in (left, *stay):
        (folder / "kills").mkdir(parents=True)
    (stay[1] / faults.KEPT).touch()
    faults.clean_up(tmp_path, tmp_path / "missing")
    assert sorted(tmp_path.iterdir()) == sorted(stay)


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (lambda text: text + text.splitlines(keepends=True)[-1], "metrics"),
        (lambda text: text.rpartition("{")[0], "metrics"),
        (lambda text: text.replace("0.5", "0.25"), "metrics"),
    ],
)
def test_lines_that_are_lost_doubled_or_others_are_differences(
    damage: object, place: str, tmp_path: Path
) -> None:
    run = tmp_path / "runs/one"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    (run / "status.json").write_text('{"status": "finished"}')
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 0.5}\n')
    expected = fault_runs.contents(tmp_path)
    assert fault_runs.difference(expected, fault_runs.contents(tmp_path)) == ""
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(damage(text))  # type: ignore[operator]
    assert place in fault_runs.difference(expected, fault_runs.contents(tmp_path))
