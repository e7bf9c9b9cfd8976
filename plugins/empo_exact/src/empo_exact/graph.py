"""The graph of all states reachable from the first ones: built once, stored as CSR.

Time is not part of it: a world is stationary, so one graph serves every time step. States
are numbered in order of first discovery, which makes "reachable within d steps" a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64, Shaped

from empo_core.config import ExecutorRef
from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec
from empo_exact.expansion import expander, one_behind
from empo_exact.plugin import ExactParams
from empo_exact.transition_arrays import Codes, Offsets, TransitionArrays
from empo_worlds.contract import initial_states_of
from empo_worlds.row_table import RowTable
from empo_worlds.rows import state_rows

if TYPE_CHECKING:
    from empo_executors.supervised_process import StartMethod

ITEMS_PER_BLOCK = 1 << 16
"""Transitions expanded at a time: bounds the memory in flight."""


@dataclass(frozen=True)
class StateGraph:
    """All states within reach, and where every joint action leads from each.

    The joint actions of state ``s`` are the pairs ``s * num_joint + j``; their transitions
    are ``offsets[pair] : offsets[pair + 1]``. A pair without transitions is unavailable; a
    state with none at all is terminal. States from ``num_expanded`` on were not expanded,
    because the horizon ends the episode there.

    Attributes:
        spec: The world's specification.
        states: State rows [state word].
        layers: ``layers[d]`` states are reachable within ``d`` steps; the first ``layers[0]``
            are the starts [depth].
        num_expanded: How many states have their transitions stored, always a prefix.
        offsets: Start of each pair's transitions [pair + 1].
        successor: State reached [transition].
        code: Position of the transition's probability and duration in the next two
            [transition].
        prob: The distinct probabilities [code].
        duration: The durations that go with them [code].
    """

    spec: WorldSpec
    states: Shaped[np.ndarray, "state word"]
    layers: Int64[np.ndarray, " depth"]
    num_expanded: int
    offsets: Offsets
    successor: Int32[np.ndarray, " transition"]
    code: Codes
    prob: Float64[np.ndarray, " code"]
    duration: Float64[np.ndarray, " code"]

    @property
    def num_states(self) -> int:
        """Number of states."""
        return len(self.states)

    @property
    def num_transitions(self) -> int:
        """Number of transitions that are stored."""
        return len(self.successor)

    @property
    def nbytes(self) -> int:
        """Bytes that the transitions take."""
        return int(self.offsets.nbytes + self.successor.nbytes + self.code.nbytes)

    @property
    def bounds(self) -> Int64[np.ndarray, " offset"]:
        """Start of the transitions of each expanded state, and the end of all [state + 1]."""
        return self.offsets[:: self.spec.num_joint_actions].astype(np.int64)

    @cached_property
    def alive(self) -> Bool[np.ndarray, " state"]:
        """States that have transitions, i.e. are neither terminal nor unexpanded [state]."""
        alive = np.zeros(self.num_states, np.bool_)
        alive[: self.num_expanded] = np.diff(self.bounds) > 0
        return alive

    def within(self, steps: int) -> int:
        """Number of states that are reachable within this many steps."""
        return int(self.layers[min(steps, len(self.layers) - 1)])

    def expanded_within(self, steps: int) -> int:
        """Number of them that have their transitions stored."""
        return min(self.within(steps), self.num_expanded)


def transitions_of(
    graph: StateGraph, chosen: Int64[np.ndarray, " state"]
) -> tuple[Int64[np.ndarray, " offset"], Int64[np.ndarray, " transition"] | slice]:
    """Offsets of the pairs of some states, and which transitions of the graph are theirs."""
    joint = graph.spec.num_joint_actions
    if len(chosen) == graph.num_states:
        unexpanded = np.full((graph.num_states - graph.num_expanded) * joint, graph.offsets[-1])
        offsets = np.concatenate([graph.offsets, unexpanded]).astype(np.int64)
        return offsets, slice(None)
    expanded = chosen < graph.num_expanded
    pairs = (np.where(expanded, chosen, 0)[:, None] * joint + np.arange(joint)).ravel()
    begin = graph.offsets[pairs].astype(np.int64)
    length = graph.offsets[pairs + 1].astype(np.int64) - begin
    length[~np.repeat(expanded, joint)] = 0
    offsets = np.concatenate([[0], np.cumsum(length)])
    items = np.repeat(begin - offsets[:-1], length) + np.arange(offsets[-1])
    return offsets, items


@dataclass(frozen=True)
class Explored:
    """The state of an exploration after a block.

    Attributes:
        layers: ``layers[d]`` states are reachable within ``d`` steps, as far as that is known.
        expanded: States whose transitions are known.
        num_states: States found so far.
        transitions: Number of transitions that are known.
        met: Rows that were met besides and have no number, of states that others stand for.
    """

    layers: list[int]
    expanded: int
    num_states: int
    transitions: int
    met: int = 0


Progress = Callable[[Explored], bool]
"""Called after every block; False ends the exploration, and the graph has what was found."""

Start = Shaped[np.ndarray, "..."] | Sequence[object]
"""State rows in which episodes start [start word]."""

Numbering = Callable[[RowTable, Shaped[np.ndarray, "outcome word"]], Int32[np.ndarray, " outcome"]]
"""Numbers that transitions have for their outcomes; enters states to be expanded in the table."""


def starts_of(world: WorldModel, start: Start | None) -> Shaped[np.ndarray, "start word"]:
    """Rows in which episodes start, each once, in the order of ``start``.

    Args:
        world: The world.
        start: State rows; None means the initial states.

    Raises:
        SolveError: if there is no row.
        WorldError: if the rows are no state rows of the world.
    """
    if start is None:
        return initial_states_of(world).states.numpy()
    rows = state_rows(world.spec, start)
    if not len(rows):
        raise SolveError(f"start has no state rows of {world.spec.name!r}; give at least one")
    table = RowTable(world.spec.state_words, rows.dtype)
    table.number(rows)
    distinct: Shaped[np.ndarray, "start word"] = table.rows.copy()
    return distinct


def start_chances(world: WorldModel, start: Start | None) -> Float64[np.ndarray, " start"]:
    """The chance of each of the first states of a graph to be the one that episodes begin in.

    Where rows were given to start from, that is the first one.
    """
    return np.ones(1) if start is not None else initial_states_of(world).prob.numpy()


def build_graph(
    world: WorldModel,
    horizon: int | None,
    *,
    workers: int = 1,
    start_method: StartMethod = "forkserver",
    executor: ExecutorRef | None = None,
    max_states: int = 50_000_000,
    progress: Progress | None = None,
    start: Start | None = None,
    numbering: Numbering = RowTable.number,
) -> StateGraph:
    """Explore what is reachable from the states in which episodes start, by breadth-first search.

    Successors are expanded in blocks, in parallel, and numbered in block order, so the
    result does not depend on the number of workers.

    Args:
        world: The world.
        horizon: Steps to look ahead; None explores everything.
        workers: Threads, or processes where the world does not release Python's lock.
        start_method: How worker processes start.
        executor: Executor of worker processes in place of that.
        max_states: Give up beyond this many states.
        progress: Told after every block; may end the exploration.
        start: State rows to start from; None means those of the world.
        numbering: What ``successor`` has for outcomes; by default the numbers of states.

    Raises:
        SolveError: if there are too many states.
        BrokenWorldError: if the world breaks its contract.
        WorldError: if a row of ``start`` is no state row.
        WorkerError: if a worker process failed.
    """
    joint = world.spec.num_joint_actions
    initial = starts_of(world, start)
    table = RowTable(world.spec.state_words, initial.dtype)
    codes = RowTable(2, np.dtype(np.float64))
    table.number(initial)
    layers, expanded, transitions, goes_on = [len(initial)], 0, 0, True
    arrays = TransitionArrays(codes)
    size = max(1, ITEMS_PER_BLOCK // joint)
    with (
        expander(world, workers, start_method, executor) as expand,
        one_behind(arrays.append, workers) as append,
    ):
        while goes_on and expanded < table.count and (horizon is None or len(layers) <= horizon):
            layer = table.rows[expanded:].copy()
            blocks = (layer[i : i + size] for i in range(0, len(layer), size))
            for expansion in expand(blocks):
                append(expansion, numbering(table, expansion.states.numpy()))
                expanded += expansion.num_pairs // joint
                transitions += len(expansion.index)
                if table.count > max_states:
                    raise SolveError(
                        f"{world.spec.name!r} has more than {max_states} reachable states "
                        f"({table.count} after {len(layers) - 1} complete steps). Use a smaller "
                        "max_steps or raise max_states."
                    )
                now = Explored(layers, expanded, table.count, transitions)
                if progress and not progress(now):
                    goes_on = False
                    break
            layers.append(table.count)
    prob_of, duration_of = (column.copy() for column in codes.rows.T)
    offsets, successor, code = arrays.whole()
    return StateGraph(
        spec=world.spec,
        states=table.rows.copy(),
        layers=np.array(layers, np.int64),
        num_expanded=expanded,
        offsets=offsets,
        successor=successor,
        code=code,
        prob=prob_of,
        duration=duration_of,
    )


def world_graph(
    world: WorldModel,
    params: ExactParams,
    progress: Progress | None,
    *,
    start: Start | None = None,
    numbering: Numbering = RowTable.number,
) -> StateGraph:
    """The graph up to the horizon, explored as the parameters say; see ``build_graph``."""
    compute = params.compute
    return build_graph(
        world,
        world.spec.horizon,
        workers=compute.workers,
        start_method=compute.start_method,
        executor=compute.executor,
        max_states=compute.max_states,
        progress=progress,
        start=start,
        numbering=numbering,
    )
