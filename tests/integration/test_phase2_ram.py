"""RAM that ``empo check`` announces for ``phase2``, and that runs then take."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """
world_model: multigrid/{world}
algorithm:
  name: phase2
  params:
    human_prior: path-heuristic
    values: {{q_r: {network}, v_h_e: {network}}}
    total_steps: 12
    warm_up: {{v_h_e: 2, x_h: 0, u_r: 0, q_r: 2, v_r: 0, ramp: 2}}
"""
EMPO = [sys.executable, "-c", "from empo_core.cli import main; main()"]


def announced(output: str, name: str) -> float:
    """A number that ``empo check`` shows."""
    found = re.search(rf"{re.escape(name)}\s+([\d,.]+)", output)
    assert found is not None, output
    return float(found[1].replace(",", ""))


@pytest.mark.slow
@pytest.mark.parametrize(("world", "network"), [("trivial", "mlp"), ("household", "grid-conv")])
def test_check_announces_the_ram_of_a_run(tmp_path: Path, world: str, network: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(world=world, network=network))
    checked = subprocess.run(
        [*EMPO, "check", str(config)], capture_output=True, text=True, check=True
    )
    expected = announced(checked.stdout, "RAM at first (MiB)")
    assert expected <= announced(checked.stdout, "RAM when full (MiB)")
    run = subprocess.Popen(
        [*EMPO, "run", str(config), "--quiet", f"runs={tmp_path}"], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    assert run.returncode == 0
    peak = used.ru_maxrss / 1024
    assert peak / 1.5 < expected < 1.5 * peak
