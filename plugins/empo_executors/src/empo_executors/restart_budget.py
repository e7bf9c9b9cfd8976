"""The number of times that one worker is replaced, and the pauses before."""

from __future__ import annotations

import logging
import time

log = logging.getLogger("empo_executors")
WINDOW_S = 60.0
"""Failures longer ago than this are forgiven where a payload has come since."""
_BACK_OFF_S = 0.05
_LONGEST_BACK_OFF_S = 1.0


class RestartBudget:
    """Failures of one worker: each postpones its replacement, too many end it.

    Attributes:
        last_failure: Why it failed the last time; empty where it has not.
        given_up: Whether it is not replaced any more.
    """

    def __init__(self, max_restarts: int) -> None:
        """Begin without failures.

        Args:
            max_restarts: Replacements within ``WINDOW_S``, or in a row without a payload.
        """
        self.last_failure = ""
        self.given_up = False
        self._max_restarts = max_restarts
        self._failures: list[float] = []
        self._due = 0.0

    @property
    def due(self) -> bool:
        """True where a process may be started now."""
        return not self.given_up and time.monotonic() >= self._due

    def give_up(self, reason: str) -> None:
        """Replace it no more, whatever is left."""
        self.given_up, self.last_failure = True, reason

    def fail(self, reason: str, *, fruitful: bool) -> None:
        """Note a failure.

        Args:
            reason: Why it failed.
            fruitful: Whether any payload had come from the failed process.
        """
        now = time.monotonic()
        if fruitful:
            self._failures = [then for then in self._failures if now - then < WINDOW_S]
        self._failures.append(now)
        self.last_failure = reason
        count = len(self._failures)
        self.given_up = count > self._max_restarts
        if self.given_up:
            log.warning("%s\nIt is given up after %d failures (max_restarts).", reason, count)
            return
        pause = min(_LONGEST_BACK_OFF_S, _BACK_OFF_S * 2 ** (count - 1))
        self._due = now + pause
        log.warning(
            "%s\nIt is replaced in %.2f s (%d of %d).", reason, pause, count, self._max_restarts
        )
