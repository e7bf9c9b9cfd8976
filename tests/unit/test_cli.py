"""The command line, on a plugin that is installed as plugins are."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from typer.testing import CliRunner, Result

from empo_core import Config, __version__
from empo_core.cli.app import app
from empo_core.config import TrackerRef, installed
from empo_core.config.schema import described

PLUGIN = '''
from pathlib import Path
from typing import ClassVar, Literal
from pydantic import Field
from empo_core import Component, Config, ConfigPath, hookimpl
from empo_core.config import TrackerRef

class CountParams(Config):
    library: ClassVar = Path(__file__).parent / "worlds"
    file: ConfigPath = Field(description="World file.")
    max_steps: int = Field(5, ge=1, description="Horizon.")

class SolveParams(Config):
    """Parameters of the fake solver."""

    sizes_worlds: ClassVar = True

    beta: float = Field(1.0, gt=0, description="How sharp.")
    mode: Literal["well", "hang", "fault", "bug", "needs-world"] = "well"
    count_unrolled: bool = False
    helper: TrackerRef | None = None

@hookimpl
def empo_components():
    yield Component(kind="world_model", name="count", params=CountParams,
                    target="fake_parts:load", api=1)
    yield Component(kind="algorithm", name="solve", params=SolveParams,
                    target="fake_parts:Solve", api=1, summary="Solves [b]it[/b].")
    yield Component(kind="algorithm", name="elsewhere", params=SolveParams,
                    target="no_such_module:Solve", api=1)
'''

PARTS = '''
import os, time
import torch
from empo_core.config.files import read_yaml, validate_document
from empo_core.errors import ConfigError, SolveError
from empo_core.protocols import Algorithm, WorldModel
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec
from pydantic import Field
from empo_core import Config

class CountFile(Config):
    title: str
    limit: int = Field(ge=1)

class CountWorld(WorldModel):
    """Counts up to a limit: action 0 stays, action 1 counts."""
    def __init__(self, file, max_steps):
        self.limit = file.limit
        self.spec = WorldSpec(
            name=file.title,
            agents=(AgentSpec(name="hal", role="human", actions=("stay", "count")),),
            goals=(Goal(human=0, name="two", weight=1.0),),
            state_words=1, state_dtype=torch.int16, horizon=max_steps)
    def initial_state(self):
        return torch.zeros(1, dtype=torch.int16)
    def available(self, states): ...
    def achieved(self, states):
        return states == 2
    def step(self, states, actions, generator): ...
    def describe(self, state): ...
    def transitions(self, states, actions=None):
        assert actions is None
        both = torch.stack([states, (states + 1).clamp(max=self.limit)], 1).reshape(-1, 1)
        n = len(both)
        return Successors(torch.arange(n + 1), both, torch.ones(n, dtype=torch.float64))

def load(params):
    document = read_yaml(params.file)
    return CountWorld(validate_document(CountFile, document), params.max_steps)

class SolveResult:
    def summary(self):
        return {"root": {"V_r": torch.tensor(-1.5), "U_r": float("-inf")}, "graph": {"states": 3}}
    def report(self):
        return "V_r is -1.5"
    def save(self, directory):
        (directory / "x.txt").write_text("x")

class Solve(Algorithm):
    def __init__(self, params):
        self.params = params
    def run(self, context):
        print("noise of a plugin")
        if self.params.mode == "needs-world" and context.world is None:
            raise ConfigError("solve needs a world; add world_model: NAME to the config")
        if self.params.mode == "fault":
            raise SolveError("the world has a cycle")
        if self.params.mode == "bug":
            raise ZeroDivisionError("1 / 0")
        context.tracker.progress("solving", 1, 2)
        if self.params.mode == "hang" and not context.resume:
            print("hanging", flush=True)
            time.sleep(60)
        context.tracker.progress("solving", 2, 2)
        return SolveResult()
    def check(self, world):
        return {"memory_bytes": 12345, "counts": self.params.count_unrolled}
'''


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder to be put on the path, with an installed plugin in it."""
    site = tmp_path / "site"
    info = site / "empo_fake-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: empo-fake\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[empo]\nempo-fake = fake_plugin\n")
    (site / "fake_plugin.py").write_text(PLUGIN)
    (site / "fake_parts.py").write_text(PARTS)
    (site / "worlds").mkdir()
    (site / "worlds" / "small.yaml").write_text("title: Small [red]world\nlimit: 2\n")
    (site / "worlds" / "wrong.yaml").write_text("title: Wrong\nlimit: 0\n")
    return site


