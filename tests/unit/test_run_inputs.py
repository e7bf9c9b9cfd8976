"""Runs contain all that they were made from, and say so where it is no longer what it was."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from empo_core import Component, Config, ConfigFile, ConfigOutput, ConfigPath, protocols
from empo_core.config import HumanPriorRef, RunConfig
from empo_core.config.files import load_config
from empo_core.config.yaml import dump_yaml
from empo_core.errors import ConfigError, EmpoError, SolveError, StorageError
from empo_core.experiment import Experiment
from empo_core.plugins.registry import Offer, Provider, Registry
from empo_core.world_content import world_digest
from empo_testing.worlds import TinyWorld


class WorldParams(Config):
    """A world whose horizon is in a file."""

    file: ConfigFile


class PriorParams(Config):
    """A prior in a file."""

    file: ConfigPath


class AlgorithmParams(Config):
    """Paths wherever params may have them."""

    ends: str = "well"
    one: ConfigPath | None = None
    many: dict[str, list[ConfigPath]] = Field(default_factory=dict)
    prior: HumanPriorRef | None = None
    out: ConfigOutput | None = None


class World(TinyWorld):
    chance = 1.0

    def __init__(self, params: WorldParams) -> None:
        super().__init__(horizon=int(params.file.read_text()))
        self._prob[1, :, 1:] *= self.chance
        self._prob[1, :, 0] = (self._prob[1].sum(1) > 0) * (1 - self._prob[1, :, 1:].sum(1))


class Outcome:
    def __init__(self, summary: dict[str, Any]) -> None:
        self.said = summary

    def summary(self) -> dict[str, Any]:
        return self.said

    def report(self) -> str:
        return ""

    def save(self, directory: Path) -> None:
        (directory / "said.json").write_text(json.dumps(self.said))


class Reader(protocols.Algorithm):
    def __init__(self, params: AlgorithmParams) -> None:
        self.params = params

    def run(self, context: Any) -> Outcome:
        params = self.params
        if params.ends == "gone":
            shutil.rmtree(context.directory)
        if params.ends == "changed prior":
            raise SolveError(f"{params.one}: is no prior")
        context.tracker.progress("reading", 1, 2)
        if params.ends == "failed" or (params.ends == "once" and not context.resume):
            raise SolveError("the first reason")
        files = [params.one, *(path for paths in params.many.values() for path in paths)]
        files += [] if params.prior is None else [params.prior.params.model_dump()["file"]]
        texts = [path.read_text() for path in files if path is not None and path.is_file()]
        return Outcome({"texts": texts, "horizon": context.world.spec.horizon})

    def check(self, world: object) -> Mapping[str, Any]:
        return {}


class Meddler:
    """An algorithm in whose factory a file is changed, as if somebody edited it just then."""

    def __new__(cls, params: AlgorithmParams) -> Any:
        if params.one is not None and "inputs" not in params.one.parts:
            params.one.write_text("edited just now")
        return Reader(params)


def prior(params: PriorParams, world: object) -> None:
    """Never built."""


@pytest.fixture
def registry() -> Registry:
    provider = Provider("dist-a", "1.5", "a")
    rows: list[tuple[Any, str, Any, str]] = [
        ("algorithm", "reader", AlgorithmParams, "Reader"),
        ("algorithm", "meddler", AlgorithmParams, "Meddler"),
        ("world_model", "file", WorldParams, "World"),
        ("human_prior", "file", PriorParams, "prior"),
    ]
    components = [
        Component(kind=kind, name=name, params=params, target=f"{__name__}:{target}", api=1)
        for kind, name, params, target in rows
    ]
    return Registry([Offer(provider, component) for component in components], [provider])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of everything that configs name."""
    home = tmp_path / "home"
    for name, text in {
        "w.txt": "3", "a/p.txt": "A", "b/p.txt": "B", "c.txt": "C",
        "prior.txt": "P", "out.txt": "never copied", "folder/x/y.txt": "Y",
    }.items():  # fmt: skip
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return home


def make(home: Path, registry: Registry, *overrides: str, **params: Any) -> RunConfig:
    data: dict[str, Any] = {
        "world_model": {"name": "file", "params": {"file": "w.txt"}},
        "algorithm": {"name": "reader", "params": params},
        "trackers": [],
        "runs": "runs",
    }
    (home / "config.yaml").write_text(dump_yaml(data))
    return load_config(home / "config.yaml", list(overrides), registry)


