"""Deadline of workers that start more slowly than others."""

from __future__ import annotations

import time

_OTHERS_S = 2.0
"""Shortest time that others are waited for."""


class StartDeadline:
    """The others are waited for as long again as the first took, or two seconds."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._first_s = 0.0

    def is_over(self, ready: int) -> bool:
        """True where so many are ready that the others are waited for no longer."""
        if not ready:
            return False
        passed = time.monotonic() - self._begun
        self._first_s = self._first_s or passed
        return passed > self._first_s + max(self._first_s, _OTHERS_S)
