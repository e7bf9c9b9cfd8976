"""Makes reference implementations in the tests of plugins importable here, and a small run."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "plugins" / name / "tests") for name in ("empo_bounds", "empo_phase2")]
sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a solved example of six steps."""
    runs = tmp_path_factory.mktemp("runs")
    changes = ["world_model.params.max_steps=6", "algorithm.params.rollouts=0", f"runs={runs}"]
    done = CliRunner().invoke(app, ["run", str(ROOT / "examples/free_the_human.yaml"), *changes])
    assert done.exit_code == 0, done.stderr
    return str(next(runs.iterdir()))
