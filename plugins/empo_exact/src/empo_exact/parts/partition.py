"""Parts of a state graph: ranges of rows, ordered by a key whose first words change least.

Words that rarely change along a transition (where the boxes are) come first in the key, so that
most transitions stay within a part. A hash of the rows would balance as well, and cut nearly all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64, Shaped

from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec
from empo_exact.graph import StateGraph, build_graph
from empo_worlds.compilation import compiled

SAMPLE = 200_000
"""Transitions from which the order of words is found."""
SLOW_SAMPLE = 50_000
"""The same in worlds that are written in Python, which take as long for these."""

Rows = Shaped[np.ndarray, "state word"]


@compiled
def find_owners(
    rows: Shaped[np.ndarray, "state word"],
    words: Int64[np.ndarray, " word"],
    splitters: Shaped[np.ndarray, "splitter word"],
    owner: Int32[np.ndarray, " state"],
) -> None:
    """The number of splitters that are not greater than each row, in the order of ``words``."""
    for state in range(len(rows)):
        low, high = 0, len(splitters)
        while low < high:
            middle = (low + high) // 2
            is_less = False
            for word in words:
                if rows[state, word] != splitters[middle, word]:
                    is_less = rows[state, word] < splitters[middle, word]
                    break
            if is_less:
                high = middle
            else:
                low = middle + 1
        owner[state] = low


@dataclass(frozen=True)
class Partition:
    """Which part has which state.

    Attributes:
        words: Positions of the words of a row in the order of the key [word].
        splitters: The least row of each part but the first, in the order of the key
            [splitter word].
    """

    words: Int64[np.ndarray, " word"]
    splitters: Rows

    @property
    def count(self) -> int:
        """Number of parts."""
        return len(self.splitters) + 1

    def layout(self, processes: int) -> str:
        """Identifies the parts, and which of so many processes has each."""
        digest = hashlib.sha256(f"{self.splitters.dtype} {processes}".encode())
        digest.update(self.words.tobytes())
        digest.update(np.ascontiguousarray(self.splitters).tobytes())
        return digest.hexdigest()

    def owners(self, rows: Rows) -> Int32[np.ndarray, " state"]:
        """The part of each row [state]."""
        owner = np.empty(len(rows), np.int32)
        find_owners(rows, self.words, self.splitters, owner)
        return owner


def choose_partition(
    samples: Sequence[Rows], parts: int, words: Int64[np.ndarray, " word"]
) -> Partition:
    """A partition into parts of about equally many states.

    Args:
        samples: Distinct rows, each standing for equally many states.
        parts: How many parts; fewer where there are not so many rows.
        words: Order of the words, see ``slow_words``.
    """
    rows = np.concatenate(list(samples))
    rows = rows[key_order(rows, words)]
    parts = max(1, min(parts, len(rows)))
    return Partition(words, rows[[len(rows) * part // parts for part in range(1, parts)]])


def key_order(rows: Rows, words: Int64[np.ndarray, " word"]) -> Int64[np.ndarray, " state"]:
    """The order of rows by key [state]."""
    return np.lexsort([rows[:, word] for word in words[::-1]])


def first_words(world: WorldModel, max_states: int) -> Int64[np.ndarray, " word"]:
    """Positions of the words in the order of the key, from the first states [word].

    Every process finds them for itself, before any state has a place.
    """
    graph = build_graph(
        world,
        world.spec.horizon,
        max_states=max_states,
        progress=lambda explored: explored.transitions < _sample(world.spec),
    )
    return slow_words(change_counts(graph))


def change_counts(graph: StateGraph) -> Int64[np.ndarray, " word"]:
    """Number of changes of each word along the transitions of the first states [word]."""
    bounds = graph.bounds
    bounds = bounds[: max(2, int(np.searchsorted(bounds, _sample(graph.spec))) + 1)]
    before = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    after = graph.successor[: bounds[-1]]
    changed: Int64[np.ndarray, " word"] = (graph.states[before] != graph.states[after]).sum(0)
    return changed


def _sample(spec: WorldSpec) -> int:
    return SAMPLE if spec.releases_gil else SLOW_SAMPLE


def slow_words(changes: Int64[np.ndarray, " word"]) -> Int64[np.ndarray, " word"]:
    """Positions of the words, those first that change least along transitions [word]."""
    return np.argsort(changes, kind="stable")
