"""``torchrun`` on two machines, which are two ``torchrun`` here, whose ranks are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from empo_learning.checkpoint import Checkpoints

pytestmark = pytest.mark.slow  # Four processes that import torch, each time.

PATIENCE_S = 200
CONFIG = """
algorithm:
  name: rollout
  params:
    total_steps: {steps}
    environment: gymnasium/CartPole-v1
    num_envs: 4
    vectorisation: {{backend: serial}}
    experience: {{bptt_horizon: 16}}
    policy: {{network: {{name: mlp, params: {{hidden: [8]}}}}}}
    update: {{minibatch_size: 32, update_epochs: 2}}
    compute: {{rank_timeout_s: {timeout_s}}}
    reporting: {{evaluation_episodes: 0, checkpoint_interval: 1000000}}
trackers: [jsonl]
runs: runs
"""
FOR_EVER = 100_000_000


@contextlib.contextmanager
def machines(
    folder: Path, *command: str, nodes: str = "2", restarts: int = 0
) -> Iterator[list[subprocess.Popen[str]]]:
    """One ``torchrun`` for each of two machines."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", nodes, "--nproc-per-node", "1",
        "--rdzv-id", folder.name, "--rdzv-backend", "c10d",
        "--rdzv-endpoint", f"127.0.0.1:{port}", "--max-restarts", str(restarts),
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        started = []
        for node in range(2):
            log = stack.enter_context((folder / f"node{node}.txt").open("a"))
            process = subprocess.Popen(
                [*launch, "-m", "empo_core", *command, "--quiet"],
                cwd=folder, stdout=log, stderr=log, text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)},
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.terminate)
            started.append(process)
        yield started


def ranks(started: list[subprocess.Popen[str]]) -> dict[int, psutil.Process]:
    """The processes that learn, by rank."""
    found = {}
    for each in started:
        for child in psutil.Process(each.pid).children():
            with contextlib.suppress(psutil.Error, KeyError):
                found[int(child.environ()["RANK"])] = child
    return found


def await_iterations(folder: Path, more: int = 3) -> None:
    """Wait until so many lines have been logged from now on."""
    before, deadline = num_lines(folder), time.monotonic() + PATIENCE_S
    while num_lines(folder) < before + more:
        assert time.monotonic() < deadline, logs(folder)
        time.sleep(0.05)


def num_lines(folder: Path) -> int:
    return sum(path.read_text().count("\n") for path in folder.glob("runs/*/metrics.jsonl"))


def logs(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("node*.txt")))


def only_run(folder: Path) -> Path:
    (directory,) = (folder / "runs").iterdir()
    return directory


@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_dies_ends_the_run_by_name_and_it_goes_on_from_a_checkpoint(
    tmp_path: Path, lost: int
) -> None:
    (tmp_path / "run.yaml").write_text(CONFIG.format(steps=FOR_EVER, timeout_s=600))
    with machines(tmp_path, "run", "run.yaml") as started:
        await_iterations(tmp_path)
        victim = ranks(started)[lost]
        victim.send_signal(signal.SIGKILL)
        begun = time.monotonic()
        codes = [process.wait(PATIENCE_S) for process in started]
        assert time.monotonic() - begun < 30  # A promise of the documentation.
        assert all(codes)
    said = " ".join(logs(tmp_path).split())
    assert f"rank {lost} (process {victim.pid} on {socket.gethostname()})" in said
    directory = only_run(tmp_path)
    found = Checkpoints(directory / "checkpoints").newest()
    assert found is not None
    if lost == 1:  # The first rank saved what it knew.
        assert found[1]["learner"]["steps"] > 0
        status = json.loads((directory / "status.json").read_text())
        assert status["status"] == "failed"
        assert "rank 1" in status["error"]
    with machines(tmp_path, "resume", str(directory)) as started:
        await_iterations(tmp_path)
        for process in started:
            process.send_signal(signal.SIGTERM)
    newest = Checkpoints(directory / "checkpoints").newest()
    assert newest is not None
    assert newest[1]["learner"]["steps"] > found[1]["learner"]["steps"]
    assert len(newest[1]["learner"]["ranks"]) in (1, 2)


@pytest.mark.parametrize("silent", [0, 1])
def test_a_rank_that_falls_silent_ends_the_run_by_name(tmp_path: Path, silent: int) -> None:
    timeout_s = 10
    (tmp_path / "run.yaml").write_text(CONFIG.format(steps=FOR_EVER, timeout_s=timeout_s))
    with machines(tmp_path, "run", "run.yaml") as started:
        await_iterations(tmp_path)
        learning = ranks(started)
        victim, other = learning[silent], learning[1 - silent]
        victim.suspend()
        try:
            other.wait(timeout_s + 30)  # A promise of the documentation.
        finally:
            victim.kill()
        assert all(process.wait(PATIENCE_S) for process in started)
    said = " ".join(logs(tmp_path).split())
    assert f"rank {silent} (process {victim.pid} on {socket.gethostname()})" in said
    assert f"for {timeout_s} s" in said
    found = Checkpoints(only_run(tmp_path) / "checkpoints").newest()
    assert found is not None
    if silent == 1:  # The first rank saved what it knew.
        assert found[1]["learner"]["steps"] > 0


def test_torchrun_starts_again_what_a_lost_rank_ended_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(CONFIG.format(steps=60_000, timeout_s=600))
    with machines(tmp_path, "run", "run.yaml", nodes="1:2", restarts=5) as started:
        await_iterations(tmp_path, 20)
        ranks(started)[1].send_signal(signal.SIGKILL)
        codes = [process.wait(PATIENCE_S) for process in started]
    assert 0 in codes, logs(tmp_path)
    directory = only_run(tmp_path)
    assert json.loads((directory / "status.json").read_text())["status"] == "finished"
    summary = json.loads((directory / "results/summary.json").read_text())
    assert summary["steps"] >= 60_000
    log = (directory / "log.txt").read_text()
    assert "rank 1 (process" in log
    assert "going on from step" in log
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(set(steps))
