"""Files of run directories, which may come from elsewhere, be held by a process, or be moved away.

What is opened is never a link, pipe or device. A lock is held by one process at a time, and the
kernel releases it when the process ends. A directory that is moved or removed while its run goes
on must not come back as a ghost with a few files: whoever writes into a run calls ``refuse_gone``
first.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from empo_core.errors import ConfigError, StorageError

_roots: dict[Path, os.stat_result] = {}
"""The directories of runs that go on, as they were when the runs began."""


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[io.BufferedReader]:
    """A file to read that is no link, pipe or device.

    Raises:
        StorageError: if the path is no regular file, or cannot be opened or read.
    """
    try:
        with open(path, "rb", opener=_carefully) as file:
            yield file
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {_reason(path, error)}") from error


def open_new(path: Path) -> BinaryIO:
    """A new file to write, in place of a file or link of that name; raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    return path.open("xb")


def open_append(path: Path) -> BinaryIO:
    """A file to read and to append to, made if missing, that is no link, pipe or device.

    Raises:
        StorageError: if the path is no regular file, or cannot be opened.
    """
    try:
        return open(path, "a+b", opener=_carefully)
    except OSError as error:
        raise StorageError(f"{path}: cannot be opened: {_reason(path, error)}") from error


def append_whole(file: BinaryIO, data: bytes) -> None:
    """Append to a file of ``open_append``, all or nothing, past its buffer; raises OSError."""
    descriptor = file.fileno()
    end = os.fstat(descriptor).st_size
    remaining = memoryview(data)
    try:
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
    except OSError:
        # A disk that is full takes a part; what is appended later must not follow it.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, end)
        raise


def _carefully(path: str, flags: int) -> int:
    """As ``os.open``, of regular files alone: no link is followed, no pipe waited for."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path}: is not a regular file")
    return descriptor


def reason_of(error: OSError) -> str:
    """Why the system refused, in its words."""
    return error.strerror or type(error).__name__


def _reason(path: Path, error: OSError) -> str:
    return "is a symbolic link" if path.is_symlink() else reason_of(error)


def refuse_strange_files(directory: Path) -> None:
    """Refuse a run's directory with a link out of it, a pipe or a device.

    Raises:
        ConfigError: if the directory holds a link out of it, a pipe or a device, or cannot be
            listed.
    """
    for folder, folders, files in os.walk(directory, onerror=_unlisted):
        for name in (*folders, *files):
            _refuse_strange(directory, Path(folder, name))


def _refuse_strange(directory: Path, path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # A process at work there removes its files.
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            target = Path(os.path.realpath(path))
            if not target.is_relative_to(directory.resolve()):
                raise ConfigError(
                    f"{path}: leads out of the run directory (to {target}), where nothing of a "
                    "run is read or written; remove it, or put a copy in its place"
                )
        elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ConfigError(f"{path} is neither a file nor a folder; remove it")


def _unlisted(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise ConfigError(f"{error.filename}: cannot be listed: {reason_of(error)}") from error


def hold(path: Path, *, shared: bool = False) -> BinaryIO | None:
    """An open file that others cannot hold until it is closed; None where another process does.

    Args:
        path: Of the file, which is made if missing.
        shared: Let others hold it who share it, too.

    Raises:
        StorageError: if the file cannot be opened or locked.
    """
    file = open_append(path)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError as error:
        file.close()
        raise StorageError(f"{path}: cannot be locked: {reason_of(error)}") from error
    return file


def watch_root(root: Path) -> None:
    """Remember which directory a run has, until ``forget_root``."""
    _roots[root.absolute()] = root.stat()


def forget_root(root: Path) -> None:
    """Forget a run's directory."""
    _roots.pop(root.absolute(), None)


def is_gone(root: Path) -> bool:
    """True if a run's directory is not where it was when the run began."""
    recorded = _roots.get(root.absolute())
    try:
        return recorded is not None and not os.path.samestat(recorded, root.stat())
    except OSError:
        return True


def refuse_gone(path: Path) -> None:
    """Refuse a path in the directory of a run that was moved or removed.

    Raises:
        StorageError: if the path lies in such a directory; the message names the directory.
    """
    for root in list(_roots):
        if path.absolute().is_relative_to(root) and is_gone(root):
            raise missing_run(root)


def missing_run(root: Path) -> StorageError:
    """The error of a run whose directory is gone."""
    return StorageError(
        f"{root}: was removed or moved away while the run went on, so the run stops; go on from "
        "its last checkpoint where it is now, with: empo resume DIRECTORY"
    )
