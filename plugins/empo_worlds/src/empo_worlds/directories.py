"""Directories with a manifest: complete or not there, whatever happens, and checked when read.

What is written grows beside its final place, is flushed to the disk, and then renamed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from empo_core.errors import StorageError
from empo_core.runs.atomic import DISK, MANIFEST, FileEntry, entry_of, refused
from empo_core.runs.files import reason_of, refuse_gone


@contextlib.contextmanager
def written_directory(directory: Path, *, durable: bool = True) -> Iterator[Path]:
    """A fresh directory to fill, which takes the place of ``directory`` at the end.

    An older one in that place, which must have a manifest, stays until the new one is
    complete; ``found_directory`` finds one of the two whatever happens in between. What is not
    ``durable`` may be lost when the machine crashes, since nothing is forced to the disk.

    Raises:
        StorageError: if the directory cannot be written, or something else has its place; nothing
            has changed.
    """
    refuse_gone(directory)
    new, old = _siblings(directory)
    try:
        _recover(directory)
        _refuse_foreign(directory)
        _make_parents(directory.parent, durable=durable)
        DISK.mkdir(new)
        yield new
        if durable:
            DISK.sync(new)
        if directory.exists():
            DISK.rename(directory, old)
        DISK.rename(new, directory)
        if durable:
            DISK.sync(directory.parent)
        _recover(directory)
    except (OSError, StorageError) as error:
        with contextlib.suppress(OSError):  # The first failure is the one to report.
            _recover(directory)
        if isinstance(error, OSError):
            raise refused(directory, error) from error
        raise


def found_directory(directory: Path) -> Path:
    """The complete directory of ``written_directory``, possibly between its two renames."""
    _, old = _siblings(directory)
    return old if (old / MANIFEST).exists() and not directory.exists() else directory


def check_file(path: Path, entry: FileEntry) -> None:
    """Compare a file with its entry in a manifest.

    Raises:
        StorageError: if the file is missing or damaged.
    """
    there = entry_of(path)
    if there.bytes != entry.bytes:
        raise StorageError(
            f"{path}: has {there.bytes:,} bytes where the manifest says {entry.bytes:,}; "
            "it is truncated or replaced"
        )
    if there.sha256 != entry.sha256:
        raise StorageError(f"{path}: is damaged: its sha256 does not match")


def refuse_surplus(directory: Path, expected: set[str]) -> None:
    """Refuse a directory with files that its manifest does not list.

    Raises:
        StorageError: if the directory has other files, or cannot be listed.
    """
    try:
        surplus = sorted({path.name for path in directory.iterdir()} - expected)
    except OSError as error:
        raise StorageError(f"{directory}: cannot be listed: {reason_of(error)}") from error
    if surplus:
        raise StorageError(f"{directory / surplus[0]}: is not in {MANIFEST}; remove this file")


def _siblings(directory: Path) -> tuple[Path, Path]:
    """Paths of the directory being written, and of the old one until that is complete."""
    parent, name = directory.parent, directory.name
    return parent / f".{name}.new", parent / f".{name}.old"


def _recover(directory: Path) -> None:
    """Remove what a writer left; the old directory takes its place again where there is no new."""
    new, old = _siblings(directory)
    if (old / MANIFEST).exists() and not directory.exists():
        DISK.rename(old, directory)
    for leftover in (new, old):
        if leftover.exists():
            DISK.remove(leftover)


def _refuse_foreign(directory: Path) -> None:
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise StorageError(f"{directory}: is not a directory; choose another place")
    if directory.exists() and any(directory.iterdir()) and not (directory / MANIFEST).is_file():
        raise StorageError(f"{directory}: holds other files; choose another place or empty it")


def _make_parents(directory: Path, *, durable: bool) -> None:
    """Create the missing parents of a path, and force each to the disk if ``durable``."""
    if not directory.exists():
        _make_parents(directory.parent, durable=durable)
        DISK.mkdir(directory)
        if durable:
            DISK.sync(directory.parent)
