"""Directories of the runs of this process, outside of which nothing of theirs is written.

A directory that is moved or removed while its run goes on must not come back as a ghost with a few
files: whoever writes into a run asks here first.
"""

from __future__ import annotations

from pathlib import Path

from empo_core.errors import StorageError

_roots: dict[Path, tuple[int, int]] = {}


def watch(root: Path) -> None:
    """Remember which directory a run has, until ``forget``."""
    status = root.stat()
    _roots[root.absolute()] = status.st_dev, status.st_ino


def forget(root: Path) -> None:
    """Forget a run's directory."""
    _roots.pop(root.absolute(), None)


def is_gone(root: Path) -> bool:
    """True if a run's directory is not where it was when the run began."""
    recorded = _roots.get(root.absolute())
    if recorded is None:
        return False
    try:
        status = root.stat()
    except OSError:
        return True
    return recorded != (status.st_dev, status.st_ino)


def refuse_gone(path: Path) -> None:
    """Refuse a path in the directory of a run that was moved or removed.

    Raises:
        StorageError: if the path lies in such a directory; the message names the directory.
    """
    for root in list(_roots):
        if path.absolute().is_relative_to(root) and is_gone(root):
            raise gone(root)


def gone(root: Path) -> StorageError:
    """The error of a run whose directory is gone."""
    return StorageError(
        f"{root}: was removed or moved away while the run went on, so the run stops; go on from "
        "its last checkpoint where it is now, with: empo resume DIRECTORY"
    )
