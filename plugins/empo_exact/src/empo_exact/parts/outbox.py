"""Messages between processes of one machine, in memory that they share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from mmap import mmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from empo_executors.shared_memory import SharedMemory

_TOKEN = 16
_KEPT = 4
"""Memories of another process that are kept open; any other is opened again."""
_HOLDS = "values for other processes"
_ADVICE = "use more parts on other machines, or a smaller max_steps"


class Address(NamedTuple):
    """Where other processes find the memory of one, if they are on its machine.

    Attributes:
        process: Its process ID.
        descriptor: Of some memory that it shares.
        token: What stands there, since another machine may have a process with this ID.
    """

    process: int
    descriptor: int
    token: bytes


class Place(NamedTuple):
    """Where a message is.

    Attributes:
        size: Its length in bytes.
        begin: Where it begins in its memory.
        descriptor: Of the memory.
        number: How many memories the process had shared when it shared this one: a descriptor may
            be used again.
    """

    size: int
    begin: int
    descriptor: int
    number: int


class Outbox:
    """Messages of one process to others of its machine.

    Each purpose has two memories: one is written while others may still read from the other.

    Attributes:
        address: Tells others where it is.
    """

    def __init__(self) -> None:
        token = secrets.token_bytes(_TOKEN)
        self._token = _shared(_TOKEN)
        self._token.memory[:] = token
        self.address = Address(os.getpid(), self._token.descriptor, token)
        self._memories: dict[tuple[str, int], tuple[int, SharedMemory]] = {}
        self._turns: dict[str, int] = {}
        self._count = 0

    def write(self, messages: Sequence[Sequence[bytes | memoryview]], purpose: str) -> list[Place]:
        """Write messages, each in pieces, over those of the call before the last for a purpose."""
        sizes = [sum(map(len, pieces)) for pieces in messages]
        number, memory = self._room(purpose, max(1, sum(sizes)))
        into, at, places = np.frombuffer(memory.memory, np.uint8), 0, []
        for size, pieces in zip(sizes, messages, strict=True):
            places.append(Place(size, at, memory.descriptor, number))
            for piece in filter(len, pieces):
                into[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
                at += len(piece)
        return places

    def close(self) -> None:
        """Share nothing any more; what others read now stays."""
        for memory in (self._token, *(memory for _, memory in self._memories.values())):
            memory.close()

    def _room(self, purpose: str, size: int) -> tuple[int, SharedMemory]:
        turn = self._turns[purpose] = 1 - self._turns.get(purpose, 0)
        number, memory = self._memories.get((purpose, turn), (0, None))
        if memory is None or len(memory.memory) < size:
            if memory is not None:
                memory.close()
            self._count += 1
            number, memory = self._count, _shared(size + size // 8)
            self._memories[purpose, turn] = number, memory
        return number, memory


class Inbox:
    """Messages that one other process of this machine writes into its outbox.

    Attributes:
        is_near: It is on this machine, and its memory can be read.
    """

    def __init__(self, address: Address) -> None:
        self._process = address.process
        self._memories: dict[int, mmap] = {}
        try:
            memory = memory_of(address.process, address.descriptor)
            self.is_near = memory[:_TOKEN] == address.token
        except (OSError, ValueError):
            self.is_near = False

    def read(self, place: Place) -> memoryview:
        """A message; it stands there until the process writes the one after the next.

        Raises:
            OSError: if the process is gone.
        """
        if place.number not in self._memories:
            if len(self._memories) == _KEPT:  # The one that was opened first is no longer used.
                del self._memories[next(iter(self._memories))]
            self._memories[place.number] = memory_of(self._process, place.descriptor)
        return memoryview(self._memories[place.number])[place.begin : place.begin + place.size]


def memory_of(process: int, descriptor: int) -> mmap:
    """The memory that another process of this machine and user shares.

    Args:
        process: Its process ID.
        descriptor: ``SharedMemory.descriptor`` there.

    Raises:
        OSError: if the process is gone or shares no such memory, or if the system does not show
            what processes have open.
    """
    opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR)
    try:
        return mmap(opened, 0)
    finally:
        os.close(opened)


def _shared(size: int) -> SharedMemory:
    # Imported here because most runs have one process.
    from empo_executors.shared_memory import SharedMemory

    memory = SharedMemory(_HOLDS, _ADVICE)
    memory.reserve(size)
    return memory
