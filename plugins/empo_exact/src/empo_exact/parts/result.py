"""The result of a solve in parts: values and policies at the start, and sizes of the whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32

from empo_core.protocols import WorldModel
from empo_exact.graph import StateGraph
from empo_exact.induction import Seconds
from empo_exact.kernel_data import Values
from empo_exact.parts.sweeps import PartSolver
from empo_exact.plugin import ExactParams
from empo_exact.problem import Problem
from empo_exact.ram import Sizes
from empo_exact.reduction import Reduction
from empo_exact.result import ExactResult
from empo_exact.setup import Assumptions, pose
from empo_exact.values import ValueStore


@dataclass(frozen=True)
class Opening:
    """All that decides the first step of an episode, small enough to be sent about.

    Attributes:
        graph: The initial state, with the states that follow it.
        values: Values of these by time; of the initial state alone at time 0.
        sizes: Sizes of the whole graph.
        warning: Of a terminal state that attracts robots; none where there is none.
        seconds: Wall-clock time of the parts of the solve.
        reductions: The reductions by which fewer states were solved than there are.
    """

    graph: StateGraph
    values: dict[int, Values]
    sizes: Sizes
    warning: str | None
    seconds: Seconds
    reductions: tuple[Reduction, ...] = ()


def opening(solver: PartSolver, done: int) -> Opening | None:
    """The first step after the last sweep; None in processes that do not have the start."""
    parts = solver.parts
    if parts.start not in parts.numbers:
        return None
    problem = solver.problem(parts.start)
    graph, states = _beginning(problem.graph)
    # With a horizon, values of time 1 follow those of time 0; else all are of time 0.
    later = done if problem.horizon is None else done - 1
    values = {} if later == 0 else {done - later: _rows(solver, problem, later, states)}
    if problem.horizon is not None:
        values[0] = _rows(solver, problem, done, states[:1])
    return Opening(graph, values, parts.sizes, parts.warning, solver.seconds)


def _beginning(graph: StateGraph) -> tuple[StateGraph, Int32[np.ndarray, " state"]]:
    """The graph of the first state and its successors, and their numbers in the whole."""
    joint = graph.spec.num_joint_actions if graph.num_expanded else 0
    offsets = graph.offsets[: joint + 1]
    successor = graph.successor[: int(offsets[-1])]
    others = np.setdiff1d(successor, [0]).astype(np.int32)
    states = np.concatenate([np.zeros(1, np.int32), others])
    beginning = StateGraph(
        spec=graph.spec,
        states=graph.states[states],
        layers=np.array([1, len(states)]),
        num_expanded=1,
        offsets=offsets,
        successor=np.searchsorted(states, successor).astype(np.int32),
        code=graph.code[: len(successor)],
        prob=graph.prob,
        duration=graph.duration,
    )
    return beginning, states


def _rows(
    solver: PartSolver, problem: Problem, done: int, states: Int32[np.ndarray, " state"]
) -> Values:
    table = solver.table(problem, solver.parts.start, done)
    return Values(*(array[states] for array in table))


class PartsResult(ExactResult):
    """Values and policies at the start; its graph ends after the first step."""

    def __init__(
        self,
        world: WorldModel,
        params: ExactParams,
        assumed: Assumptions,
        opening: Opening,
        seed: int,
    ) -> None:
        store = ValueStore("root", None, "")
        for time, values in opening.values.items():
            store.put(time, values)
        if params.keep == "auto":  # It means what there is.
            params = params.model_copy(update={"keep": "none"})
        problem = pose(world, opening.graph, params, assumed)
        super().__init__(problem, store, params, opening.seconds, seed, opening.reductions)
        self._opening = opening

    @property
    def sizes(self) -> Sizes:
        """Sizes of the whole graph."""
        return self._opening.sizes

    @property
    def is_whole(self) -> bool:
        """The graph ends after the first step."""
        return False

    def warnings(self) -> list[str]:
        """Advice to a reader who is about to trust the policies."""
        return [self._opening.warning] if self._opening.warning else []
