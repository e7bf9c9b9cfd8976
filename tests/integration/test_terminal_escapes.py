"""Names full of terminal escapes and markup: they are spelt out wherever they are shown."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from empo_core.cli.app import app
from empo_core.printable import PrintableFormatter, printable

RED, BELL, CSI, LEFT = "\x1b[31m", "\x07", "\x9b31m", "\u202e"
WORLD = {
    "name": f"title {RED}{CSI}",
    "agents": [
        {"name": f"hu{RED}[bold]man", "role": "human", "actions": [f"go{BELL}{LEFT}", "[/] stay"]},
        {"name": f"ro{CSI}bot", "role": "robot", "actions": [f"he{RED}lp", "wa\rit"]},
    ],
    "states": ["start", f"end{RED}"],
    "initial": "start",
    "terminal": [f"end{RED}"],
    "transitions": [{"state": "*", "to": f"end{RED}"}],
    "goals": {
        f"hu{RED}[bold]man": [
            {"name": f"[link=http://x]goal{RED}[/link]", "states": [f"end{RED}"]},
            {"name": f"other{LEFT}", "states": ["start"]},
        ]
    },
    "horizon": 2,
}
EXACT = {"name": "exact"}
PHASE2 = {
    "name": "phase2",
    "params": {
        "human_prior": "exact",
        "values": {"q_r": "lookup", "v_h_e": "lookup"},
        "total_steps": 4,
        "num_envs": 16,
        "warm_up": {"v_h_e": 1, "q_r": 1, "ramp": 1},
        "replay": {"batch_size": 2},
        "collector": {"name": "sync", "params": {"min_env_steps": 2}},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the world, and with configs of runs in it."""
    (tmp_path / "world.json").write_text(json.dumps(WORLD))
    world = {"name": "table", "params": {"file": "world.json"}}
    for algorithm in (EXACT, PHASE2):
        data = {"world_model": world, "algorithm": algorithm, "runs": "runs"}
        (tmp_path / f"{algorithm['name']}.json").write_text(json.dumps(data))
    return tmp_path


def empo(*arguments: str | Path) -> Result:
    """Run a command in this process."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert all(c.isprintable() or c in "\n\t" for c in done.output), ascii(done.output)
    return done


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_hostile_world_is_checked_without_obeying_its_names(
    folder: Path, options: tuple[str, ...]
) -> None:
    """Title, agents, actions and goals are shown, as text."""
    done = empo("check", folder / "world.json", *options)
    assert done.exit_code == 0, done.output
    spelt = "\\u001b[31m" if options else "\\x1b[31m"
    for name in (f"title {spelt}", f"hu{spelt}[bold]man", f"he{spelt}lp", "[link=http://x]goal"):
        assert name in done.stdout


@pytest.mark.parametrize("algorithm", ["exact", "phase2"])
def test_a_run_in_a_hostile_world_shows_text_only(folder: Path, algorithm: str) -> None:
    """The report, progress, the log, and what files of a run say about names."""
    done = empo("run", folder / f"{algorithm}.json")
    assert done.exit_code == 0, done.output
    assert "goal\\x1b[31m[/link]" in done.stdout
    assert "[/] stay" in empo("check", folder / "world.json").stdout
    (directory,) = (folder / "runs").iterdir()
    for name in ("log.txt", "status.json", "results/summary.json"):
        text = (directory / name).read_text()
        assert all(c.isprintable() or c in "\n\t" for c in text), name
    done = empo("evaluate", directory, "--episodes", "1", "--gifs", "0")
    assert done.exit_code == 0, done.output
    assert "other\\u202e" in done.stdout


def test_json_output_keeps_every_character_of_names(folder: Path) -> None:
    """What is spelt out for terminals is the same data to a program."""
    done = empo("run", folder / "exact.json", "--json", "-q")
    names = [goal["goal"] for goal in json.loads(done.stdout)["root"]["goals"]]
    assert names == [f"[link=http://x]goal{RED}[/link]", f"other{LEFT}"]


def test_errors_about_hostile_names_are_text(folder: Path) -> None:
    """A name that does not exist is quoted, with and without a traceback."""
    world = WORLD | {"initial": f"no{RED}where{CSI}"}
    (folder / "world.json").write_text(json.dumps(world))
    for options in ((), ("--debug",)):
        done = empo("run", folder / "exact.json", *options)
        assert done.exit_code == 2
        assert "no\\x1b[31mwhere\\x9b31m" in done.stderr


def test_one_function_spells_out_what_a_terminal_would_obey() -> None:
    """Line ends and tabs stay; a log keeps its lines, tracebacks included."""
    assert printable("plain ±\n\ttext") == "plain ±\n\ttext"
    assert printable(f"{RED}{BELL}{CSI}{LEFT}\r\ud800") == (
        "\\x1b[31m\\x07\\x9b31m\\u202e\\r\\ud800"
    )
    assert printable("a\nb", keep="") == "a\\nb"
    try:
        raise ValueError(RED)
    except ValueError as error:
        given = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "said %s", (CSI,), given)
    lines = PrintableFormatter().format(record).split("\n")
    assert (lines[0], lines[-1]) == ("said \\x9b31m", "ValueError: \\x1b[31m")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", pytest.param("cp1252", marks=pytest.mark.slow)])
def test_what_an_encoding_lacks_is_drawn_in_ascii(folder: Path, encoding: str) -> None:
    """A finished run ends with its report and its directory, whatever the terminal can show."""
    config = json.loads((folder / "exact.json").read_text())
    (folder / "exact.json").write_text(json.dumps(config | {"runs": "läufe"}))
    command = [sys.executable, "-m", "empo_core", "run", "exact.json"]
    environment = {**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.decode(encoding).splitlines()
    assert ("l\\xe4ufe" if encoding == "ascii" else "läufe") in last
    assert b"V_r  robot's value" in done.stdout
    assert b"+----" in done.stdout
    if encoding == "ascii":  # Which is least.
        done = subprocess.run([*command, "--json", "-q"], cwd=folder, env=environment, stdout=-1)
        assert "/läufe/" in json.loads(done.stdout.decode(encoding))["run_dir"]
