"""Values of original states, from those of the states that were solved in their place."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int32

from empo_core.errors import SolveError
from empo_core.protocols import Tracker, WorldModel
from empo_core.stages import stage
from empo_exact import ram
from empo_exact.exploration_progress import exploring
from empo_exact.game import Values
from empo_exact.graph import (
    ITEMS_PER_BLOCK,
    Explored,
    Start,
    StateGraph,
    build_graph,
    world_graph,
)
from empo_exact.plugin import ExactParams
from empo_exact.problem import Problem, pose
from empo_exact.ram import Sizes
from empo_exact.reductions.reduced import Reduced, reduced_graph
from empo_exact.request import Request
from empo_exact.result import ExactResult, Opening
from empo_exact.sweep import Seconds
from empo_exact.terminal_states import terminal_warning
from empo_exact.values import ValueStore

log = logging.getLogger("empo_exact")


class Representatives(NamedTuple):
    """The states that stand for original ones.

    Attributes:
        state: The state that is solved in place of each [state].
        variant: How its goals are renamed [state].
    """

    state: Int32[np.ndarray, " state"]
    variant: Int32[np.ndarray, " state"]


class OriginalValues:
    """The values of each time as of a graph of original states; see ``values.Store``."""

    def __init__(
        self,
        reduced: Reduced,
        solved: ValueStore,
        graph: StateGraph,
        representatives: Representatives,
    ) -> None:
        self.keep = solved.keep
        self._reduced, self._solved, self._graph, self._representatives = (
            reduced,
            solved,
            graph,
            representatives,
        )
        self.at = lru_cache(maxsize=2)(self._at)

    def place(self, directory: Path) -> tuple[str, str] | None:
        """The place of the solved values; see ``values.Store``."""
        return self._solved.place(directory)

    @property
    def times(self) -> list[int]:
        """The times whose values are at hand, ascending."""
        return self._solved.times

    def _at(self, time: int) -> Values:
        graph = self._graph
        count = graph.num_states if graph.spec.horizon is None else graph.within(time)
        state, variant = self._representatives
        return self._reduced.values(self._solved.at(time), state[:count], variant[:count])


@dataclass(frozen=True, eq=False)
class Unfolding:
    """The way back from a reduced graph.

    Attributes:
        reduced: The reduced graph.
        params: The parameters, with ``keep`` as what it means.
        graph: The states that are answered for: all, or the start and what follows it.
        representatives: What stands for them.
    """

    reduced: Reduced
    params: ExactParams
    graph: StateGraph
    representatives: Representatives

    @property
    def is_whole(self) -> bool:
        """True if all original states are answered for."""
        return self.params.keep == "all"

    def result(
        self,
        problem: Problem,
        store: ValueStore,
        request: Request,
        seconds: Seconds,
    ) -> ExactResult:
        """The result for original states.

        Args:
            problem: The reduced problem.
            store: Its values.
            request: What was asked for.
            seconds: Wall-clock time of the parts of the solve.
        """
        world, params, reduced = problem.world, self.params, self.reduced
        original = OriginalValues(reduced, store, self.graph, self.representatives)
        if self.is_whole:
            reductions = reduced.reductions_of(self.graph)
            posed = pose(world, self.graph, params, request.assumed)
            return ExactResult(posed, original, params, seconds, request.seed, reductions)
        values = {time: original.at(time) for time in original.times}
        sizes, warning = Sizes.of(reduced.graph), terminal_warning(problem, store)
        opening = Opening(self.graph, values, sizes, warning, seconds, reduced.reductions)
        return ExactResult.of_opening(request, opening)


def reduce_graph(request: Request) -> Unfolding:
    """Explore the states that stand for all others, and the way back from them.

    The way back takes the graph of all original states if their values are kept.

    Raises:
        UnsuitableWorldError: if the world does not declare what a reduction needs.
        SolveError: if the world's declaration is refuted, or nothing stands for some state; or
            there are too many states, or too many original ones, all of whose values are to be
            kept.
    """
    world, params, tracker, start = request.world, request.params, request.tracker, request.start
    reduced = reduced_graph(world, params, request.assumed, tracker, start)
    # The way back, before the values, which would be lost if there were too many original states.
    resolved = ram.resolved(reduced.original_sizes, params)
    graph = None
    if resolved.keep == "all":
        try:
            may_end = params.keep == "auto" and not params.rollouts
            graph = _original_graph(world, resolved, tracker, start, ends_early=may_end)
        except SolveError as error:
            if params.keep == "all" or params.rollouts:
                raise SolveError(
                    f"{error} It is keep: all that takes the original states, which reduce leaves "
                    "out: with keep: none they are not explored."
                ) from error
            log.warning("keep: auto is none here, for original states are too many: %s", error)
        else:
            resolved = ram.resolved(Sizes.of(graph), params)
            if params.check_reductions == "all":
                with stage(tracker.progress, "checking reductions in original states"):
                    _refuse_words(reduced, graph)
    if graph is None or resolved.keep != "all":
        resolved = params.model_copy(update={"keep": "none"})
        graph = build_graph(world, 1, start=start)
    return Unfolding(reduced, resolved, graph, found_states(world, reduced, graph))


def _refuse_words(reduced: Reduced, graph: StateGraph) -> None:
    """Refuse a world in which words without influence matter in any original state."""
    size = max(1, ITEMS_PER_BLOCK // graph.spec.num_joint_actions)
    declarations, rows = reduced.declarations, torch.from_numpy(graph.states)
    for first in range(0, len(rows) if declarations.dropped is not None else 0, size):
        block = rows[first : first + size]
        projected = declarations.projected(block)
        differs = (projected != block).any(1)
        declarations.refuse_changes(projected[differs], block[differs])


def _original_graph(
    world: WorldModel,
    params: ExactParams,
    tracker: Tracker,
    start: Start | None,
    *,
    ends_early: bool,
) -> StateGraph:
    """The graph of all original states, which takes as long to explore as without reductions.

    With ``ends_early`` it ends where ``keep: auto`` would not keep the values of all.
    """
    # Their values are never all in RAM, so that they do not count against its limit.
    light = params.model_copy(update={"keep": "none"})
    state_bytes = ram.state_bytes(world.spec, params)
    with exploring(world, light, tracker) as progress:

        def on_progress(explored: Explored) -> bool:
            is_small = explored.expanded * state_bytes <= ram.SMALL_BYTES
            return progress(explored) and (is_small or not ends_early)

        return world_graph(world, params, on_progress, start=start)


def found_states(world: WorldModel, reduced: Reduced, graph: StateGraph) -> Representatives:
    """The states that stand for those of a graph.

    Raises:
        SolveError: if no solved state stands for a state, at all or at a time when the state can
            be reached; the message shows the state.
    """
    representatives, solved = Representatives(*reduced.find(graph.states)), reduced.graph
    unknown = representatives.state < 0
    for time in range(len(graph.layers) if graph.spec.horizon is not None else 0):
        count = graph.within(time)
        unknown[:count] |= representatives.state[:count] >= solved.within(time)
    if unknown.any():
        row = torch.from_numpy(graph.states[int(unknown.argmax())].copy())
        raise SolveError(
            f"reduce: what is solved of {graph.spec.name!r} has no values for the state below, so "
            "that what the world declares cannot be true; leave symmetry and cone out of reduce. "
            f"The state is:\n{world.describe(row)}"
        )
    return representatives
