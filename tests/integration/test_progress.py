"""`empo run` shows how far it is, unless it is told not to."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = ["run", "examples/free_the_human.yaml", "world_model.params.max_steps=3"]
ROOT = Path(__file__).parents[2]


def errors_of(tmp_path: Path, *extra: str) -> str:
    command = [sys.executable, "-m", "empo_core", *COMMAND, f"runs={tmp_path}", *extra]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.parametrize("task", ["state graph", "backward induction"])
def test_every_long_task_is_shown_to_its_end(tmp_path: Path, task: str) -> None:
    assert re.search(rf"{task}: 100%", errors_of(tmp_path))


@pytest.mark.parametrize("trackers", ["trackers=[]", "trackers=[progress]"])
def test_quiet_shows_nothing(tmp_path: Path, trackers: str) -> None:
    assert errors_of(tmp_path, "--quiet", trackers) == ""


def test_a_config_that_names_the_tracker_gets_it_once(tmp_path: Path) -> None:
    shown = errors_of(tmp_path, "trackers=[progress]")
    assert shown.count("backward induction: 100%") == 1
