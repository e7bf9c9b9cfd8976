"""Configs that try to run code: nothing of theirs is imported or called, whatever the command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from empo_core.components import build
from empo_core.config import EnvironmentRef, RunConfig, installed
from empo_core.errors import ConfigError
from empo_core.experiment import run as execute
from empo_core.protocols.environments import EnvironmentContext

CANARY = """
import pathlib
pathlib.Path({path!r}).write_text("imported")

def call(*args, **kwargs):
    pathlib.Path({path!r}).write_text("called")

parallel_env = make = Env = call
"""


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that appears once a module ``canary`` on the path of the command is imported."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for name in ("canary", "canary_v0"):
        (folder / f"{name}.py").write_text(CANARY.format(path=str(tmp_path / "ran")))
    return tmp_path / "ran"


TOUCH = "touch {ran}"
HOSTILE: dict[str, Any] = {
    "a factory": {"name": "gymnasium", "params": {"factory": "os:system"}},
    "an old factory": {"kind": "pettingzoo", "factory": "os:system", "kwargs": {"command": TOUCH}},
    "a module before the id": "gymnasium/canary:Env-v0",
    "a module before the id of a vector": "gymnasium-vector/canary:Env-v0",
    "os.system as an id": {"name": "gymnasium", "params": {"id": "os:system"}},
    "a module as a PettingZoo family": "pettingzoo/canary/canary_v0",
    "a path to a module": "pettingzoo/../canary_v0",
    "a module with dots": "pettingzoo/butterfly/x.canary_v0",
    "an adapter of other registries": {
        "name": "gymnasium",
        "params": {"id": "GymV26Environment-v0", "kwargs": {"env_id": "canary:Env-v0"}},
    },
    "an entry point as an argument": {
        "name": "gymnasium",
        "params": {"id": "CartPole-v1", "kwargs": {"entry_point": "canary:Env"}},
    },
    "a name of code as an argument": {
        "name": "gymnasium",
        "params": {"id": "CartPole-v1", "kwargs": {"render_mode": "canary:call"}},
    },
    "a name of code deep in an argument": {
        "name": "gymnasium",
        "params": {"id": "CartPole-v1", "kwargs": {"config": {"a": ["canary:call"]}}},
    },
    "wrappers of a vector": {
        "name": "gymnasium-vector",
        "params": {"id": "CartPole-v1", "kwargs": {"wrappers": ["canary:call"]}},
    },
    "a worker of a vector": {
        "name": "gymnasium-vector",
        "params": {
            "id": "CartPole-v1",
            "kwargs": {"vectorization_mode": "async", "vector_kwargs": {"worker": "canary"}},
        },
    },
    "a class that highway-env would import": {
        "name": "gymnasium",
        "params": {
            "id": "highway-v0", "kwargs": {"config": {"other_vehicles_type": "canary.call"}}
        },
    },
    "a class that an id made of highway-env's would import": {
        "name": "gymnasium",
        "params": {
            "id": "mo-highway-v0", "kwargs": {"config": {"other_vehicles_type": "canary.call"}}
        },
    },
    "a dotted name where the key takes code": {
        "name": "gymnasium",
        "params": {"id": "CartPole-v1", "kwargs": {"renderer_class": "os.system"}},
    },
    "a module as a task": "dmc/canary:call",
}  # fmt: skip


OF_EACH_KIND = (
    "a module before the id",
    "wrappers of a vector",
    "a module as a PettingZoo family",
    "a module as a task",
)


def written(path: Path, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: written(path, part) for key, part in value.items()}
    return value.format(ran=path) if isinstance(value, str) and "{ran}" in value else value


def configs(canary: Path, environment: Any) -> dict[str, Any]:
    environment = written(canary, environment)
    rollout = {"total_steps": 64, "environment": environment}
    latent = {"total_steps": 10, "policy_loss": "svg", "tasks": [environment]}
    return {"rollout": rollout, "latent": latent}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_reference_that_names_code_is_refused(name: str) -> None:
    def use() -> None:
        reference = EnvironmentRef.model_validate(HOSTILE[name])
        build(reference, EnvironmentContext()).spec()

    with pytest.raises((ConfigError, ValueError)):
        use()
    assert "canary" not in sys.modules


# One process for all of them, as if it were typed at the command line, for starts take long.
SCRIPT = """
import sys
from empo_core.cli.app import app

for command in sys.argv[1].split():
    for each in sys.argv[2:]:
        try:
            app([command, each])
        except SystemExit as end:
            assert bool(end.code) != each.endswith("harmless"), (command, each)
"""


def refused_by(commands: str, paths: Iterable[Path], directory: Path) -> None:
    """Check that commands refuse all these configs or run directories but a harmless one."""
    modules = [str(directory / "modules"), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, commands, *map(str, paths)],
        capture_output=True, text=True, timeout=300, check=False, cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(modules)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("algorithm", ["rollout", pytest.param("latent", marks=pytest.mark.slow)])
def test_no_command_runs_what_a_config_names(tmp_path: Path, canary: Path, algorithm: str) -> None:
    if algorithm not in installed().names("algorithm"):
        pytest.skip(f"{algorithm} is not installed")
    files = []
    for number, environment in enumerate(HOSTILE.values()):
        params = configs(canary, environment)[algorithm]
        config = {"algorithm": {"name": algorithm, "params": params}, "runs": str(tmp_path / "r")}
        files.append(tmp_path / f"{number}.yaml")
        files[-1].write_text(yaml.safe_dump(config))
    refused_by("check run", files, tmp_path)
    assert not canary.exists()


@pytest.mark.slow
def test_no_command_runs_what_a_run_directory_names(tmp_path: Path, canary: Path) -> None:
    if "rollout" not in installed().names("algorithm"):
        pytest.skip("rollout is not installed")
    params = {"total_steps": 64, "environment": "gymnasium/CartPole-v1", "num_envs": 1}
    config = {"algorithm": {"name": "rollout", "params": params}, "runs": str(tmp_path / "r")}
    execute(RunConfig.model_validate(config))
    (run,) = (tmp_path / "r").iterdir()
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps({**status, "status": "interrupted"}))
    resolved = yaml.safe_load((run / "config.yaml").read_text())
    runs = [shutil.copytree(run, tmp_path / "harmless")]
    # Every entry is refused by its params above, so here one of each kind is enough.
    for number, name in enumerate(OF_EACH_KIND):
        runs.append(shutil.copytree(run, tmp_path / "r" / f"hostile-{number}"))
        hostile = configs(canary, HOSTILE[name])["rollout"]["environment"]
        resolved["algorithm"]["params"]["environment"] = hostile
        (runs[-1] / "config.yaml").write_text(yaml.safe_dump(resolved))
    refused_by("resume evaluate", runs, tmp_path)
    assert not canary.exists()
