"""Runs, states and times that cannot be inspected: one sentence each of both commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.runs.directory import RESULTS

ROOT = Path(__file__).parents[2]
both = pytest.mark.parametrize("command", ["inspect", "explain"])


def refused(*words: object) -> str:
    """What a command says that does not do what it is told."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code not in (0, None), done.output
    assert "Traceback" not in done.stderr
    message = done.stderr.strip()
    assert "\n\n" not in message.partition("\n\nError: ")[2]  # Behind how the command is used.
    return " ".join(message.split())


def unfinished(directory: Path) -> None:
    shutil.rmtree(directory / RESULTS)


def of_another_version(directory: Path) -> None:
    manifest = directory / RESULTS / "tables" / "manifest.json"
    data = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(data | {"version": 999}))


def without_config(directory: Path) -> None:
    (directory / "config.yaml").unlink()


def of_another_world(directory: Path) -> None:
    config = directory / "config.yaml"
    config.write_text(config.read_text().replace("max_steps: 6", "max_steps: 5"))


@both
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (unfinished, "has no results; this algorithm saves them at its end. Go on with: empo"),
        (of_another_version, "version 999"),
        (without_config, "is not a run directory"),
        (of_another_world, "horizon"),
    ],
)
def test_a_run_that_cannot_be_read_says_why(
    run_dir: str, tmp_path: Path, command: str, damage: Callable[[Path], None], says: str
) -> None:
    directory = tmp_path / "run"
    shutil.copytree(run_dir, directory)
    damage(directory)
    assert says in refused(command, directory)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--start", "1,2"], "words, not 2"),
        (["--start", "1,x"], "write whole numbers with commas"),
        (["--start", ",".join("9" * 9)], "cannot reach the state"),
        (["--times", "0,6"], "there is no decision at time 6: times go from 0 to 5"),
        (["--times", "soon"], "write whole numbers with commas"),
        (["--precision", "low"], "not one of 'exact'"),
        (["--exact", "nowhere"], "nowhere: does not exist"),
    ],
)
def test_what_cannot_be_inspected_is_named(run_dir: str, options: list[str], says: str) -> None:
    assert says in refused("inspect", run_dir, *options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--time", "6"], "times go from 0 to 5"),
        (["--state", "9999999"], "there is no such state"),
        (["--state", "60"], "cannot be in that state after 0 steps"),
    ],
)
def test_what_cannot_be_explained_is_named(run_dir: str, options: list[str], says: str) -> None:
    assert says in refused("explain", run_dir, *options)


def test_runs_of_other_algorithms_say_that_they_cannot(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("algorithm: {name: latent}\nenvironment: Pendulum-v1\n", "utf-8")
    assert refused("inspect", tmp_path)
