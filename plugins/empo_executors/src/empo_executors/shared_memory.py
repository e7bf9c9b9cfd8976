"""Memory that several processes share."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from mmap import mmap
from multiprocessing import reduction
from typing import Any

from empo_core.errors import ConfigError


class SharedMemory:
    """Memory without a name, so that nothing is left of it once no process has it.

    ``multiprocessing.shared_memory`` gives names, which outlive processes that are killed, in
    ``/dev/shm``, which is small in containers. This is limited by the machine's memory only.
    """

    def __init__(self, holds: str, advice: str) -> None:
        """Begin without memory.

        Args:
            holds: What it is for, for errors.
            advice: How to need less, for errors.
        """
        self._holds, self._advice = holds, advice
        self.descriptor = _unnamed_file()

    def reserve(self, size: int) -> mmap:
        """Reserve memory once, all 0.

        Args:
            size: Bytes, at least 1.

        Raises:
            ConfigError: if there is not so much.
        """
        holds, advice = self._holds, self._advice
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if size > total:
            raise ConfigError(
                f"{holds} take {size:,} bytes of shared memory, and the machine has {total:,}; "
                f"{advice}"
            )
        try:
            os.ftruncate(self.descriptor, size)
            self.memory = mmap(self.descriptor, size)
        except OSError as error:
            raise ConfigError(
                f"{size:,} bytes of memory for {holds} cannot be shared: {error}; {advice}"
            ) from error
        return self.memory

    def close(self) -> None:
        """Share it with no other process; it lives as long as arrays in it."""
        os.close(self.descriptor)


class Descriptor:
    """A file descriptor as an argument of a process that starts, where its number is another."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Callable[[Any], Descriptor], tuple[Any]]:
        """Sent by ``multiprocessing`` while it starts a process, and by nothing else."""
        return _received, (reduction.DupFd(self.number),)


def _received(duplicate: Any) -> Descriptor:
    return Descriptor(duplicate.detach())


def _unnamed_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("empo")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