ALL: dict[str, Any] = {
    "one": "c.txt",
    "many": {"here": ["a/p.txt", "b/p.txt"], "there": ["folder"]},
    "prior": {"name": "file", "params": {"file": "prior.txt"}},
    "out": "out.txt",
}


def files_in(run: Path) -> dict[str, str]:
    inputs = run / "inputs"
    return {
        path.relative_to(inputs).as_posix(): path.read_text()
        for path in inputs.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_every_path_that_params_declare_is_copied_and_the_config_points_there(
    home: Path, registry: Registry
) -> None:
    config = make(home, registry, **ALL)
    done = Experiment.start(config, registry=registry)
    assert done.result.summary() == {"texts": ["C", "A", "B", "P"], "horizon": 3}
    copies = files_in(done.directory)
    assert sorted(copies.values()) == ["3", "A", "B", "C", "P", "Y"]
    assert copies["w.txt"] == "3"
    manifest = read(done.directory / "inputs" / "manifest.json")["body"]
    assert {name: entry["sha256"] for name, entry in manifest["files"].items()} == {
        name: hashlib.sha256(text.encode()).hexdigest() for name, text in copies.items()
    }
    assert manifest["files"]["c.txt"]["original"] == str(home / "c.txt")
    data = read(done.directory / "config.json")["config"]
    assert data["world_model"]["params"]["file"] == "inputs/w.txt"
    assert data["algorithm"]["params"]["one"] == "inputs/c.txt"
    assert data["algorithm"]["params"]["out"] == str(home / "out.txt")
    assert data["runs"] == ".."


def test_a_run_on_another_machine_runs_again_resumes_and_is_read(
    home: Path, registry: Registry, tmp_path: Path
) -> None:
    config = make(home, registry, ends="once", **ALL)
    with pytest.raises(SolveError):
        Experiment.start(config, registry=registry)
    (directory,) = (home / "runs").iterdir()
    place = tmp_path / "elsewhere" / "run"
    place.parent.mkdir()
    shutil.move(directory, place)
    shutil.rmtree(home)
    expected = {"texts": ["C", "A", "B", "P"], "horizon": 3}
    assert Experiment.resume(place, registry=registry).result.summary() == expected
    assert Experiment.load(place, registry=registry).context.world is not None
    again = Experiment.start(
        load_config(place / "config.yaml", ["algorithm.params.ends=well"], registry),
        registry=registry,
    )
    assert again.directory.parent == place.parent
    assert again.result.summary() == expected
    assert files_in(again.directory) == files_in(place)


def test_what_a_run_reads_are_its_copies(home: Path, registry: Registry) -> None:
    config = make(home, registry, ends="changed prior", one="c.txt")
    with pytest.raises(SolveError, match=r"inputs/c\.txt:") as caught:
        Experiment.start(config, registry=registry)
    assert f"{home / 'c.txt'}" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("name", ["w.txt", "c.txt", "folder/x/y.txt"])
def test_a_copy_that_was_changed_is_refused_by_whatever_reads_the_run(
    home: Path, registry: Registry, name: str
) -> None:
    with pytest.raises(SolveError):
        Experiment.start(make(home, registry, **{**ALL, "ends": "failed"}), registry=registry)
    (run,) = (home / "runs").iterdir()
    before = (run / "status.json").read_bytes()
    (run / "inputs" / name).write_text("9")
    for use in (
        lambda: Experiment.load(run, registry=registry),
        lambda: Experiment.resume(run, registry=registry),
        lambda: Experiment.start(load_config(run / "config.yaml", [], registry), registry=registry),
    ):
        with pytest.raises(StorageError, match=rf"inputs/{name}: .* sha256"):
            use()
    assert (run / "status.json").read_bytes() == before
    (run / "inputs" / name).unlink()
    with pytest.raises(EmpoError, match=name):
        Experiment.load(run, registry=registry)


def test_nothing_in_a_run_leads_out_of_it(home: Path, registry: Registry) -> None:
    run = Experiment.start(make(home, registry, one="c.txt"), registry=registry).directory
    config = run / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("inputs/c.txt", str(home / "prior.txt")))
    with pytest.raises(ConfigError, match=r"prior\.txt"):
        Experiment.load(run, registry=registry)
    config.write_text(text)
    manifest = run / "inputs" / "manifest.json"
    outer = read(manifest)
    outer["body"]["files"]["../../c.txt"] = outer["body"]["files"]["c.txt"]
    body = json.dumps(outer["body"], sort_keys=True, separators=(",", ":")).encode()
    manifest.write_text(json.dumps({**outer, "sha256": hashlib.sha256(body).hexdigest()}))
    with pytest.raises(StorageError, match="leads out"):
        Experiment.load(run, registry=registry)
    manifest.write_text("{}")
    with pytest.raises(StorageError, match=r"manifest\.json:"):
        Experiment.load(run, registry=registry)
    manifest.unlink()
    with pytest.raises(StorageError, match=r"manifest\.json:"):
        Experiment.load(run, registry=registry)


