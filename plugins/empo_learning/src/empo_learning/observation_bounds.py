"""Observations beyond the bounds that their space declared."""

from __future__ import annotations

import numpy as np
from jaxtyping import Shaped

from empo_core.protocols.environments import ObservationSpec

NAMED = 3
"""Most words that are named."""


class ObservationBounds:
    """The bounds of each word of an observation's row; none where they are not known."""

    def __init__(self, observations: ObservationSpec) -> None:
        runs = np.array(observations.bounds, np.float64).reshape(-1, 3)
        self._low, self._high = (np.repeat(bound, runs[:, 0].astype(int)) for bound in runs.T[1:])

    def outside(self, row: Shaped[np.ndarray, " word"]) -> str:
        """Which words are beyond their bounds, what they are and what bounds them; else nothing."""
        if not len(self._low):
            return ""
        places = np.flatnonzero((row < self._low) | (row > self._high)).tolist()
        texts = [
            f"entry {place} is {row[place]:.6g} (from {self._low[place]:.6g} to "
            f"{self._high[place]:.6g})"
            for place in places[:NAMED]
        ]
        more = len(places) - NAMED
        return ", ".join(texts) + (f" and {more} more" if more > 0 else "")
