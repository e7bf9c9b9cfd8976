"""Store of the values of each time step: in RAM, on disk, or only for the start."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from empo_core.errors import NonFiniteError, StorageError
from empo_exact.game import Values, arrays_of, values_of
from empo_worlds.arrays import load_arrays, save_arrays

log = logging.getLogger("empo_exact")


def _allow_descriptors() -> None:
    """Raise the limit of open files, of which each time has three, as far as this process may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # Some systems allow less than they say.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Store(Protocol):
    """The values of the times that were kept."""

    @property
    def keep(self) -> str:
        """What is kept."""

    @property
    def times(self) -> list[int]:
        """The times whose values are at hand, ascending."""

    def at(self, time: int) -> Values:
        """The values of one time; ``KeyError`` where they were not kept."""

    def place(self, directory: Path) -> tuple[str, str] | None:
        """Folder of the values, relative to another, and the problem's digest; None: in RAM."""


class ValueStore:
    """The values of all times, kept as asked.

    Attributes:
        keep: What is kept; ``none`` keeps times 0 and 1, which the policy at time 0 needs.
    """

    def __init__(self, keep: str, directory: Path | None, digest: str) -> None:
        if keep == "disk" and directory is None:
            raise StorageError("keep: disk needs a directory to keep the values in")
        if keep == "disk":
            _allow_descriptors()
        self.keep = keep
        self._directory = directory
        self._digest = digest
        self._values: dict[int, Values] = {}

    def sibling(self, name: str) -> ValueStore:
        """An empty store that keeps as much, on disk in a folder of this name within this one's."""
        directory = None if self._directory is None else self._directory / name
        return ValueStore(self.keep, directory, self._digest)

    def place(self, directory: Path) -> tuple[str, str] | None:
        """Folder of the values, relative to another, and the problem's digest; None: in RAM."""
        if self.keep != "disk" or self._directory is None:
            return None
        return os.path.relpath(self._directory, directory), self._digest

    @property
    def times(self) -> list[int]:
        """The times whose values are at hand, ascending."""
        return sorted(self._values)

    def put(self, time: int, values: Values, answers: int = 0) -> None:
        """Keep the values of one time, found with priors of these ``answers``."""
        if self.keep == "none" and time > 1:
            return
        if self.keep == "disk":
            metadata = {"problem": self._digest, "answers": f"{answers:016x}"}
            save_arrays(self._folder(time), arrays_of(values), metadata)
            values, _ = self._load(time)
        self._values[time] = values

    def at(self, time: int) -> Values:
        """The values of one time.

        Raises:
            KeyError: if the values were not kept.
        """
        return self._values[time]

    def recover(
        self,
        last: int,
        check: Callable[[Values], None] = lambda values: None,
        answers: Callable[[int], int] | None = None,
    ) -> int | None:
        """Take up what an interrupted run of the same problem left on disk.

        Args:
            last: The time that was saved first.
            check: Refuses the values of a time by ``NonFiniteError``; they are not taken up.
            answers: The fingerprint of what priors answer at a time; values that were found with
                other answers are not taken up. None: it is not compared.

        Returns:
            The earliest time of an unbroken stretch down from ``last``; None if there is none.
        """
        earliest = None
        for time in range(last, -1, -1):
            try:
                values, found_with = self._load(time)
                check(values)
                if answers and found_with != f"{answers(time):016x}":
                    raise StorageError(
                        f"{self._folder(time)} holds values of a human prior or habit that "
                        "answers otherwise"
                    )
            except (StorageError, NonFiniteError) as error:
                if self._folder(time).exists():
                    log.warning(
                        "%s refused, going on from before it: %s", self._folder(time), error
                    )
                break
            self._values[time] = values
            earliest = time
        return earliest

    def _load(self, time: int) -> tuple[Values, object]:
        arrays, metadata = load_arrays(self._folder(time), mmap=True)
        if metadata.get("problem") != self._digest:
            raise StorageError(f"{self._folder(time)} holds values of another problem")
        return values_of(arrays), metadata.get("answers")

    def _folder(self, time: int) -> Path:
        if self._directory is None:
            raise StorageError("no directory to keep values in")
        return self._directory / f"t{time:05d}"
