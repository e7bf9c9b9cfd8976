"""Runs of ``phase2`` that are stopped from outside, and what is left of them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.config.files import load_config
from empo_core.experiment import Experiment, RunInterrupted
from empo_core.types import Histogram
from empo_learning.checkpoint import Checkpoints
from empo_testing.algorithm import RecordingTracker

STEPS, EVERY = 200, 20
"""Enough steps for a signal to arrive before they are over, and how often they are logged."""
CONFIG = f"""
world_model: {{name: multigrid/trivial, params: {{max_steps: 3}}}}
algorithm:
  name: phase2
  params:
    human_prior: {{name: exact, params: {{theory: {{beta_h: 10.0}}}}}}
    values: {{q_r: lookup, v_h_e: lookup}}
    total_steps: {STEPS}
    warm_up: {{v_h_e: 50, q_r: 50, ramp: 30}}
    optimiser: {{lr: 0.5, target_interval: 5, publish_interval: 7}}
    collector: {{name: sync, params: {{min_env_steps: 10}}}}
    num_envs: 16
    replay: {{capacity: 200, batch_size: 4}}
    reporting: {{log_interval: {EVERY}, checkpoint_interval: 30, keep_checkpoints: 3}}
trackers: [jsonl, tensorboard]
"""
PATIENCE_S = 100


def heed_ctrl_c() -> None:
    """Undo what a shell does to processes in the background: let them ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def empo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command of its own; ``folder`` is where it runs."""
    return subprocess.Popen(
        [sys.executable, "-m", "empo_core", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_ctrl_c, start_new_session=True,
    )  # fmt: skip


def lines_of(directory: Path) -> list[dict[str, Any]]:
    """All that was logged, except how fast it went."""
    lines = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    return [
        {key: each for key, each in line.items() if not key.startswith("time/")} for line in lines
    ]


def await_numbers(folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a run has logged its first numbers."""
    while not any(path.stat().st_size for path in folder.glob("runs/*/metrics.jsonl")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)


def stopped(folder: Path, number: signal.Signals) -> tuple[Path, subprocess.Popen[str], str]:
    """A run that gets a signal soon after its first numbers: directory, process, errors."""
    (folder / "run.yaml").write_text(CONFIG)
    with empo(folder, "run", "run.yaml", "--quiet") as process:
        await_numbers(folder, process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_S)
    (directory,) = (folder / "runs").iterdir()
    return directory, process, errors


@pytest.fixture(scope="module", name="whole")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The lines of a run that is not stopped."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "run.yaml").write_text(CONFIG)
    config = load_config(folder / "run.yaml", [f"runs={folder / 'runs'}"])
    return lines_of(Experiment.start(config).directory)


@pytest.mark.slow  # The quick suite resumes exactly in test_phase2_runs.py.
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_stopped_run_goes_on_to_the_end_of_one_that_was_not(
    name: str, tmp_path: Path, whole: list[dict[str, Any]]
) -> None:
    directory, process, errors = stopped(tmp_path, signal.Signals[name])
    status = json.loads((directory / "status.json").read_text())
    reached = lines_of(directory)[-1]["step"]
    found = Checkpoints(directory / "checkpoints").newest()
    if name == "SIGKILL":
        assert process.returncode == -signal.SIGKILL
        assert (status["status"], status["pid"]) == ("running", process.pid)
    else:
        assert process.returncode == 130
        assert errors.splitlines()[-1] == f"interrupted; go on with: empo resume {directory}"
        assert status["status"] == "interrupted"
        assert found is not None
        assert reached <= found[0] < reached + EVERY
    with empo(tmp_path, "resume", str(directory), "--json", "--quiet") as process:
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert json.loads(output)["steps"] == STEPS
    assert json.loads((directory / "status.json").read_text())["status"] == "finished"
    assert lines_of(directory) == whole
    assert [line["step"] for line in whole] == list(range(EVERY, STEPS + 1, EVERY))
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    events.Reload()
    for key in whole[-1].keys() - {"step"}:
        drawn = [event.step for event in events.Scalars(key)]
        assert drawn == [line["step"] for line in whole if key in line], key