def test_a_file_that_is_changed_while_a_run_begins_is_refused(
    home: Path, registry: Registry
) -> None:
    config = make(home, registry, "algorithm.name=meddler", one="c.txt")
    with pytest.raises(ConfigError, match=r"c\.txt: .*changed"):
        Experiment.start(config, registry=registry)
    assert not any((home / "runs").iterdir())


def test_a_run_that_another_one_reads_is_copied_without_what_people_read(
    home: Path, registry: Registry
) -> None:
    first = Experiment.start(make(home, registry, one="c.txt"), registry=registry).directory
    second = Experiment.start(make(home, registry, one=str(first)), registry=registry).directory
    copies = files_in(second)
    assert copies[f"{first.name}/inputs/c.txt"] == "C"
    assert f"{first.name}/results/summary.json" in copies
    assert f"{first.name}/log.txt" not in copies
    shutil.rmtree(first)
    (home / "c.txt").unlink()
    inner = Experiment.load(second / "inputs" / first.name, registry=registry)
    assert inner.config.algorithm.params.model_dump()["one"].read_text() == "C"


def test_a_folder_of_very_many_files_is_refused(
    home: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("empo_core.runs.inputs.MOST_FILES", 2)
    for number in range(3):
        (home / "folder" / str(number)).touch()
    with pytest.raises(ConfigError, match="more than 2 files"):
        Experiment.start(make(home, registry, one="folder"), registry=registry)
    assert not (home / "runs").exists()


def test_the_size_of_large_copies_is_said(
    home: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr("empo_core.runs.inputs.LARGE", 1)
    Experiment.start(make(home, registry, one="c.txt"), registry=registry)
    assert "copies of what the config names" in caplog.text


def test_a_world_whose_code_was_changed_is_another_one(
    home: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SolveError):
        Experiment.start(make(home, registry, ends="once"), registry=registry)
    (run,) = (home / "runs").iterdir()
    Experiment.load(run, registry=registry)
    monkeypatch.setattr(World, "chance", 0.9)  # Not at the start, but one step away.
    for use in (
        lambda: Experiment.load(run, registry=registry),
        lambda: Experiment.resume(run, registry=registry),
    ):
        with pytest.raises(ConfigError, match="another world"):
            use()
    assert read(run / "status.json")["error"] == "SolveError: the first reason"
    monkeypatch.undo()
    Experiment.resume(run, registry=registry)


def test_a_digest_is_of_content_and_not_of_what_a_world_is_built_from(home: Path) -> None:
    params = WorldParams(file=home / "w.txt")
    digest = world_digest(World(params))
    (home / "w.txt").write_text(" 3\n")
    assert world_digest(World(params)) == digest
    (home / "w.txt").write_text("4")
    assert world_digest(World(params)) != digest


def test_a_refused_resume_leaves_status_and_reason_as_they_were(
    home: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SolveError):
        Experiment.start(make(home, registry, ends="failed"), registry=registry)
    (run,) = (home / "runs").iterdir()
    before = (run / "status.json").read_bytes()
    assert read(run / "status.json")["error"] == "SolveError: the first reason"

    def refuse(*_: object, **__: object) -> None:
        raise SolveError("not like this")

    without = Registry([o for o in registry.offers if o.component.kind != "algorithm"], [])
    with pytest.raises(EmpoError):  # Its plugin is not installed.
        Experiment.resume(run, registry=without)
    assert (run / "status.json").read_bytes() == before
    for cls, name in ((World, "__init__"), (Reader, "__init__"), (Reader, "run")):
        with monkeypatch.context() as patched:
            patched.setattr(cls, name, refuse)
            with pytest.raises(SolveError, match="like this"):
                Experiment.resume(run, registry=registry)
        assert (run / "status.json").read_bytes() == before, (cls, name)
    with pytest.raises(SolveError, match="first reason"):
        Experiment.resume(run, registry=registry)


@pytest.mark.parametrize("damage", ["", "{", "[]", '"running"', "\x00\x00"])
def test_a_damaged_status_refuses_nothing(
    home: Path, registry: Registry, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SolveError):
        Experiment.start(make(home, registry, ends="once"), registry=registry)
    (run,) = (home / "runs").iterdir()
    (run / "status.json").write_text(damage)
    Experiment.resume(run, registry=registry)
    assert "status.json: is damaged" in caplog.text
    status = read(run / "status.json")
    assert status["status"] == "finished"
    assert status["task"] == "w"


def test_other_versions_are_told_and_both_are_recorded(
    home: Path, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SolveError):
        Experiment.start(make(home, registry, ends="failed"), registry=registry)
    (run,) = (home / "runs").iterdir()
    here = read(run / "env.json")
    with pytest.raises(SolveError):
        Experiment.resume(run, registry=registry)
    assert read(run / "env.json") == here
    assert "other versions" not in caplog.text
    changed = json.loads(json.dumps(here))
    changed["versions"]["torch"] = "1.0"
    changed["versions"]["numba"] = "0.1"
    changed["plugins"] = {"dist-a": "0.9", "dist-b": "1"}
    (run / "env.json").write_text(json.dumps(changed))
    for _ in range(2):  # The second time they are what they were.
        with pytest.raises(SolveError):
            Experiment.resume(run, registry=registry)
        record = read(run / "env.json")
        assert record["versions"]["torch"] == "1.0"
        (attempt,) = record["resumed"]
        assert attempt["versions"] == here["versions"]
        assert attempt["plugins"] == here["plugins"]
    told = [each.getMessage() for each in caplog.records if "other versions" in each.getMessage()]
    (line,) = told
    assert f"torch 1.0, now {here['versions']['torch']}" in line
    assert "numba 0.1" in line
    assert "dist-a 0.9, now 1.5" in line
    assert "dist-b 1, now none" in line


def test_a_launch_with_a_name_that_was_used_before_is_a_new_run(
    home: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "100")
    config = make(home, registry, ends="failed")
    for count in (1, 1, 2):  # Torchrun starts the processes again; then somebody uses the name.
        if count == 2:
            (run,) = (home / "runs").iterdir()
            status = {**read(run / "status.json"), "updated": "2020-01-01T00:00:00+00:00"}
            (run / "status.json").write_text(json.dumps(status))
        with pytest.raises(SolveError):
            Experiment.start(config, registry=registry)
        assert len(list((home / "runs").iterdir())) == count


def test_a_damaged_neighbour_stops_no_launch(
    home: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "100")
    for name, text in {"a": "", "b": "{", "c": "[]"}.items():
        (home / "runs" / name).mkdir(parents=True)
        (home / "runs" / name / "status.json").write_text(text)
    (home / "runs" / "file").touch()
    now = "2999-01-01T00:00:00+00:00"
    status = {"status": "failed", "launch": "100", "updated": now}
    (home / "runs" / "d").mkdir()
    (home / "runs" / "d" / "status.json").write_text(json.dumps(status))
    Experiment.start(make(home, registry), registry=registry)
    assert len(list((home / "runs").iterdir())) == 6


def test_a_run_whose_folder_is_gone_ends_in_one_sentence(home: Path, registry: Registry) -> None:
    with pytest.raises(StorageError, match="removed"):
        Experiment.start(make(home, registry, ends="gone"), registry=registry)
    assert not any((home / "runs").iterdir())


def test_copies_reach_processes_that_do_not_see_the_run(
    home: Path, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[bytes] = []

    def run(self: Reader, context: Any) -> Outcome:
        seen.append(pickle.dumps((self.params, context.world_model)))
        params, reference = pickle.loads(seen[-1])
        assert params.one == context.directory / "inputs" / "c.txt"
        assert reference.params.file.parent == context.directory / "inputs"
        return Outcome({})

    monkeypatch.setattr(Reader, "run", run)
    directory = Experiment.start(make(home, registry, one="c.txt"), registry=registry).directory
    (directory / "inputs" / "w.txt").write_text("9")
    (directory / "inputs" / "c.txt").unlink()
    params, reference = pickle.loads(seen[-1])
    assert (params.one.read_text(), params.one.name) == ("C", "c.txt")
    assert reference.params.file.read_text() == "3"
    assert pickle.loads(pickle.dumps(params)).one == params.one
