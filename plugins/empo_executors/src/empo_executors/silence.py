"""Time without a sign of life."""

from __future__ import annotations

import time

_LONGEST_LOOK_S = 1.0
"""Time without looking that counts at most: who was suspended cannot blame the workers."""


class Silence:
    """Seconds, while its owner looked, that a count has not grown."""

    def __init__(self) -> None:
        self._count, self._silence_s, self._looked = 0, 0.0, time.monotonic()

    def seconds(self, count: int) -> float:
        """Look at the count, and say for how long it has been the same."""
        now = time.monotonic()
        elapsed = min(now - self._looked, _LONGEST_LOOK_S)
        self._silence_s = 0.0 if count != self._count else self._silence_s + elapsed
        self._count, self._looked = count, now
        return self._silence_s
