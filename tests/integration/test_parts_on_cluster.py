"""Processes that solve a world together find the same start whichever executor runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster
CONFIG = """
world_model: multigrid/key_and_door
algorithm:
  name: exact
  params: {preset: paper, keep: none, compute: {workers: 1, processes: %d, executor: %s}}
"""


def start(folder: Path, processes: int, executor: str) -> dict[str, Any]:
    """The start of the solved world, as JSON."""
    (folder / "config.yaml").write_text(CONFIG % (processes, executor))
    command = [sys.executable, "-m", "empo_core", "run", "config.yaml", "--json", "--quiet"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["root"]
    return found


def test_parts_on_a_cluster_have_the_values_of_one_piece(tmp_path: Path) -> None:
    if find_spec("ray") is None or find_spec("empo_ray") is None:
        pytest.skip("Ray is not installed")
    assert start(tmp_path, 2, "ray") == start(tmp_path, 1, "null")
