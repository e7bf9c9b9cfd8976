"""Exploration of the states that stand for all others, and of the images they lead to."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Shaped

from empo_core.protocols import WorldModel
from empo_exact.graph import Explored, Progress, Start, StateGraph, starts_of, world_graph
from empo_exact.images import Images
from empo_exact.plugin import ExactParams
from empo_exact.reductions.canonical import Canonical
from empo_exact.transition_arrays import Growing
from empo_worlds.row_table import RowTable

Rows = Shaped[np.ndarray, "outcome word"]


class Exploration(NamedTuple):
    """An explored graph of states that stand for others.

    Attributes:
        graph: The states that stand for all others; transitions lead from state to state.
        images: The images that transitions mean.
        canonical: Finds the state that stands for a row.
        met: Number of rows that were met.
    """

    graph: StateGraph
    images: Images
    canonical: Canonical
    met: int


class _AmbiguousRow(Exception):
    """Symmetries that were taken for the same differ on a row."""

    def __init__(self, row: Shaped[np.ndarray, " word"]) -> None:
        super().__init__()
        self.row = row


class _ImageNumbers:
    """Numbers of the images that rows are, in order of first discovery.

    A row that was met before costs one look into a table.
    """

    def __init__(self, words: int, dtype: np.dtype[np.generic], canonical: Canonical) -> None:
        self._canonical = canonical
        self._met = RowTable(words, dtype)
        self._images = RowTable(2, np.dtype(np.int32))
        self._image = Growing(np.int32)

    def __call__(self, table: RowTable, rows: Rows) -> Int32[np.ndarray, " outcome"]:
        """The image that each row is; states that are new get a number in ``table``."""
        first_new = self._met.count
        number = self._met.number(rows)
        if self._met.count > first_new:
            states = table.count
            stands, variant = self._canonical(self._met.rows[first_new:])
            pairs = np.stack([table.number(stands), variant], -1)
            self.refuse_ambiguous(table.rows[states:].copy())
            self._image.room(len(pairs), 0)[:] = self._images.number(pairs)
        written: Int32[np.ndarray, " outcome"] = self._image.written[number]
        return written

    @property
    def met(self) -> int:
        """Number of rows that were met."""
        return self._met.count

    def refuse_ambiguous(self, rows: Rows) -> None:
        """Raise if the row that stands for a state depends on which of its images is asked about.

        Args:
            rows: Rows that stand for others.
        """
        ambiguous = np.flatnonzero(self._canonical.is_ambiguous(rows))
        if len(ambiguous):
            raise _AmbiguousRow(rows[ambiguous[0]])

    @property
    def pairs(self) -> Int32[np.ndarray, "image 2"]:
        """The state and the variant of each image."""
        pairs: Int32[np.ndarray, "image 2"] = self._images.rows.copy()
        return pairs


def explore(
    world: WorldModel,
    canonical: Canonical,
    params: ExactParams,
    progress: Progress | None = None,
    start: Start | None = None,
) -> Exploration:
    """The graph of the states that stand for all others, and their images.

    Symmetries that only some states tell apart are found out on the way; then all begins anew.

    Args:
        world: The world.
        canonical: Finds the state that stands for a row.
        params: Of these ``compute`` counts.
        progress: Told after every block; may end the exploration.
        start: State rows to start from; None means the initial state.
    """
    rows = starts_of(world, start)
    while True:
        try:
            return _explored(world, canonical, params, progress, rows)
        except _AmbiguousRow as error:
            canonical = canonical.refined(error.row)


def _explored(
    world: WorldModel,
    canonical: Canonical,
    params: ExactParams,
    progress: Progress | None,
    rows: Rows,
) -> Exploration:
    start = starts_of(world, canonical(rows)[0])
    numbers = _ImageNumbers(world.spec.state_words, start.dtype, canonical)
    numbers.refuse_ambiguous(start)

    def on_progress(explored: Explored) -> bool:
        return progress is None or progress(replace(explored, met=numbers.met))

    graph = world_graph(world, params, on_progress, start=start, numbering=numbers)
    graph, images = with_images(graph, numbers.pairs, canonical.columns)
    return Exploration(graph, images, canonical, numbers.met)


def with_images(
    graph: StateGraph,
    pairs: Int32[np.ndarray, "image 2"],
    columns: Int32[np.ndarray, "variant padded_goal"],
) -> tuple[StateGraph, Images]:
    """A graph and its images, where transitions lead to numbers of images.

    Args:
        graph: The graph; its ``successor`` is overwritten.
        pairs: State and variant of each image.
        columns: See ``Images``.
    """
    state, variant = pairs.T
    is_plain = variant == 0
    order = np.flatnonzero(~is_plain)
    order = order[np.lexsort((variant[order], state[order]))]
    row = np.empty(len(pairs), np.int32)
    row[is_plain] = state[is_plain]
    row[order] = graph.num_states + np.arange(len(order))
    first = np.searchsorted(state[order], np.arange(graph.num_states + 1)).astype(np.int64)
    images = Images(first, variant[order], columns, row[graph.successor])
    return replace(graph, successor=state[graph.successor]), images
