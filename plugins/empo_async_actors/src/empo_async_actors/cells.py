"""Numbers that the learner and one actor see of each other without waiting.

Each cell is an aligned 8-byte integer in a small file that both map into memory, and has one
writer. A message would not do: a pipe to an actor that hangs fills up and blocks the learner.
"""

from __future__ import annotations

import mmap
from enum import IntEnum
from pathlib import Path


class Cell(IntEnum):
    """Which number; the learner writes the first block, the actor the second."""

    STOP = 0
    """1 where the actor is to end."""
    TRAINING_STEP = 1
    """Training steps so far."""
    GRANTED = 2
    """Environment steps up to which the actor may begin further ones."""
    VERSION = 3
    """The newest policy."""
    MESSAGES = 4
    """States sent to the actor so far, to go on from."""
    STATE_ASKED = 5
    """How often the actor was asked for its state."""

    BEAT = 8
    """Grows as long as the actor lives."""
    SENT = 9
    """Frames that the actor has begun to send; written before the frame."""
    ACKNOWLEDGED = 10
    """The policy that the actor has loaded."""


_SIZE = 4096


class Cells:
    """The cells of one actor process."""

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


__all__ = ["Cell", "Cells"]
