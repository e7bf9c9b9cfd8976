"""Actions in [-1, 1] as environments take them: between bounds of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Float32


class ActionBounds:
    """Least and greatest of each number of an action in one environment."""

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        self._low, self._high = np.array(low), np.array(high)
        self._middle, self._half = (self._low + self._high) / 2, (self._high - self._low) / 2

    def action(self, scaled: Float[np.ndarray, " action"]) -> Float32[np.ndarray, " number"]:
        """The environment's action, of the first numbers of one in [-1, 1]: those that it uses."""
        numbers = scaled[: len(self._low)]
        # Not np.clip, which takes several times as long for so few numbers.
        unbounded = self._middle + self._half * np.minimum(np.maximum(numbers, -1.0), 1.0)
        bounded: np.ndarray = np.minimum(np.maximum(unbounded, self._low), self._high)
        return bounded.astype(np.float32)
