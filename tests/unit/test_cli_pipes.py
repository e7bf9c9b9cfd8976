"""Commands whose output nobody reads to its end."""

import os
import subprocess
import sys

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
