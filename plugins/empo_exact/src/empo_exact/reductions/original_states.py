"""Values of original states, from those of the states that were solved in their place."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch

from empo_core.errors import SolveError
from empo_core.protocols import Tracker, WorldModel
from empo_exact.exploration_progress import exploring
from empo_exact.graph import StateGraph, build_graph
from empo_exact.kernel_data import Values
from empo_exact.plugin import ExactParams
from empo_exact.reductions.reduced import Reduced
from empo_exact.values import ValueStore


class OriginalValues:
    """The values of each time as of a graph of original states; see ``values.Store``."""

    def __init__(
        self, world: WorldModel, reduced: Reduced, solved: ValueStore, graph: StateGraph
    ) -> None:
        """Find what stands for each state.

        Raises:
            SolveError: Nothing that was solved stands for some state; the message shows it.
        """
        self.keep = solved.keep
        self._reduced, self._solved, self._graph = reduced, solved, graph
        self._found = reduced.find(graph.states)
        self.at = lru_cache(maxsize=2)(self._at)
        self._refuse_unknown(world)

    def place(self, directory: Path) -> tuple[str, str] | None:
        """Where the solved values are; see ``values.Store``."""
        return self._solved.place(directory)

    @property
    def times(self) -> list[int]:
        """The times whose values are at hand, ascending."""
        return self._solved.times

    def _at(self, time: int) -> Values:
        graph = self._graph
        count = graph.num_states if graph.spec.horizon is None else graph.within(time)
        state, variant = self._found
        return self._reduced.values(self._solved.at(time), state[:count], variant[:count])

    def _refuse_unknown(self, world: WorldModel) -> None:
        """Raise where a state has no values, at all or at a time when it can be reached."""
        graph, solved, (state, _) = self._graph, self._reduced.graph, self._found
        unknown = state < 0
        for time in range(len(graph.layers) if graph.spec.horizon is not None else 0):
            unknown[: graph.within(time)] |= state[: graph.within(time)] >= solved.within(time)
        if unknown.any():
            row = torch.from_numpy(graph.states[int(unknown.argmax())].copy())
            raise SolveError(
                f"reduce: what was solved of {graph.spec.name!r} has no values for the state below, "
                "so that what the world declares cannot be true; leave symmetry and cone out of "
                f"reduce. The state is:\n{world.describe(row)}"
            )


def original_graph(world: WorldModel, params: ExactParams, tracker: Tracker) -> StateGraph:
    """The graph of all original states, which takes as long to explore as without reductions."""
    compute = params.compute
    # Their values are never all in RAM, so that they do not count against its limit.
    light = params.model_copy(update={"keep": "none"})
    with exploring(world, light, tracker) as progress:
        return build_graph(
            world,
            world.spec.horizon,
            workers=compute.workers,
            start_method=compute.start_method,
            executor=compute.executor,
            max_states=compute.max_states,
            progress=progress,
        )
