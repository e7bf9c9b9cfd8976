"""`empo run` shows how far it is, unless it is told not to."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app

ROOT = Path(__file__).parents[2]
EXACT = [ROOT / "examples/free_the_human.yaml", "world_model.params.max_steps=3"]
PHASE2 = [
    ROOT / "examples/learn_trivial.yaml",
    *(f"algorithm.params.{param}" for param in (
        "total_steps=2", "human_prior=uniform", "reporting.compare=null",
    )),
]  # fmt: skip


def errors_of(tmp_path: Path, *extra: str) -> str:
    done = CliRunner().invoke(app, ["run", *map(str, EXACT), f"runs={tmp_path}", *extra])
    assert done.exit_code == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("config", "tasks"),
    [
        (EXACT, ["kernels", "state graph", "backward induction", "saving results"]),
        pytest.param(
            PHASE2,
            ["kernels", "first experience", "the last checkpoint", "training", "results"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_every_long_task_is_shown_to_its_end(
    tmp_path: Path, config: list[str | Path], tasks: list[str]
) -> None:
    # In another process, where no kernels are loaded yet.
    command = [sys.executable, "-m", "empo_core", "run", *map(str, config), f"runs={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ends = ".*".join(rf"{task}: 100%" for task in tasks)
    assert re.search(ends, done.stderr, re.DOTALL)


@pytest.mark.parametrize("trackers", ["trackers=[]", "trackers=[progress]"])
def test_quiet_shows_nothing(tmp_path: Path, trackers: str) -> None:
    assert errors_of(tmp_path, "--quiet", trackers) == ""


def test_a_config_that_names_the_tracker_gets_it_once(tmp_path: Path) -> None:
    shown = errors_of(tmp_path, "trackers=[progress]")
    assert shown.count("backward induction: 100%") == 1
