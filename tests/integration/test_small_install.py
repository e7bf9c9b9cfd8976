"""Extras are needed by nothing else, and a message names the extra that is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("pictures")

EXTRAS = ("cloudpickle", "gymnasium", "matplotlib", "optuna", "pettingzoo", "safetensors")


BLOCK = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in BLOCKED else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""


def without(code: str, folder: Path, modules: tuple[str, ...] = EXTRAS) -> str:
    """Standard output and errors of code that runs where some packages are not installed."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCK.replace("BLOCKED", repr(modules)) + code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout + done.stderr


def test_a_world_is_solved_with_nothing_but_what_exact_needs(tmp_path: Path) -> None:
    text = without(
        "import empo_core; empo_core.run('exact', world_model='multigrid/trivial')", tmp_path
    )
    assert list(tmp_path.glob("runs/*/results/start.png")), text


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        pytest.param(
            "import empo_multigrid.gym.environments",
            "empo-multigrid[gym]",
            marks=pytest.mark.slow,
        ),
        ("from empo_pictures.figures import new_figure; new_figure()", "empo-pictures[figures]"),
    ],
)
def test_a_message_names_the_extra(tmp_path: Path, code: str, extra: str) -> None:
    assert f"pip install '{extra}'" in without(code, tmp_path).splitlines()[-1]


@pytest.mark.slow
def test_a_run_that_cannot_draw_its_curves_says_what_to_install(tmp_path: Path) -> None:
    text = without(
        "import empo_core, logging; logging.basicConfig()\n"
        "empo_core.run('rollout', env='gymnasium/CartPole-v1', num_envs=4, "
        "total_steps=64, experience={'bptt_horizon': 16})",
        tmp_path,
        ("matplotlib", "pettingzoo"),
    )
    assert list(tmp_path.glob("runs/*/results/training.csv")), text
    (warning,) = [line for line in text.splitlines() if line.startswith("WARNING")]
    assert "pip install 'empo-pictures[figures]'" in warning
