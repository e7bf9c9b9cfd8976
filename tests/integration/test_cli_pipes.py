"""Commands whose output is closed, full, or not read to its end, and what else prints to it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("command", [["schema"], ["plugins"], ["plugins", "--json"]])
def test_a_closed_pipe_ends_a_command_without_complaint(command: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "empo_core", *command],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def install(folder: Path, name: str, plugin: str, parts: str) -> None:
    """Write a plugin into a folder, so that it is found where this is on Python's path."""
    (folder / f"{name}_plugin.py").write_text(plugin)
    (folder / f"{name}_parts.py").write_text(parts)
    info = folder / f"empo_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: empo-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[empo]\nempo-{name} = {name}_plugin\n")


@pytest.fixture
def quick(tmp_path: Path) -> dict[str, str]:
    """Environment variables with an algorithm that does nothing but log a number."""
    install(
        tmp_path,
        "quick",
        "from empo_core import Component, hookimpl\n"
        "@hookimpl\n"
        "def empo_components():\n"
        "    yield Component(kind='algorithm', name='quick', params='empo_core:Config', api=1,\n"
        "                    target='quick_parts:Quick')\n",
        "from empo_core.protocols import Algorithm\n"
        "class Result:\n"
        "    def summary(self):\n"
        "        return {'value': 1.0}\n"
        "    def report(self):\n"
        "        return 'all is well'\n"
        "    def save(self, directory):\n"
        "        pass\n"
        "class Quick(Algorithm):\n"
        "    def __init__(self, params):\n"
        "        pass\n"
        "    def check(self, world):\n"
        "        return {}\n"
        "    def run(self, context):\n"
        "        context.tracker.log(0, {'value': 1.0})\n"
        "        return Result()\n",
    )
    return os.environ | {"PYTHONPATH": str(tmp_path)}


RUN = "run table/pause_destroy algorithm=quick trackers=[]"


def shell(
    folder: Path, command: str, redirections: str, environment: dict[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and standard error of a command of ``empo`` with its streams redirected."""
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m empo_core {command} {redirections}', sys.executable],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    return done.returncode, done.stderr


def only_run(folder: Path) -> Path:
    (run,) = (folder / "runs").iterdir()
    assert json.loads((run / "status.json").read_text())["status"] == "finished"
    assert (run / "results" / "summary.json").is_file()
    return run


def test_a_run_without_standard_output_is_whole_and_says_where_it_is(
    tmp_path: Path, quick: dict[str, str]
) -> None:
    code, stderr = shell(tmp_path, f"{RUN} --json", ">&-", quick)
    assert code == 0
    assert stderr.splitlines()[-1] == str(only_run(tmp_path))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_run_with_a_full_standard_output_is_whole_and_says_so(
    tmp_path: Path, quick: dict[str, str]
) -> None:
    code, stderr = shell(tmp_path, f"{RUN} -q", ">/dev/full", quick)
    assert code == 3
    first, second = stderr.splitlines()[-2:]
    assert first == "standard output cannot be written: No space left on device"
    assert second.endswith(str(only_run(tmp_path)))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize(
    "redirections", [">/dev/null 2>/dev/full", pytest.param(">&- 2>&- <&-", marks=pytest.mark.slow)]
)
def test_a_run_whose_standard_error_cannot_be_written_goes_on(
    tmp_path: Path, quick: dict[str, str], redirections: str
) -> None:
    assert shell(tmp_path, RUN, redirections, quick) == (0, "")
    only_run(tmp_path)


@pytest.mark.slow
def test_a_run_whose_output_nobody_reads_says_where_it_is(
    tmp_path: Path, quick: dict[str, str]
) -> None:
    _, stderr = shell(tmp_path, f"{RUN} --json", "| true", quick)
    assert stderr.splitlines()[-1] == str(only_run(tmp_path))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("command", ["plugins", "schema", "--help", "run --help", "plugins --json"])
def test_any_command_with_a_full_standard_output_ends_in_one_sentence(
    tmp_path: Path, command: str
) -> None:
    message = "standard output cannot be written: No space left on device\n"
    assert shell(tmp_path, command, ">/dev/full") == (3, message)


LOUD = """
import atexit, os, subprocess, sys
def loud():
    print("loud print")
    os.write(1, b"loud write\\n")
    subprocess.run([sys.executable, "-c", "print('loud child')"])
loud()
atexit.register(loud)
"""
NOISES = {"loud print", "loud write", "loud child"}


@pytest.fixture
def loud(tmp_path: Path, quick: dict[str, str]) -> dict[str, str]:
    """Environment variables with a plugin that prints in every way, at imports and at exit."""
    install(
        tmp_path,
        "loud",
        LOUD + "from empo_core import Component, hookimpl\n"
        "@hookimpl\n"
        "def empo_components():\n"
        "    loud()\n"
        "    yield Component(kind='tracker', name='loud', params='loud_parts:Params', api=1,\n"
        "                    target='loud_parts:Loud')\n",
        LOUD + "from pydantic import field_validator\n"
        "from empo_core import Config\n"
        "from empo_core.protocols import Tracker\n"
        "class Params(Config):\n"
        "    breaks: bool = False\n"
        "    @field_validator('breaks')\n"
        "    @classmethod\n"
        "    def is_right(cls, value):\n"
        "        loud()\n"
        "        return value\n"
        "class Loud(Tracker):\n"
        "    def __init__(self, params):\n"
        "        self._params = params\n"
        "    def start(self, directory, config):\n"
        "        loud()\n"
        "        if self._params.breaks:\n"
        "            raise BrokenPipeError(32, 'a pipe of a tracker')\n"
        "    def log(self, step, metrics):\n"
        "        loud()\n",
    )
    return quick


def words(command: str) -> list[str]:
    """Arguments; those in brackets may hold spaces."""
    return re.split(r" (?![^\[]*\])", command)


@pytest.mark.parametrize(
    "command",
    [
        "plugins --json",
        *(
            pytest.param(command, marks=pytest.mark.slow)
            for command in ("describe tracker loud --json", "schema")
        ),
        "--import loud_parts worlds --json",
        f"{RUN} --json -q".replace("[]", "[{name: loud, params: {breaks: false}}]"),
    ],
)
def test_whatever_a_plugin_prints_standard_output_is_one_json_object(
    tmp_path: Path, loud: dict[str, str], command: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "empo_core", *words(command)],
        cwd=tmp_path, env=loud, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert isinstance(json.loads(done.stdout), dict)
    assert set(done.stderr.splitlines()) >= NOISES


def test_whatever_a_plugin_prints_completion_is_only_names(
    tmp_path: Path, loud: dict[str, str]
) -> None:
    completion = {"_EMPO_COMPLETE": "complete_bash", "COMP_WORDS": "empo ", "COMP_CWORD": "1"}
    script = "import sys; sys.argv = ['empo']; from empo_core.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path, env=loud | completion, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert {"run", "check", "plugins"} <= set(done.stdout.split())
    assert "loud" not in done.stdout


def test_a_pipe_that_breaks_in_a_component_is_a_fault_of_the_run(
    tmp_path: Path, loud: dict[str, str]
) -> None:
    command = RUN.replace("trackers=[]", "trackers=[{name: loud, params: {breaks: true}}]")
    done = subprocess.run(
        [sys.executable, "-m", "empo_core", *words(command)],
        cwd=tmp_path, env=loud, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "a pipe of a tracker" in done.stderr
