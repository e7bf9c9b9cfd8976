"""Folders of processes: those of the dead are removed, those that cannot be judged stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from empo_executors.owned_folder import owned_folder, process_space


def dead_process() -> int:
    """The number of a process that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_only_folders_of_this_machine_whose_process_is_gone_are_removed(tmp_path: Path) -> None:
    dead = dead_process()
    gone = tmp_path / f"workers-{process_space()}-{dead}-abc"
    alive = tmp_path / f"workers-{process_space()}-{os.getpid()}-abc"
    elsewhere = tmp_path / f"workers-00000000-{dead}-abc"
    nameless = tmp_path / "workers-notes"
    for folder in (gone, alive, elsewhere, nameless):
        folder.mkdir()
    new = owned_folder(tmp_path, "workers-")
    assert set(tmp_path.iterdir()) == {alive, elsewhere, nameless, new}
