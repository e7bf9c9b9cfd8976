"""Worlds of all kinds have the same values in parts as in one piece, to the last bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from empo_core.config import WorldModelRef
from empo_core.experiment import build
from empo_core.protocols import WorldModel
from empo_exact.graph import build_graph
from empo_exact.kernel_data import Values
from empo_exact.parts.forecast import halo_share
from empo_exact.plugin import ExactParams
from empo_exact.solver import solve

WORLDS: dict[str, dict[str, Any]] = {
    "multigrid/key_and_door": {},
    "multigrid/corridor_bush": {"max_steps": 3},
    "multigrid/asymmetric_start": {"max_steps": 5},
    "bushworld/thicket": {"max_steps": 4},
    "table/coma_pill": {"max_steps": 20},
    "blocks": {"boxes": 2, "max_steps": 8},
}


def world(name: str, params: dict[str, Any]) -> WorldModel:
    return build(WorldModelRef.model_validate({"name": name, "params": params}))


def params(**compute: Any) -> ExactParams:
    return ExactParams.model_validate({"preset": "paper", "keep": "all", "compute": compute})


@pytest.mark.parametrize("name", WORLDS)
def test_values_do_not_depend_on_the_number_of_parts(name: str) -> None:
    chosen = world(name, WORLDS[name])
    plain = solve(chosen, params())
    for parts in (1, 2, 5, 8):
        found = solve(chosen, params(parts=parts))
        number = plain.find_rows(found.graph.states)
        for time_ in plain.times:
            one, other = found.store.at(time_), plain.store.at(time_)
            for field in Values._fields:
                ours, theirs = getattr(one, field), getattr(other, field)
                assert np.array_equal(ours, theirs[number[: len(ours)]], equal_nan=True)


def test_slow_words_leave_few_values_to_exchange() -> None:
    chosen = world("multigrid/asymmetric_freeing", {"max_steps": 12})
    graph = build_graph(chosen, 12)
    assert 0 < halo_share(chosen, graph, 2) < halo_share(chosen, graph, 8) <= 0.3


CONFIG = """\
world_model: {name: blocks, params: {boxes: 3, max_steps: 30}}
algorithm:
  name: exact
  params:
    preset: paper
    keep: none
    compute: {graph: %s, parts: 6, checkpoint_s: 0}
"""


def finished(runs: Path) -> dict[str, Any]:
    (summary,) = runs.glob("*/results/summary.json")
    found: dict[str, Any] = json.loads(summary.read_text())
    return found


def run(config: Path, runs: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "RANK"}
    return subprocess.run(
        [*command, "run", str(config), "--quiet", f"runs={runs}"],
        env=environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(10))
def test_a_run_that_is_killed_at_any_moment_is_resumed_with_the_same_result(
    tmp_path: Path, moment: int
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG % "spill")
    empo = (sys.executable, "-m", "empo_core")
    process = subprocess.Popen([*empo, "run", config, "--quiet", f"runs={tmp_path / 'killed'}"])
    while not list((tmp_path / "killed").glob("*/values/parts")):
        time.sleep(0.05)
    time.sleep(0.4 * moment)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (directory,) = (tmp_path / "killed").iterdir()
    subprocess.run([*empo, "resume", directory, "--quiet"], check=True)
    config.write_text(CONFIG % "memory")
    run(config, tmp_path / "plain", *empo)
    assert finished(tmp_path / "killed")["root"] == finished(tmp_path / "plain")["root"]
    assert not (directory / "values" / "parts").exists()


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["memory", "spill"])
def test_processes_of_torchrun_solve_together(tmp_path: Path, graph: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG % graph)
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    run(config, tmp_path / "shared", sys.executable, *torchrun, "-m", "empo_core")
    config.write_text(CONFIG % "memory")
    run(config, tmp_path / "plain", sys.executable, "-m", "empo_core")
    shared, plain = finished(tmp_path / "shared"), finished(tmp_path / "plain")
    assert shared["root"] == plain["root"]
    assert shared["graph"] == plain["graph"]
