"""``empo runs``: which runs there are, in which order, and what differs."""

from __future__ import annotations

import builtins
import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue
from typer.testing import CliRunner, Result

from empo_compare import run_table
from empo_compare.run_table import differences, ordered, read_rows, short_names, span, where
from empo_core.cli.app import app
from empo_core.errors import ConfigError
from empo_core.runs.directory import write_config
from empo_core.saved_run import read_run

ESCAPE = "\x1b[31mred"


def write_run(
    folder: Path,
    name: str,
    *,
    seed: int = 0,
    algorithm: str = "exact",
    params: str = "{}",
    summary: object = None,
    **status: object,
) -> Path:
    path = folder / name
    (path / "results").mkdir(parents=True)
    (path / "config.yaml").write_text(
        f"algorithm:\n  name: {algorithm}\n  params: {params}\nseed: {seed}\nruns: {folder}\n"
    )
    about = {"status": "finished", "task": "door", "seconds": 90.0}
    about |= {"started": "2026-01-01T00:00:00+00:00", "updated": "2026-01-01T00:01:30+00:00"}
    (path / "status.json").write_text(json.dumps(about | status))
    (path / "results/summary.json").write_text(json.dumps(summary or {"root": {"V_r": -seed}}))
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    write_run(folder, "a", seed=2, params="{beta_r: 10.0, keep: all}")
    write_run(folder, "b", seed=10, params="{beta_r: 5.0, keep: all}")
    write_run(folder, "c", algorithm="rollout", summary={"return_mean": 3.5, "solved": True})
    write_run(folder, "d", status="failed", error="SolveError: a circle", params="{keep: none}")
    return folder


def empo(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def names(rows: list[run_table.Row]) -> str:
    return "".join(row.run.path.name for row in rows)


@pytest.mark.parametrize(
    ("evaluation", "key"),
    [
        (None, "return_mean"),
        ({"mean_return": 9.0, "standard_error": 1.0}, "evaluation.mean_return"),
        ({"planner": {"cup": {"return_mean": 9.0}}}, "evaluation.planner.cup.return_mean"),
    ],
)
def test_returns_are_those_of_the_evaluation_where_there_is_one(
    tmp_path: Path, evaluation: JsonValue, key: str
) -> None:
    summary = {"steps": 7, "return_mean": 3.5, "evaluation": evaluation}
    path = write_run(tmp_path, "c", algorithm="rollout", summary=summary)
    results = run_table.key_results(read_run(path))
    assert results == {key: 3.5 if evaluation is None else 9.0}


def test_the_table_has_what_matters_of_each_run(runs: Path) -> None:
    done = empo("runs", runs)
    assert done.exit_code == 0
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip()}
    assert lines["run"][1:] == (
        [
            "task",
            "algorithm",
            "status",
            "age",
            "duration",
            "V_r",
            "return_mean",
            "solved",
            "differs",
            "reason",
        ]
    )
    assert lines["a"][1:4] == ["door", "exact", "finished"]
    assert {"-2", "beta_r=10", "keep=all", "seed=2", "1.5", "min"} <= set(lines["a"])
    assert {"3.5", "true"} <= set(lines["c"])
    assert not any(cell.startswith("seed=") for cell in lines["c"])
    assert {"failed", "SolveError:"} <= set(lines["d"])


def test_json_has_the_same(runs: Path) -> None:
    found = json.loads(empo("runs", runs, "--json", "--sort", "-seed").stdout)["runs"]
    assert [each["run"] for each in found] == ["b", "a", "c", "d"]
    assert found[0]["results"] == {"root.V_r": -10}
    assert found[0]["differs"] == {
        "algorithm.params.beta_r": 5.0, "algorithm.params.keep": "all", "seed": 10,
    }  # fmt: skip
    assert (found[0]["duration"], found[0]["reason"]) == (90.0, None)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["status=finished"], "abc"),
        (["algorithm=exact", "status=finished"], "ab"),
        (["algorithm.params.beta_r=10"], "a"),
        (["algorithm.params.beta_r=1e1"], "a"),
        (["seed=10"], "b"),
        (["solved=true"], "c"),
        (["solved=1"], ""),
        (["root.V_r=-2"], "a"),
        (["task=no such"], ""),
        (["run=a"], "a"),
        (["status=[finished"], ""),
    ],
)
def test_conditions_take_columns_and_keys(runs: Path, conditions: list[str], expected: str) -> None:
    assert names(where(read_rows(runs), conditions)) == expected


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--where", "beta_r=1"], "has a key 'beta_r'; did you mean 'algorithm.params.beta_r'?"),
        (["--where", "statsu=failed"], "did you mean 'status'?"),
        (["--where", "status"], "--where status: write KEY=VALUE, e.g. status=finished"),
        (["--sort", "V_r"], "--sort: no run has a key 'V_r'; did you mean 'root.V_r'?"),
        (["--sort", "q" * 50], "columns are run, task, algorithm, status, age, duration"),
    ],
)  # fmt: skip
def test_unknown_keys_are_refused_with_a_suggestion(
    runs: Path, option: list[str], message: str
) -> None:
    done = empo("runs", runs, *option)
    assert done.exit_code == 2
    assert message in done.stderr


