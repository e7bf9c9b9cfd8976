"""Arrays that grow at their end."""

from __future__ import annotations

import numpy as np
from jaxtyping import Shaped
from numpy.typing import DTypeLike


class Grown:
    """An array of rows that grows; whatever was added stays where it is in the order."""

    def __init__(self, dtype: DTypeLike, *columns: int) -> None:
        self._room = np.zeros((1024, *columns), dtype)
        self._count = 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._count

    @property
    def array(self) -> Shaped[np.ndarray, "row ..."]:
        """All rows; a view, which later additions may leave behind."""
        return self._room[: self._count]

    def extend(self, rows: Shaped[np.ndarray, "row ..."]) -> None:
        """Add rows at the end."""
        count = self._count + len(rows)
        if count > len(self._room):
            longer = np.zeros((count + count // 2, *self._room.shape[1:]), self._room.dtype)
            longer[: self._count] = self.array
            self._room = longer
        self._room[self._count : count] = rows
        self._count = count
