"""A worker that does as it is told; without torch, which a process would take seconds to import."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from empo_core.protocols import Report


class EchoWorker:
    """Answers, reports, raises, sleeps and dies."""

    def __init__(self) -> None:
        self._last: object = None

    def pid(self) -> int:
        """Number of this process."""
        return os.getpid()

    def echo(self, value: object) -> object:
        """The value, which is remembered."""
        self._last = value
        return value

    def last(self) -> object:
        """The value of the last ``echo``."""
        return self._last

    def parts(self, report: Report, number: int, size: int = 0) -> str:
        """Report numbers, each with so many bytes."""
        for part in range(number):
            report((part, bytes(size)))
        return "done"

    def until_called(self, report: Report) -> str:
        """Report until another call waits."""
        while not report("waiting"):
            time.sleep(0.005)
        return "called"

    def fail(self) -> None:
        """Raise an error."""
        raise ValueError("the planted fault")

    def unsendable(self) -> object:
        """What cannot be sent."""
        return (number for number in range(3))

    def sleep(self, report: Report) -> None:
        """Report once, and never answer."""
        report("good night")
        time.sleep(1e6)

    def die(self, report: Report) -> None:
        """Report once, and end the process."""
        report("last words")
        os._exit(9)


def unbuildable() -> EchoWorker:
    """A factory that fails."""
    raise ValueError("there is no such worker")
