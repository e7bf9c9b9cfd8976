"""Each kind of fault of the programme that kills parts of a cluster."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("cluster_kills.py")


@pytest.mark.cluster
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.skipif(find_spec("empo_ray") is None, reason="empo-ray is not installed")
def test_a_learner_gets_through_every_fault_with_its_accounts_exact() -> None:
    command = [sys.executable, str(SCRIPT), "--runs", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count(" | ") >= 5 * 6
