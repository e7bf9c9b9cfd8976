"""A sweep has the same results whichever executor runs its trials."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster
SWEEP = """
base: {world_model: multigrid/trivial, algorithm: exact}
over: {seed: 0..1, algorithm.params.theory.beta_r: [1.0, 5.0]}
objective: {key: root.V_r}
"""


def arms(folder: Path, executor: str) -> list[dict[str, Any]]:
    """The arms in the results of a sweep on this executor."""
    (folder / "s.yaml").write_text(SWEEP)
    command = [sys.executable, "-m", "empo_core", "sweep", "s.yaml", "--json", "--quiet"]
    done = subprocess.run(
        [*command, f"name={executor}", f"executor={executor}"],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["arms"]
    return found


def test_trials_on_a_cluster_are_those_of_worker_processes(tmp_path: Path) -> None:
    if find_spec("ray") is None or find_spec("empo_ray") is None:
        pytest.skip("Ray is not installed")
    here = arms(tmp_path, "local")
    assert [arm["mean"]["n"] for arm in here] == [2, 2]
    assert arms(tmp_path, "ray") == here
    assert not (tmp_path / "sweeps/ray/workers").exists()
