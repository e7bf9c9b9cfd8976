"""Files of a run directory after every kind of ending, and resuming from them."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

import empo_core
from empo_core import Component, Config, ConfigPath
from empo_core.config import RunConfig
from empo_core.config.files import load_config, parse_yaml
from empo_core.config.yaml import MAX_NUMBER, dump_yaml, read_yaml
from empo_core.errors import ConfigError, SolveError, StorageError
from empo_core.experiment import Experiment, RunInterrupted, run
from empo_core.plugins.registry import Offer, Provider, Registry, RunHook
from empo_core.protocols import Algorithm, Tracker
from empo_core.runs.atomic import write_file
from empo_core.runs.directory import RunDirectory
from empo_core.types import Histogram
from empo_testing.worlds import TinyWorld

CALLS: list[str] = []


ENDING_SIGNALS = {"terminated": signal.SIGTERM, "hung up": signal.SIGHUP}
"""Signals that a run sends itself, by what its params call that."""


class FakeParams(Config):
    """Parameters of the fake algorithm, such as its kind of ending."""

    ends: str = "well"
    factor: float = Field(2.0, gt=0)


class FakeWorldParams(Config):
    """A world that is nothing but its file."""

    file: ConfigPath


class FakeWorld(TinyWorld):
    def __init__(self, params: FakeWorldParams) -> None:
        super().__init__()
        self.params = params


class FakeResult:
    def __init__(self, numbers: list[float], resumed: bool) -> None:
        self.numbers, self.resumed = numbers, resumed

    def summary(self) -> dict[str, Any]:
        return {"root": {"V_r": self.numbers[0]}, "resumed": self.resumed}

    def report(self) -> str:
        return "all is well"

    def save(self, directory: Path) -> None:
        (directory / "numbers.txt").write_text(str(self.numbers))


class FakeAlgorithm(Algorithm):
    def __init__(self, params: FakeParams) -> None:
        self.params = params

    def run(self, context: Any) -> FakeResult:
        numbers = [
            self.params.factor * float(np.random.rand()),
            float(torch.rand(())),
        ]
        context.tracker.log(0, {"exact/v_r": numbers[0]})
        context.tracker.progress("solve", 1, 2)
        logging.getLogger("empo_core").info("half way")
        if self.params.ends == "interrupted" and not context.resume:
            raise KeyboardInterrupt
        if self.params.ends in ENDING_SIGNALS and not context.resume:
            os.kill(os.getpid(), ENDING_SIGNALS[self.params.ends])
            time.sleep(10)
        if self.params.ends == "failed":
            raise SolveError("the world has a cycle")
        return FakeResult(numbers, context.resume)

    def check(self, world: object) -> Mapping[str, Any]:
        return {}


class FakeTracker(Tracker):
    def __init__(self, params: Config | None = None) -> None:
        self.params = params

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        assert (directory / "config.yaml").is_file()
        CALLS.append(f"start {config['seed']}")

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        CALLS.append(f"log {step} {sorted(metrics)}")

    def progress(self, task: str, done: float, total: float) -> None:
        CALLS.append(f"progress {task} {done} {total}")

    def finish(self, status: str) -> None:
        CALLS.append(f"finish {status}")


class BrokenTracker(FakeTracker):
    def finish(self, status: str) -> None:
        raise OSError("disk full")


@pytest.fixture
def registry() -> Registry:
    CALLS.clear()
    provider = Provider("dist-a", "1.5", "a")
    rows: list[tuple[Any, str, Any, str]] = [
        ("algorithm", "fake", FakeParams, "FakeAlgorithm"),
        ("world_model", "grid", FakeWorldParams, "FakeWorld"),
        ("tracker", "fake", FakeParams, "FakeTracker"),
        ("tracker", "broken", Config, "BrokenTracker"),
    ]
    components = [
        Component(kind=kind, name=name, params=params, target=f"{__name__}:{target}", api=1)
        for kind, name, params, target in rows
    ]
    return Registry([Offer(provider, component) for component in components], [provider])


@pytest.fixture
def config(tmp_path: Path, registry: Registry) -> RunConfig:
    (tmp_path / "a world.yaml").touch()
    return make(tmp_path, registry)


def make(tmp_path: Path, registry: Registry, *overrides: str) -> RunConfig:
    path = tmp_path / "config.yaml"
    path.write_text(
        "world_model: {name: grid, params: {file: a world.yaml}}\n"
        "algorithm: fake\ntrackers: [fake]\nseed: 7\nruns: runs\n"
    )
    return load_config(path, list(overrides), registry)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_plugins_are_called_with_a_finished_run_and_cannot_fail_it(
    config: RunConfig, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    provider, seen = registry.providers[0], []

    def look(run: Experiment) -> None:
        results = run.directory / "results"
        seen.append((sorted(path.name for path in results.iterdir()), run.result.summary()))

    def fail(run: Experiment) -> None:
        raise SystemExit("no paper")

    hooks = [RunHook(provider, call) for call in (fail, look)]
    done = Experiment.start(config, registry=Registry(registry.offers, [provider], (), hooks))
    assert seen == [(["numbers.txt", "summary.json"], done.result.summary())]
    assert read(done.directory / "status.json")["status"] == "finished"
    (warning,) = read(done.directory / "results" / "summary.json")["warnings"]
    assert warning.startswith("empo_run_finished of dist-a failed (SystemExit: no paper)")
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        warning
    ]
    seen.clear()
    failing = make(config.runs.parent, registry, "algorithm.params.ends=failed")
    with pytest.raises(SolveError):
        Experiment.start(failing, registry=Registry(registry.offers, [provider], (), hooks))
    assert not seen

    def stop(run: Experiment) -> None:
        raise KeyboardInterrupt

    stopping = Registry(registry.offers, [provider], (), [RunHook(provider, stop)])
    with pytest.raises(RunInterrupted) as stopped:
        Experiment.start(config, registry=stopping)
    looking = Registry(registry.offers, [provider], (), [RunHook(provider, look)])
    again = Experiment.resume(stopped.value.directory, registry=looking)
    assert read(again.directory / "status.json")["status"] == "finished"
    assert len(seen) == 1


def test_a_run_leaves_everything_needed_to_understand_it(
    config: RunConfig, registry: Registry
) -> None:
    done = Experiment.start(config, registry=registry)
    day = time.strftime("%Y-%m-%d")
    assert done.directory == config.runs / f"{day}-a_world-fake-7"
    assert read(done.directory / "status.json")["status"] == "finished"
    quick = read(done.directory / "config.json")
    assert quick["config"] == read_yaml(done.directory / "config.yaml").data
    environment = read(done.directory / "env.json")
    assert environment["seed"] == 7
    assert environment["plugins"] == {"dist-a": "1.5"}
    assert environment["versions"].keys() == {"empo-core", "torch", "numpy", "numba", "llvmlite"}
    assert (done.directory / "results" / "numbers.txt").read_text()
    log = (done.directory / "log.txt").read_text()
    assert [word in log for word in ("started", "half way", "finished")] == [True] * 3
    assert CALLS == [
        "start 7",
        "log 0 ['exact/v_r']",
        "progress solve 1 2",
        "progress saving results 0 1",
        "progress saving results 1 1",
        "finish finished",
    ]
    summary = done.summary()
    assert summary["algorithm"] == "fake"
    assert summary["world"] == "a_world"
    assert summary["run_dir"] == str(done.directory)
    assert summary["peak_memory_bytes"] > 10**6


def test_the_resolved_config_runs_again_to_the_same_result(
    config: RunConfig, registry: Registry
) -> None:
    first = Experiment.start(config, registry=registry)
    again = load_config(first.directory / "config.yaml", registry=registry)
    assert again.algorithm == config.algorithm
    assert again.world_model is not None
    copy = again.world_model.params.model_dump()["file"]
    assert copy == first.directory / "inputs" / "a world.yaml"
    second = Experiment.start(again, registry=registry)
    assert second.directory == first.directory.with_name(first.directory.name + "-2")
    assert second.result.summary() == first.result.summary()


def test_runs_that_start_together_share_no_directory(config: RunConfig, registry: Registry) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: RunDirectory.create(config, registry), range(16)))
    assert len({directory.path for directory in made}) == 16
    for directory in made:
        directory.release()


def test_a_failed_run_says_why_and_may_be_resumed(tmp_path: Path, registry: Registry) -> None:
    config = make(tmp_path, registry, "algorithm.params.ends=failed")
    with pytest.raises(SolveError, match="cycle"):
        run(config, registry=registry)
    (directory,) = config.runs.iterdir()
    status = read(directory / "status.json")
    assert status["status"] == "failed"
    assert status["error"] == "SolveError: the world has a cycle"
    assert "Traceback" in (directory / "log.txt").read_text()
    assert CALLS[-1] == "finish failed"
    with pytest.raises(SolveError):
        Experiment.resume(directory, registry=registry)


@pytest.mark.usefixtures("heeds_hangups")
@pytest.mark.parametrize("how", ["interrupted", "terminated", "hung up"])
def test_an_interrupted_run_goes_on_in_its_own_directory(
    tmp_path: Path, registry: Registry, how: str
) -> None:
    config = make(tmp_path, registry, f"algorithm.params.ends={how}")
    handlers = [signal.getsignal(number) for number in ENDING_SIGNALS.values()]
    with pytest.raises(RunInterrupted) as caught:
        run(config, registry=registry)
    assert [signal.getsignal(number) for number in ENDING_SIGNALS.values()] == handlers
    directory = caught.value.directory
    assert read(directory / "status.json")["status"] == "interrupted"
    assert CALLS[-1] == "finish interrupted"
    done = Experiment.resume(directory, registry=registry)
    assert done.directory == directory
    assert done.summary()["resumed"] is True
    assert read(directory / "status.json")["status"] == "finished"
    assert list(config.runs.iterdir()) == [directory]


def test_of_many_processes_rank_0_alone_keeps_records(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "own"))
    config = make(tmp_path, registry, "algorithm.params.ends=interrupted")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(RunInterrupted) as caught:
        run(config, registry=registry, watchers=[FakeTracker()])
    held, calls = caught.value.directory, len(CALLS)
    before = {path: path.stat().st_mtime_ns for path in held.rglob("*")}
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(config, registry=registry, watchers=[FakeTracker()])
    assert not isinstance(stopped.value, RunInterrupted)  # There is nothing to go on with.
    assert Experiment.resume(held, registry=registry).summary()["resumed"] is True
    with pytest.raises(ConfigError, match="run directory"):
        Experiment.resume(tmp_path / "nowhere", registry=registry)
    assert len(CALLS) == calls
    assert list(config.runs.iterdir()) == [held]
    assert {path: path.stat().st_mtime_ns for path in held.rglob("*")} == before
    assert not any((tmp_path / "own").iterdir())


def test_processes_of_one_launch_go_on_with_its_unfinished_run(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(tmp_path, registry, "algorithm.params.ends=failed")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "mine")
    for _ in range(2):  # The second time on another machine, as far as the status knows.
        with pytest.raises(SolveError, match="cycle"):
            run(config, registry=registry)
        (directory,) = config.runs.iterdir()
        status = read(directory / "status.json")
        assert (status["status"], status["launch"]) == ("failed", "mine")
        (directory / "status.json").write_text(
            json.dumps(status | {"status": "running", "host": "elsewhere"})
        )
    other = make(tmp_path, registry)
    for name in ("mine", "another", "none"):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
        Experiment.start(other, registry=registry)  # Of another config, or launch, or finished.
    assert len(list(config.runs.iterdir())) == 4


def test_a_run_gets_the_place_that_it_is_given_unless_that_exists(
    config: RunConfig, registry: Registry, tmp_path: Path
) -> None:
    place = tmp_path / "some/where"
    assert Experiment.start(config, registry=registry, place=place).directory == place
    assert not config.runs.exists()
    with pytest.raises(StorageError, match=r"where: .*made: File exists"):
        Experiment.start(config, registry=registry, place=place)


def test_a_finished_run_is_not_resumed(config: RunConfig, registry: Registry) -> None:
    done = Experiment.start(config, registry=registry)
    with pytest.raises(ConfigError, match="has finished"):
        Experiment.resume(done.directory, registry=registry)


HOLD = """
import sys, time
from pathlib import Path
from empo_core.runs.directory import RunDirectory
directory = RunDirectory(Path(sys.argv[1]))
assert directory._hold()
directory.mark("running")
print("held", flush=True)
time.sleep(60)
"""


def test_a_living_run_is_not_resumed_and_a_killed_one_is(
    tmp_path: Path, registry: Registry
) -> None:
    config = make(tmp_path, registry, "algorithm.params.ends=interrupted")
    with pytest.raises(RunInterrupted) as caught:
        run(config, registry=registry)
    directory = caught.value.directory
    command = [sys.executable, "-c", HOLD, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            reason = rf"\(process {process.pid} on "
            with pytest.raises(ConfigError, match=reason):
                Experiment.resume(directory, registry=registry)
        finally:
            process.kill()
    assert read(directory / "status.json")["status"] == "running"
    assert Experiment.resume(directory, registry=registry).summary()["resumed"] is True


def test_a_run_of_another_machine_is_not_resumed_from_here(
    tmp_path: Path, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    config = make(tmp_path, registry, "algorithm.params.ends=failed")
    with pytest.raises(SolveError):
        run(config, registry=registry)
    (directory,) = config.runs.iterdir()
    status = {"status": "running", "pid": 1, "host": socket.gethostname() + "-other"}
    (directory / "status.json").write_text(json.dumps(status))
    with pytest.raises(ConfigError, match="seen"):
        Experiment.resume(directory, registry=registry)
    (directory / "status.json").write_text("{")
    with pytest.raises(SolveError, match="cycle"):  # It goes on, with a warning.
        Experiment.resume(directory, registry=registry)
    assert "status.json: is damaged" in caplog.text
    with pytest.raises(ConfigError, match="run directory"):
        Experiment.resume(tmp_path / "nowhere", registry=registry)


def test_a_config_that_cannot_be_built_leaves_no_directory(
    tmp_path: Path, registry: Registry
) -> None:
    bad = Component(kind="algorithm", name="bad", params=FakeParams, target="no.module:X", api=1)
    provider = registry.providers[0]
    wider = Registry([*registry.offers, Offer(provider, bad)], [provider])
    config = make(tmp_path, wider, "algorithm=bad")
    with pytest.raises(Exception, match=r"'no\.module:X'"):
        run(config, registry=wider)
    assert not config.runs.exists()


def test_a_run_takes_a_dict_a_path_or_the_name_of_an_algorithm(
    tmp_path: Path, registry: Registry
) -> None:
    runs = str(tmp_path / "runs")
    whole = {"algorithm": {"name": "fake", "params": {"factor": 3.0}}, "trackers": [], "runs": runs}
    (tmp_path / "run.json").write_text(json.dumps(whole))
    run(whole, registry=registry)
    run(tmp_path / "run.json", registry=registry)
    run({**whole, "algorithm": "fake"}, ["algorithm.params.factor=3.0"], registry=registry)
    run("fake", factor=3.0, trackers=[], runs=runs, registry=registry)
    assert len({(path / "config.yaml").read_text() for path in Path(runs).iterdir()}) == 1
    assert len([*Path(runs).iterdir()]) == 4
    with pytest.raises(ConfigError, match=r"^config: algorithm\.params\.factr: .*'factor'"):
        run({"algorithm": {"name": "fake", "params": {"factr": 3.0}}}, registry=registry)
    with pytest.raises(ConfigError, match=r"^config: algorithm\.params\.factr: .*'factor'"):
        run("fake", factr=3.0, registry=registry)
    with pytest.raises(ConfigError, match=r"^factor: "):
        run(whole, factor=2.0, registry=registry)
    with pytest.raises(ConfigError, match=r"^overrides: "):
        run(load_config(whole, registry=registry), ["seed=1"], registry=registry)


def test_completion_shows_the_public_names() -> None:
    assert {"run", "load_config", "open_run"} <= set(dir(empo_core))
    assert set(dir(empo_core)) == {*empo_core.__all__, "__version__"}


def test_runs_that_cannot_be_written_are_one_clear_error(
    tmp_path: Path, registry: Registry
) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "file/deeper"):
        config = make(tmp_path, registry, f"runs={tmp_path / place}")
        with pytest.raises(StorageError, match="runs=FOLDER"):
            run(config, registry=registry)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is a device of Linux")
def test_a_log_that_cannot_be_written_costs_one_warning(
    config: RunConfig,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = Path("/dev/full").open("ab")  # noqa: SIM115
    monkeypatch.setattr("empo_core.runs.directory.open_append", lambda path: full)
    done = Experiment.start(config, registry=registry)
    assert read(done.directory / "status.json")["status"] == "finished"
    assert [r.getMessage().partition(":")[0] for r in caplog.records].count("/dev/full") == 1
    assert "Traceback" not in capsys.readouterr().err


def test_where_the_end_of_a_run_cannot_be_recorded_its_cause_is_the_error(
    tmp_path: Path,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mark = RunDirectory.mark

    def refuse(self: RunDirectory, status: Any, error: str | None = None) -> None:
        if status != "running":
            raise StorageError("status.json: no space")
        mark(self, status, error)

    monkeypatch.setattr(RunDirectory, "mark", refuse)
    with pytest.raises(SolveError):
        run(make(tmp_path, registry, "algorithm.params.ends=failed"), registry=registry)
    assert "status.json: no space" in caplog.text
    with pytest.raises(StorageError):
        run(make(tmp_path, registry), registry=registry)


def test_a_tracker_that_cannot_finish_costs_a_warning(
    tmp_path: Path, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    config = make(tmp_path, registry, "trackers=[fake, broken, {name: fake, params: {ends: so}}]")
    done = Experiment.start(config, registry=registry)
    assert CALLS.count("finish finished") == 2
    assert read(done.directory / "status.json")["status"] == "finished"
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert ["BrokenTracker" in record.message for record in warnings] == [True]


@settings(max_examples=200)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-MAX_NUMBER, MAX_NUMBER)
        | st.floats(allow_nan=False)
        | st.text()
        | st.from_regex(r"[-+]?[0-9._eExo]{1,8}", fullmatch=True),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3)
        ),
        max_leaves=12,
    )
)
def test_what_is_written_as_yaml_is_read_back(data: Any) -> None:
    assert parse_yaml(dump_yaml(data), name="x").data == data


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match=r"pipe: "):
        write_file(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()
