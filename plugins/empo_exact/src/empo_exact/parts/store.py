"""Arrays of parts: in memory, or in files that are written and read one after another."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Int32

from empo_core.errors import StorageError
from empo_core.runs.atomic import DISK, MANIFEST, refused, write_file
from empo_core.runs.files import reason_of
from empo_worlds.arrays import load_array, load_arrays, save_arrays
from empo_worlds.directories import found_directory

log = logging.getLogger("empo_exact")

_PREFIX = "part-"
_OWNER, _SOLVED = "problem", "solved"
_DYING = ".dropped"
"""Folders that are being removed."""

Arrays: TypeAlias = Mapping[str, np.ndarray]
Numbers: TypeAlias = Int32[np.ndarray, " halo_state"]


@runtime_checkable
class PartStore(Protocol):
    """Keeps named arrays of every part under a kind, e.g. ``graph``."""

    def put(self, kind: str, part: int, arrays: Arrays) -> None:
        """Keep arrays, in place of older ones.

        Raises:
            StorageError: if the disk refuses.
        """

    def get(self, kind: str, part: int) -> Arrays:
        """The arrays that were put.

        Raises:
            StorageError: if the arrays are not there.
        """

    def rows(self, kind: str, part: int, numbers: Numbers) -> Arrays:
        """The rows with ascending numbers of all arrays, as far as they have so many."""

    def view(self, kind: str, part: int) -> Arrays:
        """The arrays, of which only what is used is read."""

    def fetch(self, kind: str, part: int) -> None:
        """Begin to read what will be wanted next."""

    def drop(self, kind: str, parts: Sequence[int]) -> None:
        """Forget parts' arrays of a kind, where they are there."""

    def flush(self) -> None:
        """Wait until all is kept.

        Raises:
            StorageError: if the disk refuses.
        """


class MemoryStore:
    """Arrays in RAM; see ``PartStore``."""

    def __init__(self) -> None:
        self._arrays: dict[str, dict[int, Arrays]] = {}

    def put(self, kind: str, part: int, arrays: Arrays) -> None:
        """Keep arrays."""
        self._arrays.setdefault(kind, {})[part] = arrays

    def get(self, kind: str, part: int) -> Arrays:
        """The arrays that were put."""
        return self._arrays[kind][part]

    def rows(self, kind: str, part: int, numbers: Numbers) -> Arrays:
        """Rows of all arrays."""
        return _rows(self._arrays[kind][part], numbers)

    def view(self, kind: str, part: int) -> Arrays:
        """The arrays that were put."""
        return self._arrays[kind][part]

    def fetch(self, kind: str, part: int) -> None:
        """There is nothing to read."""

    def drop(self, kind: str, parts: Sequence[int]) -> None:
        """Forget parts."""
        for part in parts:
            self._arrays[kind].pop(part, None)

    def flush(self) -> None:
        """Nothing is under way."""


