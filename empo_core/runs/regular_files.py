"""Opening files of directories that may come from elsewhere: never a link, pipe or device."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from empo_core.errors import ConfigError, StorageError

Read = TypeVar("Read")
# Windows has neither; there only privileged users can make links.
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def open_regular(path: Path, read: Callable[[io.BufferedReader], Read]) -> Read:
    """Apply ``read`` to a file that is no link, pipe or device.

    Raises:
        StorageError: if the path is no regular file, or cannot be opened or read.
    """
    flags = os.O_RDONLY | _CAREFULLY
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise StorageError(f"{path}: is not a regular file")
            return read(file)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {_reason(path, error)}") from error
    except ValueError as error:  # A NUL byte in the path.
        raise StorageError(f"{path}: cannot be read: {error}") from error


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
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | _CAREFULLY
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise StorageError(f"{path}: cannot be opened: {_reason(path, error)}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path}: is not a regular file")
    return os.fdopen(descriptor, "a+b")


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
