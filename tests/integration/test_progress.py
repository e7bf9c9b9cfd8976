"""`empo run` shows how far it is, unless it is told not to."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

EXACT = ["examples/free_the_human.yaml", "world_model.params.max_steps=3"]
PHASE2 = [
    "examples/learn_trivial.yaml",
    *(f"algorithm.params.{param}" for param in (
        "total_steps=2", "human_prior=uniform", "reporting.compare=null",
    )),
]  # fmt: skip
ROOT = Path(__file__).parents[2]


def errors_of(tmp_path: Path, *extra: str, config: Sequence[str] = EXACT) -> str:
    command = [sys.executable, "-m", "empo_core", "run", *config, f"runs={tmp_path}", *extra]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.parametrize(
    ("config", "tasks"),
    [
        (EXACT, ["kernels", "state graph", "backward induction", "saving results"]),
        (PHASE2, ["kernels", "first experience", "the last checkpoint", "training", "results"]),
    ],
)
def test_every_long_task_is_shown_to_its_end(
    tmp_path: Path, config: list[str], tasks: list[str]
) -> None:
    ends = ".*".join(rf"{task}: 100%" for task in tasks)
    assert re.search(ends, errors_of(tmp_path, config=config), re.DOTALL)


@pytest.mark.parametrize("trackers", ["trackers=[]", "trackers=[progress]"])
def test_quiet_shows_nothing(tmp_path: Path, trackers: str) -> None:
    assert errors_of(tmp_path, "--quiet", trackers) == ""


def test_a_config_that_names_the_tracker_gets_it_once(tmp_path: Path) -> None:
    shown = errors_of(tmp_path, "trackers=[progress]")
    assert shown.count("backward induction: 100%") == 1
