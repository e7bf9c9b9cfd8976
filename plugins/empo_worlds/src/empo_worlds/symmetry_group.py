"""The group that symmetries generate, and the smallest image of a state under the group."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64, Shaped
from torch import Tensor

from empo_core.world_structure import Symmetry
from empo_worlds.compilation import compiled
from empo_worlds.symmetry_checks import rows_and_images

MOST = 1024
"""Symmetries in a group, at most."""
SAMPLES = 2048
"""States by which symmetries are told apart, about."""
BYTES_AT_ONCE = 64 << 20
"""RAM for the images of rows under all symmetries."""

log = logging.getLogger(__name__)


@compiled
def keep_less(
    image: Shaped[np.ndarray, "state word"],
    smallest: Shaped[np.ndarray, "state word"],
    element: int,
    elements: Int64[np.ndarray, " state"],
) -> None:
    """Put images into ``smallest``, and their element into ``elements``, where they are smaller."""
    for state in range(image.shape[0]):
        for word in range(image.shape[1]):
            if image[state, word] != smallest[state, word]:
                if image[state, word] < smallest[state, word]:
                    elements[state] = element
                    for position in range(word, image.shape[1]):
                        smallest[state, position] = image[state, position]
                break


@dataclass(frozen=True)
class _Element:
    """A symmetry as the last one of a sequence: ``generator`` after element ``before``."""

    before: int
    generator: int
    goals: tuple[int, ...]


def _after(last: Symmetry, first: Symmetry | None) -> Symmetry:
    """One symmetry after another."""
    if first is None:
        return last
    agents = torch.tensor(first.agents)

    def actions(states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent action"]:
        becomes, then = first.actions(states), last.actions(first.rows(states))
        # Padding of the action axis is of no account.
        return then[:, agents].gather(2, becomes.long().clamp(0, then.shape[2] - 1)).to(then.dtype)

    return Symmetry(
        name=f"{last.name} after {first.name}",
        rows=lambda states: last.rows(first.rows(states)),
        agents=tuple(last.agents[agent] for agent in first.agents),
        actions=actions,
        goals=tuple(last.goals[goal] for goal in first.goals),
    )


@dataclass(frozen=True)
class _Closure:
    """Symmetries that are closed under combination with some generators.

    Attributes:
        elements: The symmetries; the first one changes nothing.
        follows: The symmetry that each generator makes of each [element generator].
    """

    elements: list[_Element]
    follows: list[list[int]]


def _closure(
    generators: Sequence[Symmetry], states: Int[Tensor, "state word"], goals: int
) -> _Closure | None:
    """All combinations of some symmetries; None where there are more than ``MOST``."""
    elements, follows = [_Element(-1, -1, tuple(range(goals)))], list[list[int]]()
    images = [states]
    numbers = {(elements[0].goals, states.contiguous().numpy().tobytes()): 0}
    while len(follows) < len(elements):
        current = len(follows)
        follows.append([])
        for generator, symmetry in enumerate(generators):
            image = symmetry.rows(images[current]).contiguous()
            goal = tuple(symmetry.goals[g] for g in elements[current].goals)
            number = numbers.setdefault((goal, image.numpy().tobytes()), len(elements))
            follows[current].append(number)
            if number == len(elements):
                if number == MOST:
                    return None
                images.append(image)
                elements.append(_Element(current, generator, goal))
    return _Closure(elements, follows)


def _whole_orbits(
    generators: Sequence[Symmetry], states: Int[Tensor, "state word"], min_states: int
) -> Int[Tensor, "_state word"] | None:
    """The first states with all their images; None where one has more than ``MOST``.

    Args:
        generators: Symmetries from which all others follow.
        states: Distinct states.
        min_states: How many of them must be among the results; more are, up to ``SAMPLES`` rows.
    """
    orbits, count = None, max(1, min_states)
    while True:
        too_many = MOST * count + 1
        max_rows = too_many if orbits is None else min(too_many, SAMPLES)
        rows = rows_and_images(generators, states[:count], max_rows)
        if len(rows) >= too_many:
            return None
        if orbits is not None and len(rows) >= SAMPLES:
            return orbits  # These may not be whole.
        orbits = rows
        if count >= len(states) or len(rows) >= SAMPLES:
            return orbits
        count = min(2 * count, len(states))


class SymmetryGroup:
    """Symmetries of a world, closed under combination.

    Attributes:
        goals: The goal that each goal becomes, by element; element 0 changes nothing
            [element goal].
        unused: Names of symmetries that are left out, for with them there would be too many.
    """

    def __init__(
        self,
        symmetries: Sequence[Symmetry],
        states: Int[Tensor, "state word"],
        goals: int,
        min_states: int = 0,
    ) -> None:
        """Find all combinations; those are the same that agree on goals and on some states.

        Symmetries are taken in turn. One with which there would be more than ``MOST`` is left
        out: those that remain are a group, too, whose orbits are smaller.

        Args:
            symmetries: Symmetries from which all others follow.
            states: Distinct states. The first ones and all their images tell symmetries apart.
            goals: Number of goals of the world.
            min_states: Number of states that must be among those.
        """
        self._symmetries, self._num_goals = tuple(symmetries), goals
        self._states, self._min_states = states, min_states
        self._used, unused = list[Symmetry](), list[str]()
        closure = _Closure([_Element(-1, -1, tuple(range(goals)))], [[]])
        for symmetry in symmetries:
            together = [*self._used, symmetry]
            samples = _whole_orbits(together, states, min_states)
            wider = None if samples is None else _closure(together, samples, goals)
            if wider is None:
                unused.append(symmetry.name)
            else:
                self._used.append(symmetry)
                closure = wider
        self.unused = tuple(unused)
        if unused:
            log.warning(
                "symmetries %s are left out: with the others, more than %d would follow",
                ", ".join(map(repr, unused)),
                MOST,
            )
        self._elements, self._follows = closure.elements, closure.follows
        self.goals: Int64[np.ndarray, "element goal"] = np.array(
            [element.goals for element in self._elements], np.int64
        ).reshape(len(self._elements), goals)

    def __len__(self) -> int:
        """Number of symmetries, the one that changes nothing included."""
        return len(self._elements)

    @property
    def combinations(self) -> list[Symmetry]:
        """All symmetries of the group but the one that changes nothing."""
        symmetries: list[Symmetry | None] = [None]
        for element in self._elements[1:]:
            symmetries.append(_after(self._used[element.generator], symmetries[element.before]))
        return [symmetry for symmetry in symmetries if symmetry is not None]

    def refined(self, row: Shaped[np.ndarray, " word"]) -> SymmetryGroup:
        """The group where symmetries that differ on one more row are told apart, too."""
        is_new = (self._states != torch.from_numpy(row)).any(1)
        is_new[: self._min_states] = True  # Which are told apart already: it is none of those.
        states = torch.cat([torch.from_numpy(row[None]), self._states[is_new]])
        return SymmetryGroup(self._symmetries, states, self._num_goals, self._min_states + 1)

    def smallest_images(
        self, rows: Shaped[np.ndarray, "state word"]
    ) -> tuple[Shaped[np.ndarray, "state word"], Int64[np.ndarray, " state"]]:
        """The smallest image of each row in the order of words, and the element that maps to it."""
        smallest, elements = np.array(rows, order="C"), np.zeros(len(rows), np.int64)
        for piece in self._pieces(rows):
            for number, image in enumerate(self._images(rows[piece])):
                if number:
                    keep_less(image, smallest[piece], number, elements[piece])
        return smallest, elements

    def orbit_sizes(self, rows: Shaped[np.ndarray, "state word"]) -> Int64[np.ndarray, " state"]:
        """Number of distinct images of each row [state]."""
        fixed = np.zeros(len(rows), np.int64)
        for piece in self._pieces(rows):
            for image in self._images(rows[piece]):
                fixed[piece] += (image == rows[piece]).all(1)
        # Elements may differ in what they do to goals alone; those fix as many of each orbit.
        return len(self) // fixed

    def is_ambiguous(self, rows: Shaped[np.ndarray, "state word"]) -> Bool[np.ndarray, " state"]:
        """True where combinations identified with one element have different images [state].

        Those that are taken for none change neither goals nor the states that tell symmetries
        apart. As these are whole orbits, such combinations are a normal subgroup: if they change
        no row, they change none of its images, so that all of these have the same least image.
        """
        ambiguous = np.zeros(len(rows), np.bool_)
        for piece in self._pieces(rows):
            images = self._images(rows[piece])
            for element, image in enumerate(images):
                for generator, follows in enumerate(self._follows[element]):
                    last = self._elements[follows]
                    if (last.before, last.generator) != (element, generator):
                        combined = self._used[generator].rows(torch.from_numpy(image)).numpy()
                        ambiguous[piece] |= (combined != images[follows]).any(1)
        return ambiguous

    def _pieces(self, rows: Shaped[np.ndarray, "state word"]) -> Iterator[slice]:
        """Slices of rows whose images fit into ``BYTES_AT_ONCE`` bytes."""
        size = max(1, BYTES_AT_ONCE // max(1, len(self) * rows.shape[1] * rows.itemsize))
        for first in range(0, len(rows), size):
            yield slice(first, first + size)

    def _images(
        self, rows: Shaped[np.ndarray, "state word"]
    ) -> list[Shaped[np.ndarray, "state word"]]:
        images = [np.ascontiguousarray(rows)]
        for element in self._elements[1:]:
            image = self._used[element.generator].rows(torch.from_numpy(images[element.before]))
            images.append(np.ascontiguousarray(image.numpy()))
        return images
