"""The state that stands for another one, and the renaming of goals between the two."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int32, Int64, Shaped

from empo_core.types import WorldSpec
from empo_core.world_structure import Symmetry
from empo_exact.game import goal_order, goal_places
from empo_worlds.symmetry_group import SymmetryGroup


class Canonical:
    """Finds for each row the one that is solved in its place.

    Words without influence get those of the initial state, then the least image under all
    symmetries is taken, which leave those words as they are.

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
        self._spec, self._group = spec, group
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
        rows = self.projected(rows)
        if self._group is None:
            return rows, np.zeros(len(rows), np.int32)
        images, element = self._group.smallest_images(rows)
        return images, self._variant[element]

    def orbit_sizes(self, rows: Shaped[np.ndarray, "state word"]) -> Int64[np.ndarray, " state"]:
        """The number of rows, without influence left out, that each row stands for."""
        if self._group is None:
            return np.ones(len(rows), np.int64)
        return self._group.orbit_sizes(rows)

    @property
    def unused(self) -> tuple[str, ...]:
        """Names of symmetries that are left out, for there would be too many with them."""
        return () if self._group is None else self._group.unused

    @property
    def combinations(self) -> list[Symmetry]:
        """All symmetries by which rows stand for others."""
        return [] if self._group is None else self._group.combinations

    def is_ambiguous(self, rows: Shaped[np.ndarray, "state word"]) -> Bool[np.ndarray, " state"]:
        """True where the row that stands for an image may be another one [state].

        Args:
            rows: Rows that stand for others.
        """
        if self._group is None:
            return np.zeros(len(rows), np.bool_)
        return self._group.is_ambiguous(rows)

    def refined(self, row: Shaped[np.ndarray, " word"]) -> Canonical:
        """One for which this row is not ambiguous."""
        group = None if self._group is None else self._group.refined(row)
        return Canonical(self._spec, group, self._dropped, self._initial)

    def projected(self, rows: Shaped[np.ndarray, "state word"]) -> Shaped[np.ndarray, "state word"]:
        """Rows with the words of the initial state where these have no influence."""
        if self._dropped is None:
            return rows
        return np.where(self._dropped, self._initial, rows)
