"""Numbers that a caller and one worker process share without waiting for each other.

Each cell is an aligned 8-byte integer in a small file that both map into memory, and has one
writer. A message would not do: a pipe to a worker that hangs fills up and blocks the caller.
"""

from __future__ import annotations

import mmap
from enum import IntEnum
from pathlib import Path


class Cell(IntEnum):
    """Position of each number; the caller writes the first block, the worker the second."""

    STOP = 0
    """1 where the worker is to end."""
    VERSION = 1
    """The newest broadcast."""

    BEAT = 8
    """Grows as long as the process lives and is not stopped."""
    SENT = 9
    """Frames that the worker has begun to send; written before the frame."""
    LOADED = 10
    """The broadcast that the worker has loaded."""


_SIZE = 4096


class Cells:
    """The cells of one worker process."""

    def __init__(self, path: Path) -> None:
        """Map the file that ``create`` wrote."""
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        self._words = memoryview(self._map).cast("q")

    @classmethod
    def create(cls, path: Path) -> Cells:
        """Write a file of zeros and map it.

        Raises:
            OSError: The disk is full; found out here rather than by SIGBUS later, because the
                bytes are written and not only declared.
        """
        path.write_bytes(bytes(_SIZE))
        return cls(path)

    def __getitem__(self, cell: Cell) -> int:
        """The number in a cell."""
        return self._words[cell]

    def __setitem__(self, cell: Cell, value: int) -> None:
        """Change the number in a cell."""
        self._words[cell] = value

    def close(self) -> None:
        """Unmap the file; the cells cannot be used afterwards."""
        self._words.release()
        self._map.close()
