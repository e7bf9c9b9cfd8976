"""Folders of running processes, which are found and removed where the process was killed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import tempfile
from pathlib import Path

import psutil

from empo_core.errors import StorageError
from empo_core.runs.files import refuse_gone


def process_space() -> str:
    """Eight hexadecimal digits of the machine and container in which process numbers hold."""
    space = platform.node()
    with contextlib.suppress(OSError):  # Other systems have no such file.
        space += f" {os.stat('/proc/self/ns/pid').st_ino}"
    return hashlib.sha256(space.encode()).hexdigest()[:8]


def owned_folder(directory: Path, prefix: str) -> Path:
    """A new folder of this process; those of processes of this machine that are gone are removed.

    Processes of other machines and containers, which may share the directory, cannot be seen from
    here, and their folders stay.

    Args:
        directory: Receives it, and is made where it is not there.
        prefix: Begin of its name.

    Raises:
        StorageError: The disk refuses.
    """
    refuse_gone(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        own = f"{prefix}{process_space()}-"
        for old in directory.glob(f"{own}*"):
            pid = old.name.removeprefix(own).split("-")[0]
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(old, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"{own}{os.getpid()}-", dir=directory))
    except OSError as error:
        raise StorageError(
            f"{directory}: the files that workers need cannot be made there: {error}"
        ) from error
