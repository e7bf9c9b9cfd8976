"""Commands whose output is closed, full, or not read to its end."""

import json
import os
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


RUN = "run table/pause_destroy algorithm=exact trackers=[] algorithm.params.inspector=false"


def shell(folder: Path, command: str, redirections: str) -> tuple[int, str]:
    """Exit code and standard error of a command of ``empo`` with its streams redirected."""
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m empo_core {command} {redirections}', sys.executable],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    return done.returncode, done.stderr


def only_run(folder: Path) -> Path:
    (run,) = (folder / "runs").iterdir()
    assert json.loads((run / "status.json").read_text())["status"] == "finished"
    assert (run / "results" / "summary.json").is_file()
    return run


@pytest.mark.parametrize("options", ["-q", "--json"])
def test_a_run_without_standard_output_is_whole_and_says_where_it_is(
    tmp_path: Path, options: str
) -> None:
    code, told = shell(tmp_path, f"{RUN} {options}", ">&-")
    assert code == 0
    assert told.splitlines()[-1] == str(only_run(tmp_path))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("options", ["-q", "--json"])
def test_a_run_with_a_full_standard_output_is_whole_and_says_so(
    tmp_path: Path, options: str
) -> None:
    code, told = shell(tmp_path, f"{RUN} {options}", ">/dev/full")
    assert code == 3
    first, second = told.splitlines()[-2:]
    assert first == "standard output cannot be written: No space left on device"
    assert second.endswith(str(only_run(tmp_path)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("redirections", [">/dev/null 2>/dev/full", ">&- 2>&- <&-"])
def test_a_run_whose_standard_error_cannot_be_written_goes_on(
    tmp_path: Path, redirections: str
) -> None:
    assert shell(tmp_path, RUN, redirections) == (0, "")
    only_run(tmp_path)


def test_a_run_whose_output_nobody_reads_says_where_it_is(tmp_path: Path) -> None:
    _, told = shell(tmp_path, f"{RUN} --json", "| true")
    assert told.splitlines()[-1] == str(only_run(tmp_path))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("command", ["plugins", "schema", "--help", "run --help", "plugins --json"])
def test_any_command_with_a_full_standard_output_ends_in_one_sentence(
    tmp_path: Path, command: str
) -> None:
    message = "standard output cannot be written: No space left on device\n"
    assert shell(tmp_path, command, ">/dev/full") == (3, message)