class FileStore:
    """Arrays in a folder, each part's in a folder of its own; see ``PartStore``.

    One part's arrays are read ahead while another's are used, and others are written meanwhile.
    Files that this process did not write itself are checked when they are first read.

    Attributes:
        directory: The folder.
    """

    def __init__(self, directory: Path, problem: str) -> None:
        """Use a folder.

        Args:
            directory: Where; made if it is not there.
            problem: Identity of what is solved, so that files of another problem are refused.
        """
        self.directory = directory
        self._problem = problem
        self._trusted: dict[Path, list[str]] = {}
        self._reader = ThreadPoolExecutor(1, "part-reader")
        self._writer = ThreadPoolExecutor(1, "part-writer")
        self._reads: dict[tuple[str, int], Future[Arrays]] = {}
        self._writing: Future[None] | None = None
        self._written: tuple[str, int] | None = None

    def claim(self) -> None:
        """Reserve the folder for this problem, unless it has files of another one.

        Files of a problem that is solved, and whose result nobody saved, are removed.

        Raises:
            StorageError: if the folder has files of another problem, or the disk refuses.
        """
        path = self.directory / _OWNER
        try:
            self.directory.mkdir(exist_ok=True)
            owner = path.read_text(errors="replace") if path.exists() else None
            if (self.directory / _SOLVED).is_file() and owner != self._problem:
                self.remove()
                self.directory.mkdir(exist_ok=True)
                owner = None
            (self.directory / _SOLVED).unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{self.directory}: cannot be used: {error}") from error
        if owner is None:
            write_file(path, self._problem.encode())
        elif owner != self._problem:
            raise StorageError(
                f"{self.directory} holds files of another problem, which might be wanted; remove "
                "them, or choose another directory"
            )

    def put(self, kind: str, part: int, arrays: Arrays) -> None:
        """Write arrays, in the background."""
        self._reads.pop((kind, part), None)
        self.flush()  # One at a time, so that no more are held in memory.
        self._written = kind, part
        self._writing = self._writer.submit(self._write, kind, part, arrays)

    def flush(self) -> None:
        """Wait until all is written.

        Raises:
            StorageError: if the disk refuses.
        """
        if self._writing:
            writing, self._writing = self._writing, None
            writing.result()

    def sync(self, kind: str, parts: Sequence[int]) -> None:
        """Force what was put under a kind to the disk.

        Raises:
            StorageError: if the disk refuses.
        """
        self.flush()
        for part in parts:
            folder = self._folder(kind, part)
            try:
                for path in (*folder.iterdir(), folder, folder.parent):
                    DISK.sync(path)
            except OSError as error:
                raise StorageError(f"{folder}: could not be written: {error}") from error

    def get(self, kind: str, part: int) -> Arrays:
        """The arrays of a part."""
        coming = self._reads.pop((kind, part), None)
        if coming:
            return coming.result()
        self._settle(kind, part)
        return self._read(kind, part)

    def rows(self, kind: str, part: int, numbers: Numbers) -> Arrays:
        """Rows of all arrays; the others are not read."""
        return _rows(self.view(kind, part), numbers)

    def view(self, kind: str, part: int) -> Arrays:
        """The arrays, mapped into memory."""
        self._settle(kind, part)
        return self._read(kind, part, mmap=True)

    def fetch(self, kind: str, part: int) -> None:
        """Begin to read."""
        if (kind, part) not in self._reads:
            self._reads[kind, part] = self._reader.submit(self._read, kind, part)

    def check(self, kind: str, part: int) -> None:
        """Refuse files that were not written for this problem, or are damaged.

        Raises:
            StorageError: if the files were not written for this problem, are damaged, or are not
                there.
        """
        folder = self._folder(kind, part)
        if folder in self._trusted:
            return
        arrays, metadata = load_arrays(folder, mmap=True)
        if metadata.get("problem") != self._problem:
            raise StorageError(f"{folder} holds arrays of another problem")
        self._trusted[folder] = list(arrays)

    def drop(self, kind: str, parts: Sequence[int]) -> None:
        """Remove files; what the disk refuses to remove is tried again by ``remove``."""
        self.flush()
        for part in parts:
            with contextlib.suppress(OSError):
                self._remove(self._folder(kind, part))

    def mark_solved(self) -> None:
        """Say that the problem is solved, so that its files may be removed for another one's.

        Raises:
            StorageError: if the disk refuses.
        """
        write_file(self.directory / _SOLVED, b"")

    def close(self) -> None:
        """Wait until nothing is read or written any more."""
        self._reader.shutdown(cancel_futures=True)
        self._writer.shutdown()

    def remove(self) -> None:
        """Remove all files, those of other processes too; nothing is being written any more.

        What the disk refuses to remove stays there, with a warning.
        """
        self.flush()
        folders = {
            # Hidden ones are of writers that were killed.
            folder.with_name(folder.name.removeprefix(".").partition(".")[0])
            for pattern in (f"{_PREFIX}[0-9]*", f".{_PREFIX}[0-9]*")
            for folder in self.directory.glob(f"*/{pattern}")
        }
        refusals = []
        for folder in sorted(folders):
            try:
                self._remove(folder)
            except OSError as error:
                refusals.append(error)
            for unfinished in folder.parent.glob(f".{folder.name}.new"):
                shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(self.directory / _DYING, ignore_errors=True)
        for name in (_OWNER, _SOLVED):
            (self.directory / name).unlink(missing_ok=True)
        for empty in (*self.directory.glob("*/"), self.directory):
            with contextlib.suppress(OSError):
                empty.rmdir()
        if refusals:
            log.warning(
                "%s: the disk refused to remove %d of %d folders (%s); the results do not depend "
                "on them, delete them",
                self.directory, len(refusals), len(folders), reason_of(refusals[0]),
            )  # fmt: skip

    def _remove(self, folder: Path) -> None:
        """Remove a folder of arrays; renamed first, so that no half of it is ever in its place."""
        self._trusted.pop(folder, None)
        if not _is_ours(folder):
            return
        dying = self.directory / _DYING / folder.relative_to(self.directory)
        dying.parent.mkdir(parents=True, exist_ok=True)
        # In this order, since the old one, which a writer left, would be found again.
        for path in (folder.with_name(f".{folder.name}.old"), folder):
            if path.exists():
                if dying.exists():
                    DISK.remove(dying)
                DISK.rename(path, dying)
                DISK.remove(dying)

    def _settle(self, kind: str, part: int) -> None:
        """Wait for a part that is being written."""
        if self._written == (kind, part):
            self.flush()

    def _folder(self, kind: str, part: int) -> Path:
        return self.directory / kind / f"{_PREFIX}{part:05d}"

    def _write(self, kind: str, part: int, arrays: Arrays) -> None:
        folder = self._folder(kind, part)
        try:  # Here, since several processes may do so at the same time.
            folder.parent.mkdir(exist_ok=True)
            if not (folder / MANIFEST).exists():
                self._remove(folder)
        except OSError as error:
            raise refused(folder, error) from error
        # Until ``sync`` a crash of the machine may lose them.
        save_arrays(folder, arrays, {"problem": self._problem}, durable=False)
        self._trusted[folder] = list(arrays)

    def _read(self, kind: str, part: int, *, mmap: bool = False) -> Arrays:
        self.check(kind, part)
        folder = self._folder(kind, part)
        there = found_directory(folder)
        try:
            return {
                name: load_array(there / f"{name}.npy", mmap=mmap) for name in self._trusted[folder]
            }
        except (OSError, ValueError) as error:  # They have been changed meanwhile.
            raise StorageError(f"{folder}: cannot be read: {error}") from error


def _is_ours(folder: Path) -> bool:
    """True if a folder has nothing but arrays, also where a crash has left only some of them."""
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError:  # It is not there, or no folder.
        return not os.path.lexists(folder)
    return MANIFEST in names or all(name.endswith(".npy") for name in names)


def _rows(arrays: Arrays, numbers: Numbers) -> Arrays:
    present = numbers[: np.searchsorted(numbers, min(map(len, arrays.values())))]
    return {name: array[present] for name, array in arrays.items()}
