"""Components that exit: an error of the run that names the component, or told at the next look."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from empo_core import Component, Config
from empo_core.components import build
from empo_core.config import HumanPriorRef, RunConfig
from empo_core.config.errors import located
from empo_core.config.files import load_config
from empo_core.config.yaml import read_yaml
from empo_core.errors import ComponentExitError, EmpoError, TrackerError
from empo_core.experiment import Experiment, run
from empo_core.plugins.imports import noted
from empo_core.plugins.registry import Offer, Provider, Registry
from empo_core.protocols import Algorithm, Tracker
from empo_core.runs.directory import RunDirectory
from empo_exact.algorithm import Exact
from empo_exact.plugin import ExactParams
from empo_testing.worlds import TinyWorld


class When(Config):
    """When a component ends the process, and how."""

    at: str = "never"
    code: int = 0


class Leaving:
    """Ends the process at a certain place."""

    def __init__(self, params: When) -> None:
        self.params = params
        self.at("build")

    def at(self, place: str) -> None:
        if self.params.at == place:
            raise SystemExit(self.params.code)


class LeavingWorld(TinyWorld):
    """A world that ends the process."""

    def __init__(self, params: When) -> None:
        super().__init__()
        self.leaving = Leaving(params)

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Any:
        self.leaving.at("transitions")
        return super().transitions(states, actions)


class LeavingPrior:
    """Humans whose policy ends the process."""

    def __init__(self, params: When, world: Any) -> None:
        self.leaving, self.world = Leaving(params), world

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        self.leaving.at("policy")
        spec = self.world.spec
        available = self.world.available(states)[:, [goal.human for goal in spec.goals]].double()
        policy: Tensor = available / available.sum(-1, keepdim=True).clamp(min=1)
        return policy


class LeavingTracker(Tracker):
    """A tracker that ends the process."""

    def __init__(self, params: When) -> None:
        self.leaving = Leaving(params)

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        self.leaving.at("start")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.leaving.at("log")

    def finish(self, status: str) -> None:
        self.leaving.at("finish")


class WalkParams(Config):
    """The prior, if there is one."""

    human_prior: HumanPriorRef | None = None


class Walked:
    """Nothing of account."""

    def summary(self) -> dict[str, Any]:
        return {}

    def report(self) -> str:
        return "walked"

    def save(self, directory: Path) -> None:
        (directory / "walked.txt").write_text("walked")


class Walk(Algorithm):
    """An algorithm that asks the world and the prior, and logs a number."""

    def __init__(self, params: WalkParams) -> None:
        self.params = params

    def run(self, context: Any) -> Walked:
        world = context.world
        start = world.initial_state()[None]
        world.transitions(start)
        if self.params.human_prior is not None:
            build(self.params.human_prior, world).policy(start, start[:, 0] + 1)
        context.tracker.log(0, {"steps": 1.0})
        return Walked()

    def check(self, world: object) -> Mapping[str, Any]:
        return {}


@pytest.fixture
def registry() -> Registry:
    rows: list[tuple[Any, str, Any, str]] = [
        ("world_model", "leaving", When, f"{__name__}:LeavingWorld"),
        ("human_prior", "leaving", When, f"{__name__}:LeavingPrior"),
        ("tracker", "leaving", When, f"{__name__}:LeavingTracker"),
        ("algorithm", "walk", WalkParams, f"{__name__}:Walk"),
        ("algorithm", "exact", ExactParams, f"{Exact.__module__}:Exact"),
    ]
    components = [
        Component(kind=kind, name=name, params=params, target=target, api=1)
        for kind, name, params, target in rows
    ]
    provider = Provider("leaving", "1", "leaving")
    return Registry([Offer(provider, component) for component in components], [provider])


def config(folder: Path, registry: Registry, **at: str) -> RunConfig:
    def component(kind: str) -> dict[str, Any]:
        return {"name": "leaving", "params": {"at": at.get(kind, "never")}}

    data = {
        "world_model": component("world"),
        "algorithm": {"name": "walk", "params": {}},
        "trackers": [component("tracker")],
        "runs": str(folder / "runs"),
    }
    if "prior" in at:
        data["algorithm"]["params"]["human_prior"] = component("prior")  # type: ignore[index]
    (folder / "config.yaml").write_text(json.dumps(data))
    return load_config(folder / "config.yaml", registry=registry)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("world", "build"),
        ("world", "transitions"),
        ("prior", "build"),
        ("prior", "policy"),
        ("tracker", "build"),
        ("tracker", "start"),
        ("tracker", "log"),
    ],
)
def test_a_component_that_exits_is_an_error_that_names_it(
    kind: str, place: str, tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("empo_core.components.installed", lambda: registry)
    with pytest.raises(EmpoError, match=r"calls sys\.exit\(0\)") as caught:
        run(config(tmp_path, registry, **{kind: place}), registry=registry)
    assert isinstance(caught.value, ComponentExitError | TrackerError)
    assert "leaving" in str(caught.value).lower()
    for status in tmp_path.glob("runs/*/status.json"):
        assert json.loads(status.read_text())["status"] == "failed"


def test_a_tracker_that_exits_at_the_end_is_named_and_costs_no_result(
    tmp_path: Path, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    run(config(tmp_path, registry, tracker="finish"), registry=registry)
    assert "LeavingTracker failed (SystemExit: 0)" in caplog.text
    (status,) = tmp_path.glob("runs/*/status.json")
    assert json.loads(status.read_text())["status"] == "finished"


def test_a_run_that_ended_without_a_word_is_told_at_the_next_look(
    tmp_path: Path, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    monkey = config(tmp_path, registry)
    silent = RunDirectory.create(monkey, registry)
    silent.release()
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    status = json.loads((silent.path / "status.json").read_text())
    status["pid"] = process.pid
    (silent.path / "status.json").write_text(json.dumps(status))
    run(monkey, registry=registry)
    assert f"{silent.path}: the last run ended without a word" in caplog.text
    caplog.clear()
    run(monkey, registry=registry)  # The newest run has ended well.
    assert "without a word" not in caplog.text
    Experiment.resume(silent.path, registry=registry)
    assert "the last run ended without a word" in caplog.text


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_a_run_whose_directory_is_gone_stops_and_leaves_no_ghost(
    how: str, tmp_path: Path, registry: Registry
) -> None:
    class Mover(Tracker):
        def log(self, step: int, metrics: Mapping[str, Any]) -> None:
            (found,) = (tmp_path / "runs").iterdir()
            if how == "moved":
                found.rename(tmp_path / "elsewhere")
            else:
                shutil.rmtree(found)

    with pytest.raises(EmpoError, match="removed"):
        run(config(tmp_path, registry), registry=registry, watchers=[Mover()])
    assert not any((tmp_path / "runs").iterdir())


def test_a_plugin_that_ends_the_process_is_named_by_the_next_command(tmp_path: Path) -> None:
    info = tmp_path / "outside_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[empo]\noutside = outside_of_empo\n")
    (tmp_path / "outside_of_empo.py").write_text("import os; os._exit(0)\n")
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}

    def listed(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "empo_core", "plugins"]
        return subprocess.run(
            command, env=environment | more, capture_output=True, text=True, check=False
        )

    assert listed().stdout == ""
    again = listed(EMPO_BLOCK_PLUGINS="outside-plugin")
    assert "ended without a word while it imported outside_of_empo" in again.stderr
    assert "outside-plugin" in again.stdout
    assert "without a word" not in listed(EMPO_BLOCK_PLUGINS="outside-plugin").stderr


def test_a_worker_that_is_killed_while_it_imports_is_blamed_on_no_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def notes() -> list[str]:
        with noted() as note:
            note("module", "owner")
            return [path.read_text() for path in tmp_path.rglob("importing-*")]

    assert len(notes()) == 1
    monkeypatch.setattr("multiprocessing.process._parent_process", object())
    assert notes() == []


def test_errors_after_validation_have_a_place_in_the_file(
    tmp_path: Path, registry: Registry
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "world_model: leaving\n"
        "algorithm:\n"
        "  name: exact\n"
        "  params:\n"
        "    compute: {workers: 1}\n"
        "    reduce: [cone]\n"
        f"runs: {tmp_path / 'runs'}\n"
    )
    document = read_yaml(path)
    loaded = load_config(document, registry=registry)
    with (
        pytest.raises(EmpoError, match=rf"^{path}:6:5: algorithm\.params\.reduce: .*needs"),
        located(document, loaded),
    ):
        run(loaded, registry=registry)
    path.write_text(path.read_text().replace("world_model: leaving\n", ""))
    document = read_yaml(path)
    loaded = load_config(document, registry=registry)
    with (
        pytest.raises(EmpoError, match=rf"^{path}:\d+:\d+: \S+: .* world"),
        located(document, loaded),
    ):
        run(loaded, registry=registry)


@pytest.mark.slow
def test_a_world_in_worker_processes_that_exits_is_named(
    tmp_path: Path, registry: Registry
) -> None:
    path = tmp_path / "config.yaml"
    exact = {"name": "exact", "params": {"compute": {"workers": 2}, "keep": "none"}}
    world = {"name": "leaving", "params": {"at": "transitions"}}
    path.write_text(
        json.dumps({"world_model": world, "algorithm": exact, "runs": str(tmp_path / "runs")})
    )
    with pytest.raises(EmpoError, match=r"^world_model .leaving. calls sys\.exit\(0\)"):
        run(load_config(path, registry=registry), registry=registry)
