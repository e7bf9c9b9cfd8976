"""Numbers of states: the human's cell times the number of the combination of boxes."""

from __future__ import annotations

from math import comb

import numpy as np
from jaxtyping import Int64, Integer

from empo_core.errors import WorldError


class Ranks:
    """Numbers 0, 1, 2, ... of all rows of a board, reachable or not, without a table of them.

    Boxes b_1 < b_2 < ... have the number C(b_1, 1) + C(b_2, 2) + ... among all combinations.

    Attributes:
        count: How many rows there are.
    """

    def __init__(self, cells: int, boxes: int) -> None:
        """Prepare the binomial coefficients.

        Raises:
            WorldError: if there are more rows than 64 bits can number.
        """
        self._combinations = comb(cells, boxes)
        self.count = cells * self._combinations
        if self.count >= 1 << 63:
            raise WorldError(
                f"{boxes} boxes on {cells} cells have {self.count} states, more than 64 bits number"
            )
        # Entries beyond the last that is needed may be too large: they are never looked up.
        self._choose: Int64[np.ndarray, "word cell"] = np.array(
            [
                [min(comb(cell, box), (1 << 63) - 1) for cell in range(cells)]
                for box in range(1, boxes + 1)
            ]
        )

    def rank(self, states: Integer[np.ndarray, "state word"]) -> Int64[np.ndarray, " state"]:
        """The number of each row."""
        number = states[:, 0].astype(np.int64) * self._combinations
        for box, choose in enumerate(self._choose, start=1):
            number += choose[states[:, box]]
        return number

    def unrank(self, numbers: Int64[np.ndarray, " state"]) -> Integer[np.ndarray, "state word"]:
        """The row of each number.

        Raises:
            WorldError: if a number is not in ``[0, count)``.
        """
        if ((numbers < 0) | (numbers >= self.count)).any():
            raise WorldError(f"states are numbered from 0 to {self.count - 1}")
        states = np.empty((len(numbers), 1 + len(self._choose)), np.int16)
        states[:, 0], remainder = np.divmod(numbers, self._combinations)
        for box in range(len(self._choose), 0, -1):
            choose = self._choose[box - 1]
            states[:, box] = cell = np.searchsorted(choose, remainder, side="right") - 1
            remainder = remainder - choose[cell]
        return states
