"""The state that stands for another one, and the renaming of goals between the two."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int32, Int64, Shaped

from empo_core.types import WorldSpec
from empo_core.worlds.symmetry_group import SymmetryGroup
from empo_exact.goal_axis import goal_order, goal_places


class Canonical:
    """Finds for each row the one that is solved in its place.

    Words without influence get those of the initial state, then the least image under all
    symmetries is taken. A symmetry moves such words among themselves, if at all.

    Attributes:
        columns: Each goal's place in the row that is solved, by variant; variant 0 renames none
            [variant goal], goals as the sweep has them.
    """

    def __init__(
        self,
        spec: WorldSpec,
        group: SymmetryGroup | None,
        dropped: Bool[np.ndarray, " word"] | None,
        initial: Shaped[np.ndarray, " word"],
    ) -> None:
        self._group = group
        self._dropped, self._initial = dropped, initial
        goals = np.arange(len(spec.goals))[None] if group is None else group.goals
        distinct, variant = np.unique(goals, axis=0, return_inverse=True)
        # Element 0 renames nothing, so that its goals come first in this order.
        self._variant: Int32[np.ndarray, " element"] = variant.ravel().astype(np.int32)
        places, padded = goal_places(spec), np.arange(len(goal_order(spec)))
        self.columns: Int32[np.ndarray, "variant padded_goal"] = np.repeat(
            padded[None], len(distinct), 0
        ).astype(np.int32)
        self.columns[:, places] = places[distinct]

    def __call__(
        self, rows: Shaped[np.ndarray, "state word"]
    ) -> tuple[Shaped[np.ndarray, "state word"], Int32[np.ndarray, " state"]]:
        """The row that stands for each, and the variant that renames its goals."""
        rows = self._projected(rows)
        if self._group is None:
            return rows, np.zeros(len(rows), np.int32)
        least, element = self._group.least(rows)
        return self._projected(least), self._variant[element]

    def orbit_sizes(self, rows: Shaped[np.ndarray, "state word"]) -> Int64[np.ndarray, " state"]:
        """The number of rows, without influence left out, that each row stands for."""
        if self._group is None:
            return np.ones(len(rows), np.int64)
        return self._group.orbit_sizes(rows)

    def _projected(
        self, rows: Shaped[np.ndarray, "state word"]
    ) -> Shaped[np.ndarray, "state word"]:
        if self._dropped is None:
            return rows
        return np.where(self._dropped, self._initial, rows)
