"""Runs that are killed, or lose their cluster: no process stays, and what was learned does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("empo_ray", reason="empo-ray is not installed")

from simulated_cluster import simulated_cluster

from empo_testing.executor import is_running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
PATIENCE_S = 60.0

DRIVER = """
import time
from empo_core.protocols import Needs
from empo_testing.echo_worker import EchoWorker
from empo_ray.executor import RayExecutor
from empo_ray.plugin import RayParams

if __name__ == "__main__":
    address = {address!r}
    executor = RayExecutor(RayParams(address=address, allow_addresses=[address]))
    workers = [executor.start(EchoWorker, Needs()) for _ in range(2)]
    print(*(executor.call(worker, "pid").result() for worker in workers), flush=True)
    executor.call(workers[0], "sleep", on_report=id)
    time.sleep(600)
"""


@pytest.mark.parametrize("local", [False, True])
def test_workers_end_when_their_run_is_killed_stopped_ones_too(
    cluster: Any, tmp_path: Path, local: bool
) -> None:
    path = tmp_path / "driver.py"
    path.write_text(DRIVER.format(address="local" if local else cluster.address))
    before = {process.pid for process in psutil.process_iter()}
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        workers = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(workers) == 2
        os.kill(workers[1], signal.SIGSTOP)
        driver.kill()
    deadline = time.monotonic() + 10  # Within 5 s on an idle machine.
    while alive := [pid for pid in workers if is_running(pid)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)
    if local:
        while left := [p for p in psutil.process_iter(["name"]) if is_of_ray(p, before)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


def is_of_ray(process: psutil.Process, before: set[int]) -> bool:
    """True for a process of a cluster that has come since and runs; agents end minutes later."""
    name = str(process.info["name"])
    named = name.startswith(("ray::Host", "raylet", "gcs_server"))
    return named and process.pid not in before and is_running(process.pid)


CONFIG = """
world_model: {{name: multigrid/trivial, params: {{max_steps: 5}}}}
seed: 0
algorithm:
  name: phase2
  params:
    human_prior: {{name: exact, params: {{theory: {{beta_h: 10.0}}}}}}
    values: {{q_r: lookup, v_h_e: lookup}}
    total_steps: 1000000
    collector:
      name: async
      params:
        executor:
          name: ray
          params: {{address: "{0}", allow_addresses: ["{0}"], unavailable_s: 2.0}}
"""


def steps(folder: Path) -> list[int]:
    """The training steps of all lines that the only run there has logged."""
    text = "".join(path.read_text() for path in folder.glob("runs/*/metrics.jsonl"))
    return [json.loads(line)["step"] for line in text.splitlines(keepends=True) if line[-1] == "\n"]


def test_a_run_that_loses_the_head_leaves_a_checkpoint_and_can_be_resumed(tmp_path: Path) -> None:
    pytest.importorskip("empo_phase2", reason="without learners there are no runs")

    def empo(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "empo_core", *words]
        return subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)

    def await_step(run: subprocess.Popen[str], step: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while max(steps(tmp_path), default=0) <= step:
            assert time.monotonic() < deadline
            assert run.poll() is None, run.stderr
            time.sleep(0.1)

    with simulated_cluster(1) as doomed:
        address = doomed.address
        (tmp_path / "run.yaml").write_text(CONFIG.format(address))
        with empo("run", "run.yaml") as run:
            await_step(run, 0)
            head = doomed.head_node.all_processes
            for name in ("gcs_server", "raylet"):
                head[name][0].process.kill()
            _, said = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 3
        assert f"{address}" in said, said[-1500:]
    (directory,) = tmp_path.glob("runs/*")
    learned = max(steps(tmp_path))
    with simulated_cluster(1, gcs_server_port=int(address.rpartition(":")[2])):
        with empo("resume", str(directory)) as resumed:
            await_step(resumed, learned)
            resumed.send_signal(signal.SIGINT)
            _, said = resumed.communicate(timeout=PATIENCE_S)
        assert resumed.returncode == 130, said
    found = steps(tmp_path)
    assert found == sorted(set(found)), "no step is told twice"
