"""Ctrl-C, SIGTERM and SIGHUP that wait for a good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self, TypeAlias

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Windows has no SIGHUP, which says that a terminal was closed."""


Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None
"""What ``signal.signal`` takes and returns."""


def heeded() -> list[signal.Signals]:
    """The signals that stop a run; under ``nohup`` SIGHUP is ignored, and is to stay so."""
    hangup = getattr(signal, "SIGHUP", None)
    return [each for each in SIGNALS if each != hangup or signal.getsignal(each) != signal.SIG_IGN]


class Interrupts:
    """While entered, the first signal only sets ``are_pending``; a second one acts at once.

    A learner looks between its steps, so that what it saves is never half of a step.
    """

    def __init__(self) -> None:
        self._requested = False
        self._before: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> Self:
        """Take over the signals; only the main thread may, elsewhere nothing changes."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in heeded()}
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    @property
    def are_pending(self) -> bool:
        """True if a signal has arrived."""
        return self._requested

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._requested:
            raise KeyboardInterrupt
        self._requested = True
