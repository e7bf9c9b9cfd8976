"""Checks of what a world declares, before and after states are left out because of it."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_exact.assumptions import Assumptions
from empo_exact.graph import ITEMS_PER_BLOCK, StateGraph
from empo_exact.plugin import ExactParams
from empo_exact.reductions.canonical import Canonical
from empo_exact.reductions.declarations import Declarations, declared
from empo_worlds.comparison import MOST_PAIRS
from empo_worlds.row_table import RowTable
from empo_worlds.samples import walked_states
from empo_worlds.symmetry_checks import rows_and_images
from empo_worlds.symmetry_group import SymmetryGroup

MOST_STATES = 1000
"""States on which declarations are checked, and some ten thousand of their transitions."""

PRIOR_ROWS = 1 << 16
"""States about which priors are asked at a time."""


def refuse_assumptions(assumed: Assumptions) -> None:
    """Refuse assumptions of a Python caller that nothing says how to compare.

    Raises:
        SolveError: if there is one.
    """
    for key in ("beta_h", "nu", "habit", "believed_others"):
        if getattr(assumed, key) is not None:
            raise SolveError(
                f"reduce does not go with a {key} that is a function or table of the caller's, "
                f"which may tell states apart that are alike: leave reduce or {key} out"
            )


@dataclass(frozen=True, eq=False)
class Preparation:
    """Declarations of a world that were checked on samples.

    Attributes:
        declarations: What it declares.
        canonical: Finds the row that stands for a state.
        tried: The states that were tried.
        seconds: Wall-clock time of each reduction so far.
    """

    declarations: Declarations
    canonical: Canonical
    tried: Int[Tensor, "state word"]
    seconds: dict[str, float]

    def check_all(self, graph: StateGraph, canonical: Canonical) -> None:
        """Try what is declared on all states that were found, and all their joint actions.

        Words that were left out get the values of two other states in each.

        Args:
            graph: The states that stand for others.
            canonical: By which they do.

        Raises:
            RefusedError: if a state refutes the declaration.
        """
        declarations, rows = self.declarations, torch.from_numpy(graph.states)
        steps = torch.from_numpy(
            np.searchsorted(graph.layers, np.arange(graph.num_states), side="right")
        )
        combinations = canonical.combinations
        size = max(1, ITEMS_PER_BLOCK // graph.spec.num_joint_actions)
        for first in range(0, len(rows), size):
            block = rows[first : first + size]
            with _timed(self.seconds, "cone"):
                declarations.refuse_words_in_all(block, self.tried)
            with _timed(self.seconds, "symmetry"):
                declarations.refuse_combinations(combinations, block)
        for first in range(0, len(rows) if declarations.priors else 0, PRIOR_ROWS):
            block, after = (array[first : first + PRIOR_ROWS] for array in (rows, steps))
            for image in (block, *(symmetry.rows(block) for symmetry in combinations)):
                declarations.refuse_unsteady_priors(image, after)
            with _timed(self.seconds, "cone"):
                declarations.refuse_priors_of_words(block, after, self.tried)
            with _timed(self.seconds, "symmetry"):
                declarations.refuse_priors_of_symmetries(block, after, combinations)

    def check_sample(self, graph: StateGraph) -> None:
        """Try what is declared on states that were found, unless all about them was tried before.

        Words that were left out have their initial values in these; other values are those of the
        states that were tried before.

        Raises:
            RefusedError: if a state refutes the declaration.
        """
        rows = torch.from_numpy(graph.states)
        with _timed(self.seconds, "cone"):
            self.declarations.refuse_words(_sample(rows), self.tried)
        tried = RowTable.of(self.tried.numpy())
        if tried.count * graph.spec.num_joint_actions <= MOST_PAIRS:
            rows = rows[torch.from_numpy(tried.find(graph.states) < 0)]
        if len(rows):
            with _timed(self.seconds, "symmetry"):
                self.declarations.refuse_symmetries(_sample(rows), self.tried)


def _sample(rows: Int[Tensor, "state word"]) -> Int[Tensor, "_state word"]:
    """Some of the rows, drawn at random."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    return rows[order[:MOST_STATES]]


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds of what is done within."""
    begin = clock.perf_counter()
    yield
    seconds[name] = seconds.get(name, 0.0) + clock.perf_counter() - begin


def prepare(world: WorldModel, params: ExactParams, assumed: Assumptions) -> Preparation:
    """Symmetries and the cone of influence, as far as they are asked for, checked on samples.

    Raises:
        UnsuitableWorldError: if the world does not declare what is asked for.
        SolveError: if a declaration is refuted; the message shows the state.
    """
    declarations, seconds = declared(world, params, assumed), dict[str, float]()
    states, steps = walked_states(world, MOST_STATES)
    group, tried = None, states
    with _timed(seconds, "cone"):
        declarations.refuse_words(states)
        declarations.refuse_priors_of_words(states, steps)
    with _timed(seconds, "symmetry"):
        if declarations.declared:
            declarations.refuse_symmetries(states)
            declarations.refuse_priors_of_symmetries(states, steps)
            projected = declarations.distinct_projected(states)
            group = SymmetryGroup(declarations.symmetries, projected, len(world.spec.goals))
            tried = torch.cat([states, rows_and_images(declarations.symmetries, projected)])
    dropped = None if declarations.dropped is None else declarations.dropped.numpy()
    canonical = Canonical(world.spec, group, dropped, world.initial_state().numpy())
    return Preparation(declarations, canonical, tried, seconds)
