"""Run directories from elsewhere with symbolic links in them: nothing outside is touched."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import CONFIGS, ROLLOUT, WORLD

from empo_core.config import RunConfig
from empo_core.errors import ConfigError, EmpoError, StorageError
from empo_core.experiment import Experiment
from empo_core.runs.atomic import write_file
from empo_core.runs.files import open_append, open_new, open_regular
from empo_learning.evaluation.runs import evaluate_run

FILES = [
    ".lock",
    "status.json",
    ".status.json.new",
    "config.yaml",
    "log.txt",
    "metrics.jsonl",
    ".metrics.jsonl.new",
    "results/summary.json",
    "results/.summary.json.new",
    "results/.curve.csv.new",
    "results/model.safetensors",
    "results/.model.safetensors.new",
    "checkpoints/step-320/manifest.json",
    "evaluation/evaluation.json",
    "evaluation/.evaluation.json.new",
    "wandb/id",
    "a file of no component",
]
FOLDERS = ["results", "checkpoints", "checkpoints/step-320", "evaluation", "wandb", "values"]
COMMANDS: dict[str, Callable[[Path], object]] = {
    "resume": Experiment.resume,
    "evaluate": lambda path: evaluate_run(path, episodes=1, max_steps=2),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that has stopped shortly before its end."""
    runs = tmp_path_factory.mktemp("stopped")
    data = {**CONFIGS["rollout"], "trackers": ["jsonl"], "runs": str(runs)}
    directory = Experiment.start(RunConfig.model_validate(data)).directory
    status = json.loads((directory / "status.json").read_text())
    (directory / "status.json").write_text(json.dumps(status | {"status": "interrupted"}))
    return directory


@pytest.fixture
def planted(stopped: Path, tmp_path: Path) -> Path:
    """A copy of that directory."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, with the bytes of files."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def plant(path: Path, target: Path) -> None:
    """Put a link in the place of what is there."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that no run directory may lead to."""
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_link_out_of_a_run_directory_is_refused_and_its_target_stays_as_it_was(
    planted: Path, outside: Path, name: str, command: str
) -> None:
    """Refusals name the link; files and folders behind it keep every byte."""
    target = outside / "target"
    if name in FOLDERS:
        target.mkdir()
        (target / "episode_0.gif").write_text("mine")
    else:
        target.write_text("mine\nwithout an end of line")
    plant(planted / name, target)
    before = contents(outside)
    with pytest.raises(ConfigError, match=r"run directory .*remove") as caught:
        COMMANDS[command](planted)
    assert contents(outside) == before
    assert str(planted / name) in str(caught.value)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_link_to_nothing_creates_nothing(
    planted: Path, outside: Path, name: str, command: str
) -> None:
    """A dangling link is no way to create a file elsewhere."""
    plant(planted / name, outside / "target")
    with pytest.raises(ConfigError):
        COMMANDS[command](planted)
    assert not contents(outside)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_in_a_run_directory_is_refused_rather_than_waited_for(
    planted: Path, command: str
) -> None:
    """What is neither a file nor a folder has no place there."""
    (planted / "metrics.jsonl").unlink()
    os.mkfifo(planted / "metrics.jsonl")
    with pytest.raises(ConfigError, match=r"metrics\.jsonl"):
        COMMANDS[command](planted)


@pytest.mark.parametrize("command", COMMANDS)
def test_links_that_stay_inside_do_no_harm(planted: Path, tmp_path: Path, command: str) -> None:
    """A run directory may itself be reached by a link, and hold links of its own."""
    (planted / "newest").symlink_to("checkpoints")
    (tmp_path / "short").symlink_to(planted)
    COMMANDS[command](tmp_path / "short")


@pytest.mark.parametrize("key", ["reward", "human_prior"])
def test_runs_that_a_config_names_are_opened_as_carefully(
    planted: Path, tmp_path: Path, key: str
) -> None:
    """The run that pays robots, and the run whose humans are a prior."""
    target = tmp_path / "target"
    target.write_text("mine")
    plant(planted / "results/model.safetensors", target)
    params: dict[str, object] = {
        "reward": {"kind": "power", "run": str(planted)},
        "human_prior": {"name": "goal-ppo", "params": {"file": str(planted)}},
    }
    params["reward" if key == "human_prior" else "human_prior"] = (
        {"kind": "power", "algorithm": "exact"} if key == "human_prior" else None
    )
    environment = {"name": "world", "params": params}
    algorithm = {"name": "rollout", "params": {**ROLLOUT, "environment": environment}}
    config = {"world_model": WORLD, "algorithm": algorithm, "runs": str(tmp_path / "runs")}
    with pytest.raises(EmpoError, match=r"run directory"):
        Experiment.start(RunConfig.model_validate(config))


def test_files_that_appear_later_are_opened_without_following_links(tmp_path: Path) -> None:
    """A link planted after the look at the whole directory does not help either."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to(target)
    with pytest.raises(StorageError, match=r"link: .*opened"):
        open_append(link)
    with pytest.raises(StorageError, match=r"link: .*read"), open_regular(link):
        pass
    with open_new(link) as file:
        file.write(b"ours")
    assert (target.read_text(), link.read_text()) == ("mine", "ours")
    (tmp_path / ".link.new").symlink_to(target)
    write_file(link, "newer")
    assert (target.read_text(), link.read_text()) == ("mine", "newer")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="pipe: "):
        open_append(tmp_path / "pipe")
