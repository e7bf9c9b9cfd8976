"""Arrays of parts: in memory, or in files that are written and read one after another."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np
from jaxtyping import Int32

from empo_core.errors import StorageError
from empo_core.storage.arrays import DISK, FileOps, load_arrays, save_arrays

Arrays: TypeAlias = Mapping[str, np.ndarray]
Numbers: TypeAlias = Int32[np.ndarray, " slot"]


class PartStore(Protocol):
    """Keeps named arrays of every part under a kind, e.g. ``graph``."""

    def put(self, kind: str, part: int, arrays: Arrays) -> None:
        """Keep arrays, in place of older ones.

        Raises:
            StorageError: The disk refuses.
        """

    def get(self, kind: str, part: int) -> Arrays:
        """The arrays that were put.

        Raises:
            StorageError: They are not there.
        """

    def rows(self, kind: str, part: int, numbers: Numbers) -> Arrays:
        """The rows with ascending numbers of all arrays, as far as they have so many."""

    def fetch(self, kind: str, part: int) -> None:
        """Begin to read what will be wanted next."""

    def drop(self, kind: str) -> None:
        """Forget a kind, if it is there."""

    def flush(self) -> None:
        """Wait until all is kept.

        Raises:
            StorageError: The disk refuses.
        """


class MemoryStore:
    """Arrays in RAM; see ``PartStore``."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[int, Arrays]] = {}

    def put(self, kind: str, part: int, arrays: Arrays) -> None:
        """Keep arrays."""
        self._kept.setdefault(kind, {})[part] = arrays

    def get(self, kind: str, part: int) -> Arrays:
        """The arrays that were put."""
        return self._kept[kind][part]

    def rows(self, kind: str, part: int, numbers: Numbers) -> Arrays:
        """Rows of all arrays."""
        return _rows(self._kept[kind][part], numbers)

    def fetch(self, kind: str, part: int) -> None:
        """There is nothing to read."""

    def drop(self, kind: str) -> None:
        """Forget a kind."""
        self._kept.pop(kind, None)

    def flush(self) -> None:
        """Nothing is under way."""


class _Unsynced(FileOps):
    """Files that need not outlive a crash of the machine."""

    def sync(self, path: Path) -> None:
        """Leave it to the system when to write."""


class FileStore:
    """Arrays in a folder, each part's in a folder of its own; see ``PartStore``.

    One part's arrays are read ahead while another's are used. Files that this process did not write
    itself are checked when they are first read.
    """

    def __init__(self, directory: Path, problem: str) -> None:
        """Use a folder.

        Args:
            directory: Where; made if it is not there.
            problem: Identity of what is solved, so that files of another problem are refused.
        """
        self._directory = directory
        self._problem = problem
        self._trusted: set[Path] = set()
        self._reader = ThreadPoolExecutor(1, "part-reader")
        self._writer = ThreadPoolExecutor(1, "part-writer")
        self._writing: Future[None] | None = None
        self._ahead: dict[tuple[str, int], Future[Arrays]] = {}

    def put(self, kind: str, part: int, arrays: Arrays, ops: FileOps | None = None) -> None:
        """Write arrays; with ``DISK`` as ``ops`` they are safe when this returns."""
        self._ahead.pop((kind, part), None)
        self.flush()  # One at a time, so that no more are held in memory.
        self._writing = self._writer.submit(self._write, kind, part, arrays, ops or _Unsynced())

    def flush(self) -> None:
        """Wait until all is written.

        Raises:
            StorageError: The disk refuses.
        """
        if self._writing:
            writing, self._writing = self._writing, None
            writing.result()

    def get(self, kind: str, part: int) -> Arrays:
        """The arrays of a part."""
        coming = self._ahead.pop((kind, part), None)
        return coming.result() if coming else self._read(kind, part)

    def rows(self, kind: str, part: int, numbers: Numbers) -> Arrays:
        """Rows of all arrays; the others are not read."""
        return _rows(self._read(kind, part, mmap="r"), numbers)

    def fetch(self, kind: str, part: int) -> None:
        """Begin to read."""
        if (kind, part) not in self._ahead:
            self._ahead[kind, part] = self._reader.submit(self._read, kind, part)

    def drop(self, kind: str) -> None:
        """Remove the files of a kind."""
        shutil.rmtree(self._directory / kind, ignore_errors=True)

    def _folder(self, kind: str, part: int) -> Path:
        return self._directory / kind / f"part-{part:05d}"

    def _write(self, kind: str, part: int, arrays: Arrays, ops: FileOps) -> None:
        folder = self._folder(kind, part)
        folder.parent.mkdir(parents=True, exist_ok=True)
        save_arrays(folder, arrays, {"problem": self._problem}, ops=ops)
        self._trusted.add(folder)

    def _read(self, kind: str, part: int, mmap: Literal["r"] | None = None) -> Arrays:
        folder = self._folder(kind, part)
        if folder not in self._trusted:
            _, metadata = load_arrays(folder, mmap=True)
            if metadata.get("problem") != self._problem:
                raise StorageError(f"{folder} holds arrays of another problem")
            self._trusted.add(folder)
        return {
            path.stem: np.load(path, mmap_mode=mmap, allow_pickle=False)
            for path in folder.glob("*.npy")
        }


def _rows(arrays: Arrays, numbers: Numbers) -> Arrays:
    known = numbers[: np.searchsorted(numbers, min(map(len, arrays.values())))]
    return {name: array[known] for name, array in arrays.items()}


__all__ = ["DISK", "Arrays", "FileStore", "MemoryStore", "PartStore"]
