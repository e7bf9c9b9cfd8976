"""A reduced graph, and the way from any original state into it."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int32, Shaped

from empo_core.protocols import Tracker, WorldModel
from empo_core.stages import stage
from empo_core.worlds.row_table import RowTable
from empo_exact.exploration_progress import exploring
from empo_exact.graph import Progress, StateGraph
from empo_exact.images import Images
from empo_exact.kernel_data import Values
from empo_exact.plugin import ExactParams
from empo_exact.ram import Sizes
from empo_exact.reduction_steps import Step
from empo_exact.reductions.bisimulation import lumped, partition
from empo_exact.reductions.canonical import Canonical
from empo_exact.reductions.exploration import explore
from empo_exact.reductions.preparation import canonical_of, refuse_assumptions
from empo_exact.setup import Assumptions


@dataclass(frozen=True, eq=False)
class Reduced:
    """A reduced graph.

    Attributes:
        graph: The states that are solved, and where they lead.
        images: The images that transitions mean.
        steps: The reductions, in order.
        canonical: Finds the row that stands for a state.
        table: Those rows.
        state: The state of the graph that is solved for each of those rows [row].
    """

    graph: StateGraph
    images: Images
    steps: tuple[Step, ...]
    canonical: Canonical
    table: RowTable
    state: Int32[np.ndarray, " row"]

    @property
    def original_sizes(self) -> Sizes:
        """About the sizes of the graph of all original states: those that were met."""
        sizes = Sizes.of(self.graph)
        share = max(self.images.rows, self.table.count) / self.graph.num_states
        layers = (sizes.layers * share).astype(np.int64)
        many = (int(share * count) for count in (sizes.expanded, sizes.transitions))
        return Sizes(sizes.spec, layers, *many)

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
        return Values(v_m, v_e, solved.v_r[state])


def reduced_graph(
    world: WorldModel, params: ExactParams, assumed: Assumptions, tracker: Tracker
) -> Reduced:
    """Explore a world by the states that stand for all others.

    Raises:
        UnsuitableWorldError: The world does not declare what a reduction needs.
        SolveError: What it declares is refuted, or the graph is too large.
    """
    refuse_assumptions(assumed)
    begin = clock.perf_counter()
    with stage(tracker.progress, "checking reductions"):
        canonical = canonical_of(world, params, assumed)
    checking = clock.perf_counter() - begin
    with exploring(world, params, tracker) as progress:
        return explored(world, canonical, params, progress, checking)


def explored(
    world: WorldModel,
    canonical: Canonical,
    params: ExactParams,
    progress: Progress | None,
    checking: float,
) -> Reduced:
    """The reduced graph, as far as ``progress`` lets it grow.

    Args:
        world: The world.
        canonical: Finds the row that stands for a state.
        params: The parameters.
        progress: Told after every block; may end the exploration.
        checking: Seconds that the checks took.
    """
    graph, images = explore(world, canonical, params, progress)
    steps = []
    for name in ("symmetry", "cone"):
        if name in params.reduce:
            before = int(canonical.orbit_sizes(graph.states).sum())
            before = before if name == "symmetry" else graph.num_states
            steps.append(Step(name, before, graph.num_states, checking))
    table = RowTable.of(graph.states)
    state = np.arange(graph.num_states, dtype=np.int32)
    if "lump" in params.reduce:
        begin, before = clock.perf_counter(), graph.num_states
        state = partition(graph, images, world.achieved(torch.from_numpy(graph.states)).numpy())
        graph, images = lumped(graph, images, state)
        steps.append(Step("lump", before, graph.num_states, clock.perf_counter() - begin))
    return Reduced(graph, images, tuple(steps), canonical, table, state)
