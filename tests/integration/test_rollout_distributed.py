"""Whole runs of ``rollout`` in two processes that ``torchrun`` starts, stopped and gone on with."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from empo_core.config.files import load_config
from empo_core.experiment import run
from empo_learning.checkpoint import Checkpoints
from empo_rollout.result import RolloutResult

pytestmark = pytest.mark.slow  # Three processes that import torch, each time.

RANKS, STEPS = 2, 4096
PATIENCE_S = 200
WEIGHTS = "results/model.safetensors"
CONFIG = f"""
algorithm:
  name: rollout
  params:
    total_steps: {STEPS}
    environment: gymnasium/CartPole-v1
    num_envs: 4
    vectorisation: {{backend: serial}}
    experience: {{bptt_horizon: 16}}
    policy: {{network: {{name: mlp, params: {{hidden: [8]}}}}}}
    update: {{minibatch_size: 32, update_epochs: 2}}
    reporting: {{evaluation_episodes: 4, checkpoint_interval: 1000000}}
trackers: [jsonl]
seed: 5
runs: runs
"""


def torchrun(folder: Path, *arguments: str, ranks: int = RANKS) -> subprocess.Popen[str]:
    """Processes that start in a folder which has a config."""
    (folder / "run.yaml").write_text(CONFIG)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return subprocess.Popen(
        [sys.executable, *command, *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Some shells let processes in the background ignore Ctrl-C, which would be inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def only_run(folder: Path) -> Path:
    (directory,) = (folder / "runs").iterdir()
    return directory


@pytest.fixture(scope="module", name="whole")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody stopped, with the weights that each process ended with."""
    folder = tmp_path_factory.mktemp("whole")
    with torchrun(folder, __file__) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    return folder


def test_two_processes_end_with_one_policy_and_one_run(whole: Path) -> None:
    directory = only_run(whole)
    first, second = (load_file(whole / f"{rank}.safetensors") for rank in range(RANKS))
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    saved = load_file(directory / WEIGHTS)
    assert sorted(map(float, (x.double().sum() for x in saved.values()))) == sorted(
        map(float, (x.double().sum() for x in first.values()))
    )
    assert not list(whole.glob("empo-run-*"))
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if "time/steps_per_second" in line]
    each = RANKS * 4 * 16
    assert steps == list(range(each, STEPS + 1, each))
    found = Checkpoints(directory / "checkpoints").newest()
    assert found is not None
    seen = [rank["collector"]["vector"]["environments"] for rank in found[1]["learner"]["ranks"]]
    pairs = zip(*seen, strict=True)
    assert not any(torch.equal(one["observation"], two["observation"]) for one, two in pairs)


def test_an_interrupted_run_of_two_processes_goes_on_exactly_in_as_many(
    whole: Path, tmp_path: Path
) -> None:
    with torchrun(tmp_path, "-m", "empo_core", "run", "run.yaml", "--quiet") as process:
        while not any(path.stat().st_size for path in tmp_path.glob("runs/*/metrics.jsonl")):
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    directory = only_run(tmp_path)
    assert json.loads((directory / "status.json").read_text())["status"] == "interrupted", errors
    found = Checkpoints(directory / "checkpoints").newest()
    assert found is not None
    assert 0 < found[1]["learner"]["steps"] < STEPS

    resume = ("-m", "empo_core", "resume", str(directory), "--quiet", "--json")
    copy = tmp_path / "alone"
    shutil.copytree(directory, copy)
    alone = subprocess.run(
        [sys.executable, "-m", "empo_core", "resume", str(copy), "--json"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert alone.returncode == 0, alone.stderr
    assert "2 processes wrote the checkpoint and 1 go on from it" in alone.stderr
    assert json.loads(alone.stdout)["steps"] == STEPS

    with torchrun(tmp_path, *resume) as process:
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert json.loads(output)["steps"] == STEPS
    went_on, whole_run = load_file(directory / WEIGHTS), load_file(only_run(whole) / WEIGHTS)
    assert [name for name in whole_run if not torch.equal(went_on[name], whole_run[name])] == []
    assert only_run(tmp_path) == directory


def main() -> None:
    """Entry point of each process of the fixture ``whole``."""
    result = run(load_config("run.yaml"))
    assert isinstance(result, RolloutResult)
    save_file(result.policy.state_dict(), f"{os.environ['RANK']}.safetensors")


if __name__ == "__main__":
    main()
