"""Runs of ``rollout`` whose workers or learner are killed: nothing hangs, nothing is lost."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from empo_core.config import RunConfig
from empo_core.errors import CollectError
from empo_core.experiment import Experiment, run
from empo_core.protocols import Tracker
from empo_core.types import Histogram
from empo_learning.checkpoint import Checkpoints
from empo_rollout.result import RolloutResult

PATIENCE_S = 100
"""Timeout in seconds, after which a process counts as hung; an idle machine needs far less."""
EVERY = 5
"""Iterations between checkpoints."""
ROLLOUT = 8 * 16


def config(folder: Path, iterations: int, on_crash: str = "stop") -> dict[str, Any]:
    params = {
        "total_steps": iterations * ROLLOUT,
        "num_envs": 8,
        "environment": {
            "name": "gymnasium", "params": {"id": "CartPole-v1"},
        },
        "vectorisation": {
            "backend": "process", "workers": 2, "async_factor": 2, "on_crash": on_crash,
        },
        "experience": {"bptt_horizon": 16},
        "policy": {"network": {"name": "mlp", "params": {"hidden": [8]}}},
        "update": {"minibatch_size": 64},
        "compute": {"threads": 1},
        "reporting": {"evaluation_episodes": 0, "checkpoint_interval": EVERY},
    }  # fmt: skip
    algorithm = {"name": "rollout", "params": params}
    return {"algorithm": algorithm, "trackers": ["jsonl"], "runs": str(folder / "runs")}


def workers_of(pid: int) -> list[psutil.Process]:
    """Processes with environments: children of the server that forks them."""
    everybody = psutil.Process(pid).children(recursive=True)
    return sorted(
        (process for process in everybody if process.ppid() != pid), key=lambda process: process.pid
    )


class KillAt(Tracker):
    """Kills a worker after so many logs, at each of some places."""

    def __init__(self, *places: int) -> None:
        self.places, self.logs = list(places), 0
        self.before = {each.pid for each in workers_of(os.getpid())}
        self.killed: list[int] = []

    def start(self, directory: Path, config: Mapping[str, Any]) -> None: ...
    def progress(self, task: str, done: float, total: float) -> None: ...
    def finish(self, status: str) -> None: ...

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        self.logs += 1
        if self.logs in self.places:
            workers = [each for each in workers_of(os.getpid()) if each.pid not in self.before]
            oldest = workers[0]  # So that they take turns: each may be replaced three times.
            self.killed.append(oldest.pid)
            oldest.kill()


def status_of(directory: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((directory / "status.json").read_text())
    return status


def reached(directory: Path) -> int:
    """The last iteration that can be gone on from."""
    found = Checkpoints(directory / "checkpoints").newest()
    return found[0] if found else 0


@pytest.mark.slow
def test_a_run_that_lost_a_worker_ends_with_its_name_and_can_be_gone_on_with(
    tmp_path: Path,
) -> None:
    watcher, iterations = KillAt(7), 20
    with pytest.raises(CollectError, match=r"worker [01] \(process \d+\) .*signal 9") as caught:
        run(RunConfig.model_validate(config(tmp_path, iterations)), watchers=[watcher])
    assert f"(process {watcher.killed[0]})" in str(caught.value)
    (directory,) = (tmp_path / "runs").iterdir()
    status = status_of(directory)
    assert status["status"] == "failed"
    assert "worker" in status["error"]
    # All that was learned, though the last regular checkpoint is older.
    assert reached(directory) == 7 != 7 // EVERY * EVERY
    result = Experiment.resume(directory).result
    assert isinstance(result, RolloutResult)
    assert result.iterations == iterations
    assert status_of(directory)["status"] == "finished"
    assert not [each for each in workers_of(os.getpid()) if each.pid not in watcher.before]


@pytest.mark.parametrize(
    "places", [(4, 9), pytest.param((2, 5, 6, 11, 12, 17), marks=pytest.mark.slow)]
)
def test_a_run_whose_workers_are_replaced_finishes(
    places: tuple[int, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watcher, iterations = KillAt(*places), places[-1] + 20
    with caplog.at_level(logging.WARNING):
        result = run(
            RunConfig.model_validate(config(tmp_path, iterations, "restart")), watchers=[watcher]
        )
    assert isinstance(result, RolloutResult)
    assert len(watcher.killed) == len(places)
    assert caplog.text.count("is started anew") == len(places)
    # What lost episodes did not deliver was collected again.
    assert result.record.history[-1].steps >= iterations * ROLLOUT
    assert result.iterations in (iterations, iterations + 1)


def empo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "empo_core", *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Some shells let processes in the background ignore Ctrl-C, which would be inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts ``empo`` with a config that would take it minutes."""
    (tmp_path / "run.json").write_text(json.dumps(config(tmp_path, 10**6)))
    started = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        started.append(empo(tmp_path, *arguments, "--quiet"))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


def kill_learner(process: subprocess.Popen[str]) -> None:
    """Kill it, and wait until its workers have ended by themselves."""
    workers = workers_of(process.pid)
    assert len(workers) == 2
    for each in workers:
        # What they share has no name: nothing of it stays when nobody uses it any more.
        shared = [entry.path for entry in each.memory_maps() if "/dev/shm" in entry.path]
        assert shared == []
    everybody = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(everybody, timeout=PATIENCE_S)
    assert alive == []


@pytest.mark.slow
def test_a_killed_learner_leaves_no_worker_and_one_asked_to_stop_leaves_a_checkpoint(
    start: Start, tmp_path: Path
) -> None:
    process = start("run", "run.json")
    wait_for(lambda: any(tmp_path.glob("runs/*/checkpoints/step-*")), process)
    kill_learner(process)
    (directory,) = (tmp_path / "runs").iterdir()
    before = reached(directory)
    assert before % EVERY == 0

    process = start("resume", str(directory))
    wait_for(lambda: reached(directory) > before, process)
    workers = workers_of(process.pid)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert errors.splitlines()[-1] == f"interrupted; go on with: empo resume {directory}"
    assert status_of(directory)["status"] == "interrupted"
    psutil.wait_procs(workers, timeout=PATIENCE_S)
    # The numbers of all that was done are there, and a checkpoint of the last of it.
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["time/iteration"] == reached(directory)
    assert len(lines) == reached(directory)


@pytest.mark.slow
def test_a_run_whose_learner_is_killed_again_and_again_gets_on(
    start: Start, tmp_path: Path
) -> None:
    chance, arguments, before = random.Random(0), ("run", "run.json"), 0
    for _ in range(5):
        process = start(*arguments)
        found = tmp_path / "runs"
        wait_for(
            lambda: any(reached(each) > before for each in found.glob("*")),  # noqa: B023
            process,
        )
        time.sleep(chance.uniform(0, 0.5))
        kill_learner(process)
        (directory,) = found.iterdir()
        assert reached(directory) > before
        before, arguments = reached(directory), ("resume", str(directory))
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    iterations = [json.loads(line)["time/iteration"] for line in lines]
    assert iterations == sorted(set(iterations))
    assert iterations[-1] >= before
