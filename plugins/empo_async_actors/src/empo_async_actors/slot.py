"""One actor of a collector, whichever process it is at the moment: replaced when it fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from empo_async_actors.process import ActorProcess

log = logging.getLogger("empo_async_actors")
WINDOW_S = 60.0
"""Failures longer ago than this are forgiven where experience has arrived since."""
_BACK_OFF_S = 0.05
_LONGEST_BACK_OFF_S = 1.0
_LAST_FRAMES_S = 2.0
"""For how long the last frames of a killed process are waited for."""
_EXIT_S = 0.5
"""What a process may take to exit after its pipe has ended."""


class Slot:
    """Keeps one actor running within a budget of replacements."""

    def __init__(
        self, actor: int, start: Callable[[int, int], ActorProcess], max_restarts: int
    ) -> None:
        """Remember how to start it; ``run`` does so.

        Args:
            actor: The actor's number.
            start: From the actor's number and its incarnation to a running process.
            max_restarts: Replacements within ``WINDOW_S``, or in a row without experience.
        """
        self.actor = actor
        self.process: ActorProcess | None = None
        self.restarts = 0
        self.last_failure = ""
        self.given_up = False
        self._start = start
        self._max_restarts = max_restarts
        self._incarnation = 0
        self._failures: list[float] = []
        self._due = 0.0
        self._killed_at: float | None = None

    def run(self, heartbeat_s: float, start_timeout_s: float) -> None:
        """Start it where that is due, and kill it where it hangs."""
        if self.process is None:
            if not self.given_up and time.monotonic() >= self._due:
                self._begin()
            return
        limit = heartbeat_s if self.process.ready else start_timeout_s
        if self._killed_at is not None:
            # Its end arrives behind its last frames, unless a process of its own holds the pipe.
            if time.monotonic() - self._killed_at > _LAST_FRAMES_S:
                self.end()
        elif self.process.silence_s() > limit:
            doing = "showed no sign of life" if self.process.ready else "was not ready"
            name = "heartbeat_s" if self.process.ready else "start_timeout_s"
            self.process.trouble = f"{doing} for {limit:g} s ({name}) and was killed"
            self.process.kill()
            self._killed_at = time.monotonic()

    def end(self) -> None:
        """Its process has ended: say so, and plan another one."""
        process = self.process
        if process is None:
            return
        process.join(_EXIT_S)
        reason = process.obituary()
        self.process = self._killed_at = None
        process.close()
        self._fail(reason, fruitful=process.account.experiences > 0)

    def _begin(self) -> None:
        self.restarts += self._incarnation > 0
        try:
            self.process = self._start(self.actor, self._incarnation)
        except OSError as error:
            self._fail(f"actor {self.actor} could not be started: {error}", fruitful=False)
        self._incarnation += 1

    def _fail(self, reason: str, *, fruitful: bool) -> None:
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


__all__ = ["WINDOW_S", "Slot"]