def test_runs_are_sorted_by_any_key_and_those_without_it_are_last(runs: Path) -> None:
    rows = read_rows(runs)
    assert names(rows) == "abcd"
    assert names(ordered(rows, "algorithm.params.beta_r")) == "bacd"
    assert names(ordered(rows, "-algorithm.params.beta_r")) == "abcd"
    assert names(ordered(rows, "-status")) == "abcd"
    assert names(ordered(rows, "status")) == "dabc"
    assert names(ordered(rows, "return_mean")) == "cabd"


def test_configs_are_compared_within_an_algorithm_and_task(tmp_path: Path) -> None:
    write_run(tmp_path, "a", params="{x: 1, y: {z: true}}")
    write_run(tmp_path, "b", params="{x: 1, y: {z: 1}}")
    write_run(tmp_path, "c", params="{x: 2}", algorithm="other")
    found = differences(read_rows(tmp_path))
    assert found == [{"algorithm.params.y.z": True}, {"algorithm.params.y.z": 1}, {}]


def test_short_names_are_as_long_as_they_must_be() -> None:
    assert short_names(["a.b.c", "a.d.c", "seed", "x.seed", "x.y"]) == {
        "a.b.c": "b.c", "a.d.c": "d.c", "seed": "seed", "x.seed": "x.seed", "x.y": "y",
    }  # fmt: skip


def test_damaged_directories_are_listed_with_a_reason(runs: Path, tmp_path: Path) -> None:
    (runs / "2026-01-01-half-exact-0").mkdir()
    (runs / "notes").mkdir()
    (runs / "a/status.json").write_text("{")
    (runs / "b/results/summary.json").unlink()
    (runs / "c/config.yaml").write_text("[")
    (runs / "a file").write_text("")
    write_run(tmp_path, "outside")
    (runs / "link").symlink_to(tmp_path / "outside")
    (runs / "e").mkdir()
    (runs / "e/config.yaml").symlink_to(tmp_path / "outside/config.yaml")
    done = json.loads(empo("runs", runs, "--json").stdout)["runs"]
    found = {each["run"]: (each["status"], bool(each["reason"])) for each in done}
    assert found == {
        "2026-01-01-half-exact-0": ("damaged", True),
        "a": ("damaged", True),
        "b": ("finished", True),
        "c": ("damaged", True),
        "d": ("failed", True),
        "e": ("damaged", True),
    }
    assert "is a symbolic link" in empo("runs", runs, "--where", "run=e").stdout


def test_names_from_anywhere_cannot_command_the_terminal(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        f"{ESCAPE}[bold]",
        task=f"{ESCAPE}\n",
        status="failed",
        error=ESCAPE * 50,
        params=json.dumps({ESCAPE: ESCAPE}),
        algorithm=json.dumps(ESCAPE),
    )
    write_run(tmp_path, "b", task=f"{ESCAPE}\n", algorithm=json.dumps(ESCAPE))
    for options in ([], ["--json"], ["--where", f"{ESCAPE}=1"]):
        done = empo("runs", tmp_path, *options)
        assert "\x1b" not in done.stdout + done.stderr
        assert "x1b[31mred" in done.stdout + done.stderr or "u001b[31mred" in done.stdout
    assert "[bold]" in empo("runs", tmp_path).stdout


def test_the_directory_of_one_run_is_a_table_of_one_row(runs: Path) -> None:
    assert names(read_rows(runs / "a")) == "a"
    assert read_rows(runs / "a")[0].run.path == runs / "a"


def test_no_runs_are_no_fault_and_no_folder_is_one(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    assert re.search(r"runs: none\n", empo("runs", tmp_path / "runs").stdout)
    done = empo("runs", tmp_path / "nowhere")
    assert done.exit_code == 2
    assert "nowhere: " in done.stderr
    with pytest.raises(ConfigError, match="null byte"):
        read_rows(Path("\0"))


def test_a_narrow_terminal_gets_whole_names(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import empo_core.cli.output as output

    monkeypatch.setattr(output, "stdout", partial(output.stdout, width=60))
    lines = empo("runs", runs).stdout.splitlines()
    assert max(map(len, lines)) <= 60
    assert "algorithm exact" in " ".join(lines)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (59.0, "59 s"), (90, "1.5 min"), (7200, "2 h"), (86400 * 12, "12 d")],
)
def test_lengths_of_time_are_short(seconds: float, text: str) -> None:
    assert span(seconds) == text
    assert span(None) == "–"


def test_runs_are_listed_from_four_files_each_without_a_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(201):
        path = write_run(tmp_path, f"r{number:03}", seed=number)
        params: dict[str, JsonValue] = {"beta_r": number + 0.5}
        write_config(path, {"algorithm": {"name": "exact", "params": params}, "seed": number})
    opened: Counter[str] = Counter()
    real = builtins.open

    def counting(file: object, *args: object, **kwargs: object) -> object:
        if str(file).startswith(str(tmp_path)):
            opened[os.path.relpath(str(file), tmp_path).split(os.sep)[0]] += 1
        return real(file, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(builtins, "open", counting)
    monkeypatch.delattr("empo_core.runs.directory.parse_yaml")
    done = empo("runs", tmp_path, "--sort", "-root.V_r")
    assert set(opened.values()) == {4}
    assert len(opened) == 201
    assert re.findall(r"\br\d{3}\b", done.stdout) == [f"r{number:03}" for number in range(201)]


def test_listing_runs_imports_nothing_heavy(runs: Path) -> None:
    code = (
        "import sys; from empo_core.cli.app import app\n"
        f"try: app(['runs', {str(runs)!r}, '--sort', 'age'])\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'numpy', 'numba', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
