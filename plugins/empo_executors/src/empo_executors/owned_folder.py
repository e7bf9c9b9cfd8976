"""Folders of running processes, which are found and removed where the process was killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

from empo_core.errors import StorageError
from empo_core.storage.run_roots import refuse_gone


def owned_folder(directory: Path, prefix: str) -> Path:
    """A new folder of this process; those of processes that are gone are removed.

    Args:
        directory: Receives it, and is made where it is not there.
        prefix: Begin of its name.

    Raises:
        StorageError: The disk refuses.
    """
    refuse_gone(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob(f"{prefix}*"):
            pid = old.name.removeprefix(prefix).split("-")[0]
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(old, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=directory))
    except OSError as error:
        raise StorageError(
            f"{directory}: the files that workers need cannot be made there: {error}"
        ) from error
