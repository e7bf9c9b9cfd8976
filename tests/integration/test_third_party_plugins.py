"""The example plugins, installed as an outsider would and chosen by name in a config."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
NAMES = ["empo_example_tracker", "empo_example_world"]
EMPO = "from empo_core.cli import main; main()"
CONFIG = """
world_model: {name: lift, params: {floors: 2, door_works: 0.75, max_steps: 4}}
algorithm: {name: exact, params: {preset: reference}}
trackers: [{name: csv, params: {separator: ";"}}]
runs: runs
"""

Python = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Run Python where the example plugins are installed; this environment stays as it is."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--quiet"]
    folders = [str(EXAMPLES / name) for name in NAMES]
    subprocess.run([*pip, "--target", str(target), *folders], check=True)
    # An absolute first entry: nothing is found through the working directory.
    environment = os.environ | {"PYTHONPATH": str(target)}

    def run(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)

    return run


def test_they_are_not_part_of_this_environment() -> None:
    found = subprocess.run([sys.executable, "-c", "import empo_example_world"], capture_output=True)
    assert found.returncode != 0


def test_empo_lists_them(python: Python, tmp_path: Path) -> None:
    found = python("-c", EMPO, "plugins", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    for word in ("empo-example-tracker", "csv", "empo-example-world", "lift"):
        assert word in found.stdout


def test_empo_describes_their_params(python: Python, tmp_path: Path) -> None:
    found = python("-c", EMPO, "describe", "world_model", "lift", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    for word in ("floors", "door_works", "max_steps", "empo-example-world"):
        assert word in found.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["empo_example_world", "empo_example_tracker"])
def test_their_own_tests_pass(python: Python, name: str) -> None:
    found = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=EXAMPLES / name)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_config_chooses_them_by_name(python: Python, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(CONFIG)
    found = python("-c", EMPO, "run", "run.yaml", "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    result = json.loads(found.stdout)
    assert result["world"] == "lift"
    assert result["root"]["V_r"] < 0
    assert sum(result["root"]["robot_policy"]) == pytest.approx(1.0)
    # The human stands on the ground floor; only with the lift may it ever leave it.
    values = {goal["goal"]: goal["V_e"] for goal in result["root"]["goals"]}
    assert values["floor 0"] == 1.0
    assert 0.0 < values["floor 1"] < 1.0
    with (Path(result["run_dir"]) / "metrics.csv").open(newline="") as file:
        table = csv.DictReader(file, delimiter=";")
        assert table.fieldnames is not None
        assert table.fieldnames[0] == "step"


def test_a_misspelt_name_is_answered_with_the_installed_one(python: Python, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(CONFIG.replace("name: lift", "name: lfit"))
    found = python("-c", EMPO, "run", "run.yaml", cwd=tmp_path)
    assert found.returncode == 2
    assert "'lift'?" in found.stderr
    assert "Traceback" not in found.stderr


def test_empo_has_their_command(python: Python, tmp_path: Path) -> None:
    helped = python("-c", EMPO, "--help", cwd=tmp_path)
    assert "csv-last" in helped.stdout
    (tmp_path / "metrics.csv").write_text("step;a;b\n0;1.0;\n1;;2.0\n")
    found = python("-c", EMPO, "csv-last", ".", "--separator", ";", "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == {"step": "1", "a": "1.0", "b": "2.0"}
    (tmp_path / "metrics.csv").unlink()
    missing = python("-c", EMPO, "csv-last", ".", cwd=tmp_path)
    assert (missing.returncode, "Traceback" in missing.stderr) == (2, False)
    assert "metrics.csv" in missing.stderr
