"""File locks held by one process at a time, released by the kernel when the process ends."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from empo_core.errors import StorageError
from empo_core.runs.regular_files import open_append, reason_of

try:
    import fcntl
except ImportError:  # Not on Windows; there nothing is locked.
    fcntl = None  # type: ignore[assignment]

CAN_LOCK = fcntl is not None


def hold(path: Path, *, shared: bool = False) -> BinaryIO | None:
    """An open file that others cannot hold until it is closed; None where another process does.

    Args:
        path: Of the file, which is made if missing.
        shared: Let others hold it who share it, too.

    Raises:
        StorageError: if the file cannot be opened or locked.
    """
    file = open_append(path)
    if fcntl is None:
        return file
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError as error:
        file.close()
        raise StorageError(f"{path}: cannot be locked: {reason_of(error)}") from error
    return file
