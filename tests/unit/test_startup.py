"""Ctrl-C before a command has begun: a message and a promised exit code, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Python imports sitecustomize before anything else; this one presses Ctrl-C during an import.
PRESS = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(10**6):  # The signal is handled between two of these at the latest.
                pass

sys.meta_path.insert(0, Finder())
"""
MODULES = [
    "pydantic",
    "typer",
    "empo_core.cli.app",
    "empo_core.config",
    "empo_core.cli.run",
    "empo_learning.plugin",
    "ruamel.yaml",
    "empo_core.experiment",
    "numpy",
]


@pytest.mark.parametrize("module", MODULES)
def test_ctrl_c_in_the_first_second_says_interrupted(tmp_path: Path, module: str) -> None:
    if module.startswith("empo_learning"):
        pytest.importorskip("empo_learning")
    (tmp_path / "sitecustomize.py").write_text(PRESS.format(module=module))
    (tmp_path / "run.yaml").write_text(
        "trackers: []\nalgorithm: exact\nworld_model: multigrid/trivial\n"
    )
    if module in ("empo_core.experiment", "numpy"):
        pytest.importorskip("empo_exact")
        pytest.importorskip("empo_multigrid")  # What comes before it needs a config that is right.
    command = [sys.executable, "-c", "from empo_core.cli import main; main()", "run", "run.yaml"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    expected = "interrupted"
    if module == "empo_learning.plugin":
        expected += ": empo-learning, importing empo_learning.plugin"
    assert done.stderr.splitlines() == [expected]
    assert done.returncode == 130