@pytest.fixture
def cli(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Calls the command line in this process."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    installed.cache_clear()

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    yield call
    installed.cache_clear()
    for name in ("fake_plugin", "fake_parts"):
        sys.modules.pop(name, None)


def subprocess_environment(site: Path) -> dict[str, str]:
    paths = [str(site), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "200"}


def config(tmp_path: Path, mode: str = "well", world: str = "world_model: count/small\n") -> str:
    path = tmp_path / "run.yaml"
    path.write_text(f"{world}algorithm: {{name: solve, params: {{mode: {mode}}}}}\nruns: runs\n")
    return str(path)


# Running.


def test_run_prints_the_report_and_where_the_run_lies(cli: Any, tmp_path: Path) -> None:
    done = cli("run", config(tmp_path))
    assert done.exit_code == 0
    (directory,) = (tmp_path / "runs").iterdir()
    assert done.stdout.splitlines()[-2:] == ["V_r is -1.5", str(directory)]
    assert (directory / "results" / "x.txt").is_file()
    assert directory.name.endswith("-small-solve-0")


def test_run_json_is_one_object_and_nothing_else(cli: Any, tmp_path: Path) -> None:
    done = cli("run", config(tmp_path), "--json")
    summary = json.loads(done.stdout)
    assert summary["root"] == {"V_r": -1.5, "U_r": "-Infinity"}
    assert summary["algorithm"] == "solve"
    assert summary["world"] == "small"
    assert Path(summary["run_dir"]).is_dir()
    assert summary["peak_memory_bytes"] > 10**6
    assert "noise of a plugin" in done.stderr


def test_quiet_leaves_only_the_directory(cli: Any, tmp_path: Path) -> None:
    done = cli("run", config(tmp_path), "--quiet")
    (directory,) = (tmp_path / "runs").iterdir()
    assert done.stdout.splitlines() == [str(directory)]
    assert done.stderr == "noise of a plugin\n"


def test_overrides_reach_the_algorithm(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "bare.yaml").write_text("algorithm: solve\nruns: runs\n")
    overrides = ("algorithm.params.beta=1e-3", "algorithm.params.count_unrolled=true", "seed=5")
    done = cli("run", "bare.yaml", *overrides)
    assert done.exit_code == 0, done.stderr
    (directory,) = (tmp_path / "runs").iterdir()
    written = (directory / "config.yaml").read_text()
    assert "beta: 0.001" in written
    assert "count_unrolled: true" in written
    assert "seed: 5" in written
    again = cli("run", str(directory / "config.yaml"), "--json")
    assert json.loads(again.stdout)["run_dir"] == f"{directory}-2"


@pytest.mark.parametrize("world", ["site/worlds/small.yaml", "count/small"])
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_world_and_an_algorithm_are_as_good_as_a_config(
    cli: Any, command: str, world: str
) -> None:
    done = cli(command, world, "algorithm=solve")
    assert done.exit_code == 0, done.stderr
    assert "solve" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "none.yaml"], 2, r"none\.yaml:1:1: cannot be read: No such file"),
        (["run", "RUN", "seed=x"], 2, r"command line: seed: should be a valid integer \(got 'x'\)"),
        (["run"], 2, "Missing argument"),
        (["run", "RUN", "--jsn"], 2, "No such option"),
        (
            ["run", "RUN", "algorithm.params.mode=fault"],
            3,
            r"^the world has a cycle\nIts log: .*log\.txt$",
        ),
        (["run", "RUN", "algorithm.params.mode=bug"], 3, "^ZeroDivisionError: 1 / 0\n.*--debug"),
        (
            ["run", "RUN", "algorithm.params.mode=needs-world", "world_model=null"],
            2,
            "^command line: world_model: solve needs a world; add",
        ),
        (["run", "RUN", "algorithm=elsewhere"], 3, "could not be loaded from 'no_such_module:"),
        (["run", "RUN", "algorithm=solv"], 2, "Did you mean 'solve'"),
        (["run", "RUN", "world_model=count/smal"], 2, "did you mean 'small'"),
        (["run", "smal"], 2, "smal: there is no such file. Did you mean 'count/small'"),
        (["resume", "nowhere"], 2, "nowhere: does not exist"),
        (["check", "nothing/there"], 2, "nothing/there:1:1: cannot be read"),
        (["check", "count/large"], 2, "'count' has no file 'large'; it has small, wrong"),
        (["check", "site/worlds/wrong.yaml"], 2, r"wrong\.yaml:2:1: limit: should be greater"),
        (
            ["check", "site/worlds/small.yaml", "seed=1"],
            2,
            r"small\.yaml is a world \(count\), not a config; add algorithm=NAME",
        ),
        (["run", "count/small"], 2, r"is a world \(count\), not a config; add algorithm=NAME"),
        (["run", "site/worlds/wrong.yaml"], 2, r"wrong\.yaml:2:1: limit: should be greater"),
        (
            ["run", "RUN", "--seed=1"],
            2,
            "No such option: --seed. A change .* no dashes: seed=VALUE",
        ),
        (["check", "RUN", "--beta", "1"], 2, "No such option: --beta. .* no dashes: beta=VALUE"),
        (["describe", "algoritm", "solve"], 2, "algoritm: .*did you mean 'algorithm'"),
        (["describe", "algorithm", "solv"], 2, "Did you mean 'solve'"),
    ],
)
def test_a_users_mistake_is_a_message_and_a_promised_exit_code(
    cli: Any, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    path = config(tmp_path)
    done = cli(*(path if argument == "RUN" else argument for argument in arguments))
    assert done.exit_code == code
    assert re.search(message, done.stderr, re.DOTALL | re.MULTILINE), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("world_model:count/small\nalgorithm: solve\n", r"slip\.yaml:1:12: a blank is missing"),
        ("# All.\nalgorithm:solve\n", r"slip\.yaml:2:10: a blank is missing"),
        ("algorithm: {name: solve, params: {x: 1,000}}\n", r"slip\.yaml:1:40: .*, e\.g\. 1000"),
        ("algorithm: solve\nseed: 1,000\n", r"slip\.yaml:2:1: seed: .*did you mean '1000'"),
        ("algorithm: solve\ntrackers: [jsonl, jsonl]\n", r"slip\.yaml:2:1: trackers"),
        ("algorithm: solve\nruns: $NOWHERE/x\n", r"slip\.yaml:2:1: runs: has \$NOWHERE"),
        ("algorithm: solve\nworld_model: small\n", "Did you mean 'count/small'"),
        (b"\x89PNG\r\n\x1a\n", "looks like a PNG picture"),
    ],
)
def test_a_common_slip_is_named_where_it_is(
    cli: Any, tmp_path: Path, text: str | bytes, message: str
) -> None:
    (tmp_path / "slip.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    done = cli("run", "slip.yaml")
    assert done.exit_code == 2
    assert re.search(message, done.stderr), done.stderr


def test_paths_count_from_where_they_are_written(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "configs").mkdir()
    for runs, folder in (("", "configs/here"), ("there", "there"), ("$SCRATCH/x", "scratch/x")):
        (tmp_path / "configs" / "run.yaml").write_text("algorithm: solve\nruns: here\n")
        done = cli("run", "configs/run.yaml", "-q", *[f"runs={runs}"] * bool(runs))
        assert Path(done.stdout.strip()).parent == tmp_path / folder


def test_a_refusal_leaves_no_run_directory(cli: Any, tmp_path: Path) -> None:
    text = "algorithm: {name: solve, params: {mode: needs-world}}\nruns: runs\n"
    (tmp_path / "refused.yaml").write_text(text)
    done = cli("run", "refused.yaml")
    assert done.exit_code == 2
    line = "solve needs a world; add world_model: NAME to the config"
    assert done.stderr.splitlines()[-1] == f"refused.yaml:1:1: world_model: {line}"
    assert list((tmp_path / "runs").iterdir()) == []


def test_debug_shows_the_traceback(cli: Any, tmp_path: Path) -> None:
    done = cli("run", config(tmp_path, "bug"), "--debug")
    assert done.exit_code == 3
    assert "Traceback (most recent call last):" in done.stderr.splitlines()
    assert "ZeroDivisionError: 1 / 0" in done.stderr


def interrupted(
    site: Path, tmp_path: Path, number: signal.Signals, *, times: int = 1, gap_s: float = 0.0
) -> tuple[int, Path]:
    """Exit code and directory of a run that signals end in good order."""
    with subprocess.Popen(
        [sys.executable, "-m", "empo_core", "run", config(tmp_path, "hang")],
        env=subprocess_environment(site),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell may have told its background jobs to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stderr is not None
        assert any(line == "hanging\n" for line in process.stderr)
        for _ in range(times):
            process.send_signal(number)
            time.sleep(gap_s)
        _, errors = process.communicate(timeout=30)
    (directory,) = (tmp_path / "runs").iterdir()
    assert errors.splitlines()[-1] == f"interrupted; go on with: empo resume {directory}"
    assert "Traceback" not in errors
    assert json.loads((directory / "status.json").read_text())["status"] == "interrupted"
    return process.returncode, directory


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_an_interrupted_run_says_how_to_go_on(
    cli: Any, site: Path, tmp_path: Path, number: signal.Signals
) -> None:
    code, directory = interrupted(site, tmp_path, number)
    assert code == 130
    done = cli("resume", str(directory), "--json")
    assert json.loads(done.stdout)["run_dir"] == str(directory)
    assert cli("resume", str(directory)).exit_code == 2


@pytest.mark.parametrize(
    "gap_s",
    [pytest.param(gap_s, marks=[pytest.mark.slow] * (gap_s > 0)) for gap_s in (0, 0.02, 0.2)],
)
def test_three_quick_ctrl_c_end_a_run_in_as_good_order_as_one(
    site: Path, tmp_path: Path, gap_s: float
) -> None:
    code, _ = interrupted(site, tmp_path, signal.SIGINT, times=3, gap_s=gap_s)
    # A shell calls both 130; the last one may come when Python is at its own exit.
    assert code in (130, -signal.SIGINT)


# Looking.


def test_plugins_lists_what_works_and_why_the_rest_does_not(
    cli: Any, site: Path, tmp_path: Path
) -> None:
    for name, source in {"bad": "import no_such_thing", "twin": PLUGIN}.items():
        info = site / f"empo_{name}-2.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: empo-{name}\nVersion: 2.0\n")
        (info / "entry_points.txt").write_text(f"[empo]\nempo-{name} = {name}_plugin\n")
        (site / f"{name}_plugin.py").write_text(source)
    text = cli("plugins").stdout
    assert re.search(r"empo-fake +1\.5 +\d+ ms +algorithm elsewhere", text)
    assert "Solves [b]it[/b]." in text
    assert re.search(r"empo-bad +2\.0 +\d+ ms +not usable: .*No module named 'no_such_thing'", text)
    assert "name clash: algorithm 'solve' is provided by both empo-fake and empo-twin" in text
    listed = json.loads(cli("plugins", "--json").stdout)
    by_name = {plugin["distribution"]: plugin for plugin in listed["plugins"]}
    assert by_name["empo-fake"]["version"] == "1.5"
    assert {"kind": "algorithm", "name": "solve", "summary": "Solves [b]it[/b]."} in by_name[
        "empo-fake"
    ]["components"]
    assert "no_such_thing" in by_name["empo-bad"]["problem"]
    assert len(listed["clashes"]) == 3


def test_plugins_can_be_frozen_as_requirements(cli: Any, site: Path) -> None:
    (site / "empo_torn-3.0.dist-info").mkdir()
    done = cli("plugins", "--freeze")
    lines = done.stdout.splitlines()
    assert lines == sorted(lines)
    assert {f"empo-core=={__version__}", "empo-fake==1.5"} <= set(lines)
    assert not [line for line in lines if "torn" in line]
    assert "empo-torn" in done.stderr
    assert cli("plugins", "--freeze", "--json").exit_code == 2


def test_a_blocked_plugin_is_listed_as_blocked(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPO_BLOCK_PLUGINS", "empo-fake")
    assert re.search(r"empo-fake .*blocked by EMPO_BLOCK_PLUGINS", cli("plugins").stdout)


def test_worlds_lists_titles_and_sizes_and_broken_files(cli: Any) -> None:
    listed = {
        world["world"]: world for world in json.loads(cli("worlds", "--json").stdout)["worlds"]
    }
    small = listed["count/small"]
    assert small["title"] == "Small [red]world"
    assert (small["humans"], small["goals"], small["horizon"]) == (1, 1, 5)
    assert small["state_bytes"] == 2
    assert "wrong.yaml:2:1: limit" in listed["count/wrong"]["problem"]
    assert re.search(r"count/small +Small \[red\]world +1 +0 +1 +5 +2", cli("worlds").stdout)


def test_describe_explains_every_parameter(cli: Any) -> None:
    text = cli("describe", "algorithm", "solve").stdout
    assert text.startswith("algorithm solve, from empo-fake 1.5\nSolves [b]it[/b].\n")
    assert re.search(r"beta +number, > 0 +1\.0 +How sharp\.", text)
    assert re.search(r"count_unrolled +true or false +false", text)
    assert re.search(r"helper +the name of a tracker, or \{name, params\} or null +null", text)
    about = json.loads(cli("describe", "world_model", "count", "--json").stdout)
    assert about["source"] == "empo-fake 1.5"
    assert about["params"][0] == {
        "name": "file",
        "type": "path",
        "default": "",
        "required": True,
        "description": "World file.",
    }


def test_describe_explains_the_keys_of_groups_too() -> None:
    keys = list(described(Outer))
    found = {key.name: key for key in reversed(keys)}
    assert [key.name for key in keys] == [
        "one", "one.depth", "many", "many[].depth", "many[].depth", "many[].size", "tracker"
    ]  # fmt: skip
    assert (found["one"].type, found["one"].description) == ("mapping or null", "A group of keys.")
    assert found["one"].default == "null"
    assert found["one.depth"].default == "1"
    assert (found["many"].type, found["many"].required) == ("list of mappings", True)
    assert [(key.type, key.default) for key in keys[3:5]] == [
        ("whole number", "1"),
        ("string", "'a'"),
    ]
    assert found["tracker"].type == "the name of a tracker, or {name, params}"


class Inner(Config):
    """A group
    of keys.

    More of it.
    """

    depth: int = 1


class Other(Config):
    depth: str = "a"
    size: int


class Outer(Config):
    one: Inner | None = None
    many: list[Inner | Other]
    tracker: TrackerRef = Field(description="Who watches.")


def test_check_reports_the_sizes_of_a_world(cli: Any, site: Path) -> None:
    report = json.loads(cli("check", "count/small", "--json").stdout)
    assert report["is"] == "world"
    assert report["world"]["horizon"] == 5
    assert report["solve"] == {"memory_bytes": 12345, "counts": False}
    assert report["agents"] == {"hal": "human, 2 actions: stay, count"}
    assert report["goals"] == {"hal: two": 1.0}
    assert cli("check", str(site / "worlds" / "small.yaml"), "--as", "count").exit_code == 0


def test_check_reads_a_world_as_it_is_told_also_where_overrides_make_it_a_config(
    cli: Any, site: Path, tmp_path: Path
) -> None:
    small = str(site / "worlds" / "small.yaml")
    done = cli("check", small, "--as", "count", "algorithm=solve", "--json")
    assert json.loads(done.stdout)["is"] == "config"
    refused = cli("check", small, "--as", "cuont", "algorithm=solve")
    assert refused.exit_code == 2
    assert "'count'" in refused.stderr
    refused = cli("check", config(tmp_path), "--as", "count", "algorithm=solve")
    assert refused.exit_code == 2
    assert "title, limit" in refused.stderr


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_config_is_read_once_so_that_it_may_come_from_a_pipe(
    cli: Any, tmp_path: Path, command: str
) -> None:
    reader, writer = os.pipe()
    os.write(writer, Path(config(tmp_path)).read_bytes())
    os.close(writer)
    done = cli(command, f"/dev/fd/{reader}", f"runs={tmp_path}")
    os.close(reader)
    assert done.exit_code == 0, done.stderr


def test_check_reports_what_a_config_would_need_and_runs_nothing(cli: Any, tmp_path: Path) -> None:
    report = json.loads(
        cli("check", config(tmp_path), "algorithm.params.count_unrolled=true", "--json").stdout
    )
    assert report["algorithm"] == {"name": "solve", "memory_bytes": 12345, "counts": True}
    assert report["world"]["title"] == "Small [red]world"
    assert not (tmp_path / "runs").exists()
    text = cli("check", config(tmp_path)).stdout
    assert text.startswith(f"{tmp_path / 'run.yaml'}: ok\n")
    assert re.search(r"memory_bytes +12,345", text)


SCHEMA_CASES: list[tuple[Any, bool]] = [
    ({"algorithm": "solve"}, True),
    ({"algorithm": "solve", "world_model": "count/small", "seed": 1}, True),
    ({"algorithm": "solve", "world_model": {"name": "count", "params": {"file": "x"}}}, True),
    (
        {
            "algorithm": "solve",
            "world_model": {"name": "count/small", "params": {"max_steps": 2}},
        },
        True,
    ),
    ({"algorithm": "solve", "world_model": "count"}, False),
    ({"algorithm": "solve", "world_model": "count/large"}, False),
    ({"algorithm": "solve", "world": "count/small"}, False),
    ({"algorithm": {"name": "solve", "params": {"beta": 0}}}, False),
    ({"algorithm": {"name": "solve", "params": {"bta": 1}}}, False),
    ({"algorithm": {"name": "solve", "params": {"helper": "solve"}}}, False),
    ({"algorithm": "slove"}, False),
    ({"world_model": "count/small"}, False),
    ({"algorithm": "solve", "seed": -1}, False),
    ({"algorithm": "solve", "sede": 1}, False),
]


def test_the_schema_accepts_what_the_loader_accepts(cli: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads(cli("schema").stdout))
    for data, valid in SCHEMA_CASES:
        assert validator.is_valid(data) is valid, data
        Path("x.yaml").write_text(json.dumps(data))
        loaded = cli("check", "x.yaml", "--json").exit_code == 0
        assert loaded is valid or "file" in str(data), data


def test_the_schema_is_valid_json_schema(cli: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(cli("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


# Starting.


@pytest.mark.parametrize("arguments", [["--help"], ["plugins"], ["run", "--help"], ["--version"]])
def test_the_command_line_starts_fast_and_without_heavy_imports(
    site: Path, arguments: list[str]
) -> None:
    code = textwrap.dedent(f"""
        import sys
        from empo_core.cli.app import app
        try:
            app({arguments!r})
        finally:
            heavy = {{"torch", "numba", "numpy", "ruamel"}} & sys.modules.keys()
            assert not heavy, heavy
    """)
    libraries = "import pluggy, pydantic, rich.console, typer"
    # A ratio, since a busy machine makes both slow; on an idle one it is about 0.3 s to 0.1 s.
    assert any(_cpu_seconds(site, code) < 6 * _cpu_seconds(site, libraries) for _ in "123")


def _cpu_seconds(site: Path, code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", code]
    subprocess.run(command, env=subprocess_environment(site), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_no_color_and_pipes_get_plain_text(site: Path, tmp_path: Path) -> None:
    for extra in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {}):
        done = subprocess.run(
            [sys.executable, "-m", "empo_core", "plugins"],
            env=subprocess_environment(site) | extra,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "\x1b" not in done.stdout
        assert "empo-fake" in done.stdout


@pytest.mark.parametrize("command", ["run", "check", "resume"])
def test_a_path_that_is_too_long_is_refused_as_one(command: str) -> None:
    result = CliRunner().invoke(app, [command, "x" * 5_000])
    assert result.exit_code == 2
    assert "characters)" in result.stderr
