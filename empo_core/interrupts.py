"""Ctrl-C, SIGTERM and SIGHUP: they end a run in good order, or wait for a good moment."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self, TypeAlias

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the wish of the system, and a terminal that was closed."""
COMPILER = "llvmlite"
"""Python called back by it loses exceptions, and with them the kernel that is being loaded."""
RETRY_S = 0.05
"""Seconds after which a signal that arrived within the compiler comes again."""
REPEATED_S = 2.0
"""Seconds in which a further signal is taken for a repetition of the one that ends a run."""

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None
"""What ``signal.signal`` takes and returns."""


def comes_again(number: int, frame: FrameType | None) -> bool:
    """True if a signal arrived within the compiler; it is sent again in a moment."""
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] != COMPILER:
        frame = frame.f_back
    if frame is None:
        return False
    main = threading.main_thread().ident or 0
    threading.Timer(RETRY_S, signal.pthread_kill, (main, number)).start()
    return True


def process_exists(pid: object) -> bool:
    """Whether a process of this machine has a number, whoever's it is."""
    try:
        os.kill(int(str(pid)), 0)
    except PermissionError:
        return True
    except (ValueError, OverflowError, OSError):
        return False
    return True


class _Entered(threading.local):
    """What was entered in each thread, the newest last."""

    def __init__(self) -> None:
        self.stack: list[Termination] = []


_entered = _Entered()


def interrupt() -> None:
    """Interrupt the run of this thread as SIGTERM would, without a signal: others go on.

    Raises:
        KeyboardInterrupt: if the run does not wait for a good moment, or there is none.
    """
    if not _entered.stack:
        raise KeyboardInterrupt
    _entered.stack[-1].handle(signal.SIGTERM, None)


class Termination:
    """While entered, signals raise KeyboardInterrupt, but not while a run is being wound up.

    Who presses Ctrl-C several times means it once; a second KeyboardInterrupt would leave half of
    the records, moving bars and processes. One that takes long can still be cut short.
    """

    def __init__(self) -> None:
        self._since = -REPEATED_S
        self._before: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> Self:
        """Take over the signals; only the main thread may, elsewhere nothing changes."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # Under ``nohup`` SIGHUP is ignored, and is to stay so.
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self.handle)
        _entered.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back."""
        _entered.stack.pop()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def begin(self) -> None:
        """The run is being wound up from now on."""
        self._since = time.monotonic()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """End the run, unless it is ending anyway; within the compiler, in a moment."""
        is_repeated = time.monotonic() - self._since < REPEATED_S
        if not comes_again(number, frame) and not is_repeated:
            self.begin()
            raise KeyboardInterrupt


class Interrupts(Termination):
    """While entered, the first signal only sets ``are_pending``; a second one acts at once.

    A learner looks between its steps, so that what it saves is never half of a step. Within
    ``raising`` the first signal acts at once, too.
    """

    def __init__(self, announce: Callable[[signal.Signals], None] | None = None) -> None:
        """Nothing is pending yet.

        Args:
            announce: Says what a signal waits for, in a thread of its own, since what the signal
                breaks into may hold the locks of logging.
        """
        super().__init__()
        self._announce = announce
        self._requested = self._is_raising = False

    @property
    def are_pending(self) -> bool:
        """True if a signal has arrived."""
        return self._requested

    @contextmanager
    def raising(self) -> Iterator[None]:
        """A block without lasting effects, which a signal ends by a KeyboardInterrupt at once.

        Raises:
            KeyboardInterrupt: if a signal arrives, or has arrived before the block.
        """
        self._is_raising = True
        try:
            if self._requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_raising = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; of later ones, the handler before decides if there is one."""
        if not self._requested and not self._is_raising:
            self._requested = True
            if self._announce is not None:
                name = signal.Signals(number)
                threading.Thread(target=self._announce, args=(name,), daemon=True).start()
        elif self._is_raising and comes_again(number, frame):
            return
        else:
            self._requested, self._is_raising = True, False
            before = self._before.get(signal.Signals(number))
            if callable(before):
                before(number, frame)
            else:
                raise KeyboardInterrupt
