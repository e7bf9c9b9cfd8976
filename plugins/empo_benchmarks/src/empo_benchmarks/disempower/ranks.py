"""Numbers of rows: humans, assistant, the combination of boxes, keys and timer."""

from __future__ import annotations

from math import prod

import numpy as np
from jaxtyping import Int64, Integer

from empo_benchmarks.blocks.ranks import Ranks as CellAndBoxes
from empo_benchmarks.disempower.board import BYSTANDER, Board
from empo_core.errors import WorldError


class Ranks:
    """Numbers 0, 1, 2, ... of all rows of a board, reachable or not, without a table of them.

    Attributes:
        count: How many rows there are.
    """

    def __init__(self, board: Board) -> None:
        """Prepare the factors.

        Raises:
            WorldError: if there are more rows than 64 bits can number.
        """
        words = range(board.words)
        self._boxes = [BYSTANDER, *words[board.first_box : board.key_word]]
        self._others = [word for word in words if word not in self._boxes]
        self._sizes = [board.values[word] for word in self._others]
        self._inner = CellAndBoxes(board.cells, board.boxes)
        self._words = board.words
        self.count = self._inner.count * prod(self._sizes)
        if self.count >= 1 << 63:
            raise WorldError(
                f"{board.boxes} boxes on {board.cells} cells have {self.count} states, more than "
                "64 bits number"
            )

    def rank(self, states: Integer[np.ndarray, "state word"]) -> Int64[np.ndarray, " state"]:
        """The number of each row."""
        number = self._inner.rank(states[:, self._boxes])
        for word, size in zip(self._others, self._sizes, strict=True):
            number = number * size + states[:, word]
        return number

    def unrank(self, numbers: Int64[np.ndarray, " state"]) -> Integer[np.ndarray, "state word"]:
        """The row of each number.

        Raises:
            WorldError: if a number is not in ``[0, count)``.
        """
        if ((numbers < 0) | (numbers >= self.count)).any():
            raise WorldError(f"states are numbered from 0 to {self.count - 1}")
        states = np.empty((len(numbers), self._words), np.int16)
        for word, size in zip(reversed(self._others), reversed(self._sizes), strict=True):
            numbers, states[:, word] = np.divmod(numbers, size)
        states[:, self._boxes] = self._inner.unrank(numbers)
        return states
