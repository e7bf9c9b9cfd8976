"""Append-only files of events, one JSON object per line.

A line is appended by one system call and forced to the disk, so a process that is killed leaves
whole lines, but for the last. That one is cut off, and any other bad line is an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from empo_core.errors import StorageError
from empo_core.runs.atomic import parse_json, refused
from empo_core.runs.files import open_append
from empo_core.trees import Json, JsonData


class EventLog:
    """A file of events that one process appends to.

    Attributes:
        events: Those that were in it when it was opened, in their order.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file, and cut off an incomplete last line.

        Raises:
            StorageError: if the path is no regular file, or a line is no JSON object; the message
                gives its number.
        """
        self._path = path
        self._file = open_append(path)
        self._file.seek(0)
        *lines, torn = self._file.read().split(b"\n")
        try:
            self.events = [_event(path, number, line) for number, line in enumerate(lines, 1)]
        except StorageError:
            self._file.close()
            raise
        if torn:
            self._file.truncate(self._file.tell() - len(torn))

    def append(self, events: Sequence[Mapping[str, JsonData]]) -> None:
        """Append events and force them to the disk.

        Raises:
            StorageError: if the file cannot be written.
        """
        data = "".join(f"{json.dumps(event, allow_nan=False)}\n" for event in events).encode()
        descriptor = self._file.fileno()
        try:
            size = os.fstat(descriptor).st_size
            if os.write(descriptor, data) != len(data):  # The disk is full.
                os.ftruncate(descriptor, size)
                raise OSError(28, "No space left on device")
            os.fsync(descriptor)
        except OSError as error:
            raise refused(self._path, error) from error

    def close(self) -> None:
        """Close the file; twice does no harm."""
        self._file.close()


def _event(path: Path, number: int, line: bytes) -> dict[str, Json]:
    event = parse_json(Path(f"{path}:{number}"), line)
    if not isinstance(event, dict):
        raise StorageError(f"{path}:{number}: is no JSON object")
    return event
