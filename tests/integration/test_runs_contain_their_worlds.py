"""Runs whose world file was edited or is gone, and what each command says of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from empo_core.cli.app import app
from empo_core.components import build, build_world
from empo_core.config import WorldModelRef, installed, library_file, library_files
from empo_core.config.files import load_config
from empo_core.config.yaml import dump_yaml
from empo_core.errors import StorageError
from empo_core.experiment import Experiment
from empo_core.world_content import identity, world_digest
from empo_exact.result import load
from empo_rollout.params import PolicyParams
from empo_rollout.policy import build_policy
from empo_rollout.policyfile import save_policy
from empo_world_environments.vector import WorldVectorEnv

EDITS = (
    "deceived: {robot: inform, human_1: cooperate",
    "deceived: {robot: inform, human_1: defect",
)
"""Of the belief game: what follows on the robot's other action, not what the first step does."""


def empo(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(library_file(installed(), "world_model", "table", "belief"), home / "w.yaml")
    return home


def make(home: Path, **params: object) -> Path:
    config: dict[str, Any] = {
        "world_model": {"name": "table", "params": {"file": "w.yaml"}},
        "algorithm": {"name": "exact", "params": {"keep": "all", "rollouts": 0, **params}},
        "trackers": [],
        "runs": "runs",
    }
    (home / "config.yaml").write_text(dump_yaml(config))
    done = empo("run", home / "config.yaml", "-q")
    assert done.exit_code == 0, done.output
    return Path(done.stdout.strip())


READING: tuple[Sequence[str], ...] = (
    ("explain", "--json"),
    ("evaluate", "--episodes", "5", "--json"),
    ("inspect",),
    ("certify", "--json"),
)


def edit(file: Path) -> None:
    text = file.read_text()
    assert EDITS[0] in text
    file.write_text(text.replace(*EDITS))


def test_an_edited_world_file_changes_no_run_and_a_moved_run_is_whole(
    home: Path, tmp_path: Path
) -> None:
    run = make(home)
    before = {command: empo(*command[:1], run, *command[1:]) for command in READING}
    for command, done in before.items():
        assert done.exit_code == 0, (command, done.output)
    edit(home / "w.yaml")
    assert empo("explain", run, "--json").stdout == before[READING[0]].stdout
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    shutil.move(run, moved)
    shutil.rmtree(home)
    for command, done in before.items():
        again = empo(*command[:1], moved, *command[1:])
        assert again.exit_code == 0, (command, again.output)
        if "explain" in command:
            assert again.stdout == done.stdout
    repeated = empo("run", moved / "config.yaml", "--json")
    assert repeated.exit_code == 0, repeated.output
    first = json.loads((moved / "results" / "summary.json").read_text())
    assert json.loads(repeated.stdout)["root"] == first["root"]
    edit(moved / "inputs" / "w.yaml")
    for command in (*READING, ("play",)):
        refused = empo(*command[:1], moved, *command[1:])
        assert refused.exit_code == 3
        assert "inputs/w.yaml: " in refused.stderr
    for config in (("run", moved / "config.yaml"), ("check", moved / "config.yaml")):
        assert empo(*config).exit_code == 3


def test_runs_of_different_worlds_are_told_apart(home: Path) -> None:
    first = make(home)
    edit(home / "w.yaml")
    second = make(home)
    third = make(home)
    compared = empo("compare", first, second, third, "--json")
    assert compared.exit_code == 0, compared.output
    assert "world_model.content" in compared.stdout
    assert "their worlds differ" in empo("compare", first, second).output
    assert "world_model.content" not in empo("compare", second, third, "--json").stdout
    exact = empo("inspect", first, "--exact", second)
    assert exact.exit_code == 2
    assert "another world" in exact.stderr


def test_results_are_not_loaded_into_a_world_that_differs_after_its_first_step(home: Path) -> None:
    first = make(home)
    edit(home / "w.yaml")
    run = Experiment.load(make(home))
    config, context = run.config, run.context
    assert context.world is not None
    with pytest.raises(StorageError, match="another world"):
        load(first / "results", context.world)
    world = build_world(load_config(first / "config.yaml"))
    assert world is not None
    assert world_digest(world) != world_digest(context.world)
    assert load(first / "results", world).at(0).V_r < 0
    assert build(config.algorithm) is not None


@pytest.mark.parametrize("kind", ["multigrid", "table", "bushworld"])
def test_digests_of_library_worlds_are_stable_and_differ(kind: str) -> None:
    names = [f"{kind}/{stem}" for stem in library_files(installed(), "world_model", kind)][:8]
    worlds = [build(WorldModelRef.model_validate(name)) for name in names]
    digests = [world_digest(world) for world in worlds]
    assert len(set(digests)) == len(names)
    assert [world_digest(build(WorldModelRef.model_validate(name))) for name in names] == digests


@pytest.mark.parametrize("keep", ["all", "disk"])
def test_a_human_prior_in_a_file_goes_with_its_run(home: Path, tmp_path: Path, keep: str) -> None:
    world = build(
        WorldModelRef.model_validate({"name": "table", "params": {"file": home / "w.yaml"}})
    )
    vector = WorldVectorEnv(world, copies=1, learners="humans")
    params = PolicyParams.model_validate({"network": {"name": "mlp", "params": {"hidden": [8]}}})
    policy = build_policy(params, vector.spec, generator=torch.Generator().manual_seed(1))
    save_policy(home / "humans", policy, params, vector.spec, world=identity(world))
    prior = {"name": "goal-ppo", "params": {"file": "humans"}}
    run = make(home, human_prior=prior, keep=keep)
    before = empo("explain", run, "--json")
    assert before.exit_code == 0, before.output
    moved = tmp_path / "moved"
    shutil.move(run, moved)
    shutil.rmtree(home)
    assert empo("explain", moved, "--json").stdout == before.stdout
    status = json.loads((moved / "status.json").read_text()) | {"status": "interrupted"}
    (moved / "status.json").write_text(json.dumps(status))
    resumed = empo("resume", moved, "-q")
    assert resumed.exit_code == 0, resumed.output
    assert empo("explain", moved, "--json").stdout == before.stdout
    (moved / "inputs" / "humans").write_bytes(b"others")
    refused = empo("explain", moved)
    assert refused.exit_code == 3
    assert "inputs/humans: " in refused.stderr
