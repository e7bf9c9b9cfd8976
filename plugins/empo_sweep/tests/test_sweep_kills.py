"""Sweeps that are interrupted or killed at any moment lose at most the trials that were running."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_sweeps import Cli, ends, ledger

COMMAND = [sys.executable, "-m", "empo_core", "sweep", "s.yaml"]
STEPS = 5
TRIALS = 6


@pytest.fixture
def folder(toy: Path, write: Callable[..., str]) -> Path:
    """The folder of a sweep that is not there yet."""
    params = {"steps": [STEPS], "pause_s": [0.1], "x": [1, 2]}
    over = {f"algorithm.params.{key}": values for key, values in params.items()}
    seeds = {"seed": f"0..{TRIALS // 2 - 1}"}
    write(over={**seeds, **over}, objective={"key": "score"})
    return toy / "sweeps/s"


def begun() -> subprocess.Popen[str]:
    return subprocess.Popen(COMMAND, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def await_ends(folder: Path, number: int) -> None:
    """Wait until so many trials have ended."""
    deadline = time.monotonic() + 120
    while not (folder / "sweep.yaml").exists() or len(ends(folder)) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def await_step(folder: Path) -> Path:
    """Wait until a trial has made its first step, and return its directory."""
    paths = set(folder.glob("trial-*/steps.json"))
    while not (new := set(folder.glob("trial-*/steps.json")) - paths):
        time.sleep(0.001)
    return new.pop().parent


def assert_complete(folder: Path) -> None:
    """All trials are done, and came to their end once."""
    assert ends(folder) == [(trial, "done") for trial in range(TRIALS)]
    assert len(set(ledger(folder))) == len(ledger(folder)) == TRIALS
    runs = sorted(folder.glob("trial-*"))
    assert len(runs) == TRIALS
    for run in runs:
        assert json.loads((run / "status.json").read_text())["status"] == "finished"
        lines = (run / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines][-1] == STEPS


@pytest.mark.slow
def test_a_sweep_goes_on_after_it_was_interrupted_and_after_it_was_killed(
    folder: Path, sweep: Cli
) -> None:
    pytest.importorskip("empo_trackers", reason="curves are those that its trackers keep")
    with begun() as process:
        await_ends(folder, 1)
        running = await_step(folder)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert "empo sweep s.yaml" in process.stderr.read()
    assert json.loads((running / "status.json").read_text())["status"] == "interrupted"
    with begun() as process:
        await_ends(folder, len(ends(folder)) + 3)
        process.kill()
    last = sweep("s.yaml", "--json")
    assert last.exit_code == 0, last.output
    assert_complete(folder)
    summary = json.loads((running / "results/summary.json").read_text())
    assert summary["attempts"] == 2


@pytest.mark.slow
def test_no_trial_is_lost_or_done_twice_at_30_random_moments(folder: Path, sweep: Cli) -> None:
    moments = random.Random(1)
    kills = 0
    while kills < 30:
        with begun() as process:
            await_ends(folder, 0)
            time.sleep(moments.uniform(0.0, 4.0))
            kills += process.poll() is None
            process.kill()
        if len(ends(folder)) == TRIALS:
            assert_complete(folder)
            shutil.rmtree(folder)
    assert sweep("s.yaml").exit_code == 0
    assert_complete(folder)


@pytest.mark.slow
def test_a_thousand_trials_are_run_once_each_by_two_processes(
    toy: Path, sweep: Cli, write: Callable[..., str]
) -> None:
    over = {"seed": "0..999", "algorithm.params.steps": [0]}
    done = sweep(write(over=over, objective={"key": "score"}, workers=2), "--quiet")
    assert done.exit_code == 0, done.output
    folder = toy / "sweeps/s"
    assert sorted(ends(folder)) == [(trial, "done") for trial in range(1000)]
    summaries = [json.loads(p.read_text()) for p in folder.glob("trial-*/results/summary.json")]
    assert [summary["attempts"] for summary in summaries] == [1] * 1000
    assert len({summary["pid"] for summary in summaries}) == 2