@pytest.mark.slow
def test_a_signal_to_the_whole_group_ends_a_run_with_actors_as_one_to_the_learner(
    tmp_path: Path,
) -> None:
    """As ``timeout`` sends it: to the fork server and the actors as well."""
    (tmp_path / "run.yaml").write_text(CONFIG)
    actors = "algorithm.params.collector={name: async, params: {actors: 2, min_env_steps: 50}}"
    with empo(tmp_path, "run", "run.yaml", actors, "algorithm.params.total_steps=100000") as run:
        await_numbers(tmp_path, run)
        family = psutil.Process(run.pid).children(recursive=True)
        os.killpg(run.pid, signal.SIGTERM)
        _, errors = run.communicate(timeout=PATIENCE_S)
    (directory,) = (tmp_path / "runs").iterdir()
    assert run.returncode == 130, errors
    said = errors + (directory / "log.txt").read_text()
    assert "replaced" not in said
    assert "killed by signal" not in said
    assert f"empo resume {directory}" in errors
    assert json.loads((directory / "status.json").read_text())["status"] == "interrupted"
    assert Checkpoints(directory / "checkpoints").newest() is not None
    assert len(family) >= 4  # The resource tracker, the fork server and two actors.
    alive = psutil.wait_procs(family, timeout=PATIENCE_S)[1]
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []


class Stopper(RecordingTracker):
    """Sends the signal that Ctrl-C sends, at a training step."""

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Nothing."""

    def finish(self, status: str) -> None:
        """Nothing."""

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        if step == 5 * EVERY:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module", name="interrupted")
def _interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of 140 steps that was stopped after 100."""
    folder = tmp_path_factory.mktemp("interrupted")
    (folder / "run.yaml").write_text(CONFIG)
    config = load_config(folder / "run.yaml", ["algorithm.params.total_steps=140"])
    with pytest.raises(RunInterrupted) as caught:
        Experiment.start(config, watchers=[Stopper()])
    return caught.value.directory


@pytest.fixture(name="directory")
def _directory(interrupted: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "file",
    [
        "tensors.safetensors",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("state.json", "manifest.json")),
    ],
)
def test_where_the_newest_checkpoint_is_damaged_the_one_before_is_taken(
    file: str, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints, before = directory / "checkpoints", lines_of(directory)
    assert {path.name for path in checkpoints.iterdir()} == {"step-60", "step-90", "step-100"}
    flip(checkpoints / "step-100" / file)
    caplog.set_level(logging.INFO)
    Experiment.resume(directory)
    assert "going on from step 90" in caplog.text
    warnings = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    assert warnings[0].startswith("checkpoint of step 100 refused, trying the one before: ")
    assert f"step-100/{file}: " in warnings[0]
    assert warnings[0] in (directory / "log.txt").read_text()
    # It is looked at again with every later checkpoint, but said so of once.
    assert len(warnings) == 1
    after = lines_of(directory)
    assert [line["step"] for line in after] == list(range(EVERY, 141, EVERY))
    assert after[: len(before)] == before


def test_where_every_checkpoint_is_damaged_the_run_says_so(directory: Path) -> None:
    for path in (directory / "checkpoints").iterdir():
        flip(path / "tensors.safetensors")
    before = lines_of(directory)
    done = CliRunner().invoke(app, ["resume", str(directory), "--quiet"])
    assert done.exit_code == 3
    assert "Traceback" not in done.stderr
    assert "every checkpoint" in done.stderr
    for step in (60, 90, 100):
        assert f"checkpoints/step-{step}/tensors.safetensors: " in done.stderr
    # Nothing was lost by trying, and the status is the earlier one.
    assert json.loads((directory / "status.json").read_text())["status"] == "interrupted"
    assert lines_of(directory) == before
    assert len(list((directory / "checkpoints").iterdir())) == 3
