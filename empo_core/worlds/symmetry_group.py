"""All symmetries that follow from some, and the least image of a state under them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, Int64, Shaped
from torch import Tensor

from empo_core.compilation import compiled
from empo_core.world_structure import RowMap, Symmetry

MOST = 1024
"""Symmetries beyond which no more are used."""
ROWS_AT_ONCE = 1 << 16

log = logging.getLogger(__name__)


@compiled
def keep_less(
    image: Shaped[np.ndarray, "state word"],
    least: Shaped[np.ndarray, "state word"],
    element: int,
    which: Int64[np.ndarray, " state"],
) -> None:
    """Put images into ``least``, and their element into ``which``, where they are smaller."""
    for state in range(image.shape[0]):
        for word in range(image.shape[1]):
            if image[state, word] != least[state, word]:
                if image[state, word] < least[state, word]:
                    which[state] = element
                    for other in range(word, image.shape[1]):
                        least[state, other] = image[state, other]
                break


@dataclass(frozen=True)
class _Element:
    """A symmetry as the last one of a sequence: ``generator`` after element ``before``."""

    before: int
    generator: int
    goals: tuple[int, ...]


class SymmetryGroup:
    """Symmetries of a world, closed under combination.

    Attributes:
        goals: The goal that each goal becomes, by element; element 0 changes nothing
            [element goal].
    """

    def __init__(
        self, symmetries: Sequence[Symmetry], states: Int[Tensor, "state word"], goals: int
    ) -> None:
        """Find all combinations; those are the same that agree on goals and on these states.

        A group of more than ``MOST`` elements is cut short, which leaves orbits in more pieces.

        Args:
            symmetries: Symmetries from which all others follow.
            states: Some states.
            goals: Number of goals of the world.
        """
        self._maps: list[RowMap] = [symmetry.rows for symmetry in symmetries]
        self._elements = [_Element(-1, -1, tuple(range(goals)))]
        images, known = [states], {(self._elements[0].goals, states.numpy().tobytes())}
        done = 0
        while done < len(self._elements) < MOST:
            for generator, symmetry in enumerate(symmetries):
                moved = symmetry.rows(images[done]).contiguous()
                goal = tuple(symmetry.goals[g] for g in self._elements[done].goals)
                key = (goal, moved.numpy().tobytes())
                if key not in known and len(self._elements) < MOST:
                    known.add(key)
                    images.append(moved)
                    self._elements.append(_Element(done, generator, goal))
            done += 1
        if len(self._elements) == MOST:
            log.warning("only %d of the symmetries that follow from these are used", MOST)
        self.goals: Int64[np.ndarray, "element goal"] = np.array(
            [element.goals for element in self._elements], np.int64
        ).reshape(len(self._elements), goals)

    def __len__(self) -> int:
        """Number of symmetries, the one that changes nothing included."""
        return len(self._elements)

    def least(
        self, rows: Shaped[np.ndarray, "state word"]
    ) -> tuple[Shaped[np.ndarray, "state word"], Int64[np.ndarray, " state"]]:
        """The least image of each row in the order of words, and the element that leads to it."""
        pieces = [
            self._least(rows[first : first + ROWS_AT_ONCE])
            for first in range(0, max(1, len(rows)), ROWS_AT_ONCE)
        ]
        least, which = zip(*pieces, strict=True)
        return np.concatenate(least), np.concatenate(which)

    def orbit_sizes(self, rows: Shaped[np.ndarray, "state word"]) -> Int64[np.ndarray, " state"]:
        """Number of distinct images of each row, where the group is whole [state]."""
        fixed = np.zeros(len(rows), np.int64)
        for image in self._images(np.ascontiguousarray(rows)):
            fixed += (image == rows).all(1)
        # No element is missing that changes rows; some may be counted by what they do to goals.
        return len(self) // fixed

    def _images(
        self, rows: Shaped[np.ndarray, "state word"]
    ) -> list[Shaped[np.ndarray, "state word"]]:
        images = [rows]
        for element in self._elements[1:]:
            moved = self._maps[element.generator](torch.from_numpy(images[element.before]))
            images.append(np.ascontiguousarray(moved.numpy()))
        return images

    def _least(
        self, rows: Shaped[np.ndarray, "state word"]
    ) -> tuple[Shaped[np.ndarray, "state word"], Int64[np.ndarray, " state"]]:
        rows = np.ascontiguousarray(rows)
        least, which = rows.copy(), np.zeros(len(rows), np.int64)
        for number, image in enumerate(self._images(rows)):
            if number:
                keep_less(image, least, number, which)
        return least, which
