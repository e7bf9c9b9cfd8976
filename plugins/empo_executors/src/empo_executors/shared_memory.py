"""Memory that several processes share."""

from __future__ import annotations

import os
import sys
import tempfile
from mmap import mmap

from empo_core.errors import ConfigError


class SharedMemory:
    """Memory without a name, so that nothing is left of it once no process has it.

    ``multiprocessing.shared_memory`` gives names, which outlive processes that are killed, in
    ``/dev/shm``, which is small in containers. This is limited by the machine's memory only.
    """

    def __init__(self, size: int, holds: str, advice: str) -> None:
        """Reserve memory, all 0.

        Args:
            size: Bytes, at least 1.
            holds: What it is for, for errors.
            advice: How to need less, for errors.

        Raises:
            ConfigError: There is not so much.
        """
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if size > total:
            raise ConfigError(
                f"{holds} take {size:,} bytes of shared memory, and the machine has {total:,}; "
                f"{advice}"
            )
        self.descriptor = _unnamed_file()
        try:
            os.ftruncate(self.descriptor, size)
            self.memory = mmap(self.descriptor, size)
        except OSError as error:
            os.close(self.descriptor)
            raise ConfigError(
                f"{size:,} bytes of memory for {holds} cannot be shared: {error}; {advice}"
            ) from error

    def close(self) -> None:
        """Share it with no other process; it lives as long as arrays in it."""
        os.close(self.descriptor)


def _unnamed_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("empo")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
