"""A reduced graph, and the way from any original state into it."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int32, Shaped

from empo_core.protocols import Tracker, WorldModel
from empo_core.stages import Tell, stage
from empo_exact.assumptions import Assumptions
from empo_exact.exploration_progress import exploring
from empo_exact.game import Values
from empo_exact.graph import Progress, Start, StateGraph
from empo_exact.images import Images
from empo_exact.plugin import ExactParams
from empo_exact.ram import Sizes
from empo_exact.reduction import Reduction
from empo_exact.reductions.bisimulation import lumped, partition
from empo_exact.reductions.canonical import Canonical
from empo_exact.reductions.declarations import Declarations
from empo_exact.reductions.exploration import Exploration, explore
from empo_exact.reductions.preparation import Preparation, prepare, refuse_assumptions
from empo_worlds.contract import achieved_in
from empo_worlds.row_table import RowTable


@dataclass(frozen=True, eq=False)
class Reduced:
    """A reduced graph.

    Attributes:
        graph: The states that are solved, and where they lead.
        images: The images that transitions mean.
        reductions: The reductions, in order.
        original_sizes: About the sizes of the graph of all original states, at most where words
            are not left out.
        canonical: Finds the row that stands for a state.
        table: Those rows.
        state: The state of the graph that is solved for each of those rows [row].
        declarations: What the world declares.
    """

    graph: StateGraph
    images: Images
    reductions: tuple[Reduction, ...]
    original_sizes: Sizes
    canonical: Canonical
    table: RowTable
    state: Int32[np.ndarray, " row"]
    declarations: Declarations

    def reductions_of(self, original: StateGraph) -> tuple[Reduction, ...]:
        """The reductions where all original states are known."""
        first, *others = self.reductions
        reductions, before = [], original.num_states
        if first.name == "cone" and others and others[0].name == "symmetry":
            words = len(np.unique(self.canonical.projected(original.states), axis=0))
            reductions.append(replace(first, before=before, after=words))
            (first, *others), before = others, words
        return (*reductions, replace(first, before=before, qualifier=""), *others)

    def find(
        self, rows: Shaped[np.ndarray, "item word"]
    ) -> tuple[Int32[np.ndarray, " item"], Int32[np.ndarray, " item"]]:
        """The state that is solved for each original row, -1 if none, and how goals are renamed."""
        stands, variant = self.canonical(rows)
        number = self.table.find(stands)
        return np.where(number < 0, -1, self.state[number]), variant

    def values(
        self,
        solved: Values,
        state: Int32[np.ndarray, " item"],
        variant: Int32[np.ndarray, " item"],
    ) -> Values:
        """Values of original states, which ``find`` found, by those that are solved."""
        columns = self.canonical.columns[variant].astype(np.int64)
        v_m, v_e = (
            np.take_along_axis(table[state], columns, 1) for table in (solved.v_m, solved.v_e)
        )
        return Values(v_m, v_e, solved.v_r[state], solved.norms[state])


def reduced_graph(
    world: WorldModel,
    params: ExactParams,
    assumed: Assumptions,
    tracker: Tracker,
    start: Start | None = None,
) -> Reduced:
    """Explore a world by the states that stand for all others.

    Raises:
        UnsuitableWorldError: if the world does not declare what a reduction needs.
        SolveError: if the world's declaration is refuted, or the graph is too large.
    """
    refuse_assumptions(assumed)
    with stage(tracker.progress, "checking reductions"):
        prepared = prepare(world, params, assumed)
    with exploring(world, params, tracker) as progress:
        return explored(world, prepared, params, progress, start, tracker.progress)


def explored(
    world: WorldModel,
    prepared: Preparation,
    params: ExactParams,
    progress: Progress | None,
    start: Start | None = None,
    tell: Tell | None = None,
) -> Reduced:
    """The reduced graph, as far as ``progress`` lets it grow.

    Args:
        world: The world.
        prepared: What it declares.
        params: The parameters.
        progress: Told after every block; may end the exploration.
        start: State rows to start from; None means the initial state.
        tell: Told about the checks of all states, if the parameters ask for these; None: what the
            world declares is tried in some states only.

    Raises:
        SolveError: if the world's declaration is refuted, or the graph is too large.
    """
    exploration = explore(world, prepared.canonical, params, progress, start)
    if tell and params.check_reductions == "all":
        with stage(tell, "checking reductions in all states"):
            prepared.check_all(exploration.graph, exploration.canonical)
    else:
        prepared.check_sample(exploration.graph)
    graph, images = exploration.graph, exploration.images
    orbits = int(exploration.canonical.orbit_sizes(graph.states).sum())
    seconds, count = prepared.seconds, graph.num_states
    reductions = []
    if "cone" in params.reduce:
        # Original states are not explored, and may be any number.
        before = None if prepared.declarations.dropped is not None else orbits
        reductions.append(Reduction("cone", before, orbits, seconds["cone"]))
    if "symmetry" in params.reduce:
        unused = ", ".join(map(repr, exploration.canonical.unused))
        note = f"without {unused}, with which too many would follow" if unused else ""
        took = seconds["symmetry"]
        reductions.append(Reduction("symmetry", orbits, count, took, "at most", note))
    table = RowTable.of(graph.states)
    state = np.arange(count, dtype=np.int32)
    if "lump" in params.reduce:
        begin = clock.perf_counter()
        state = partition(graph, images, achieved_in(world, torch.from_numpy(graph.states)).numpy())
        graph, images = lumped(graph, images, state)
        took = clock.perf_counter() - begin
        reductions.append(Reduction("lump", count, graph.num_states, took))
    sizes = _original_sizes(exploration)
    declared = prepared.declarations
    return Reduced(
        graph, images, tuple(reductions), sizes, exploration.canonical, table, state, declared
    )


def _original_sizes(exploration: Exploration) -> Sizes:
    """About the sizes of the graph of all original states: those of all orbits."""
    graph = exploration.graph
    orbits = np.append(0, np.cumsum(exploration.canonical.orbit_sizes(graph.states)))
    # Where words are left out, what was met says more than what remains of it.
    share = max(1.0, exploration.met / orbits[-1])
    layers = (share * orbits[graph.layers]).astype(np.int64)
    expanded = int(share * orbits[graph.num_expanded])
    branching = graph.num_transitions / max(1, graph.num_expanded)
    return Sizes(graph.spec, layers, expanded, int(branching * expanded))
