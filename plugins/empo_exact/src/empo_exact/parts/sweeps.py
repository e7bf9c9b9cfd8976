"""Backward induction over parts, one after another at every time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float64, Int32, Int64

from empo_core.protocols import WorldModel
from empo_exact.graph import StateGraph
from empo_exact.induction import (
    Continuation,
    Seconds,
    Solver,
    room,
    terminal_values,
    unknown_continuation,
)
from empo_exact.kernel_data import Values
from empo_exact.parts.peers import Arrays, Peers
from empo_exact.parts.store import PartStore
from empo_exact.parts.territory import GRAPH, Halo
from empo_exact.plugin import ExactParams
from empo_exact.problem import Problem
from empo_exact.setup import Assumptions, pose


Where: TypeAlias = "slice | Int64[np.ndarray, ' slot']"


@dataclass(frozen=True)
class Parts:
    """A state graph in parts, as one process has it.

    Attributes:
        world: The world.
        numbers: The parts of this process.
        ranks: The process that has each part [part].
        halos: Where the halo states of each part of this process are.
        codes: Probabilities and durations by code [code 2].
        store: The parts' graphs, and later their values.
        peers: All processes.
        states: Number of states of all processes.
        transitions: Number of transitions of all processes.
    """

    world: WorldModel
    numbers: list[int]
    ranks: Int64[np.ndarray, " part"]
    halos: Mapping[int, Halo]
    codes: Float64[np.ndarray, "code 2"]
    store: PartStore
    peers: Peers
    states: int
    transitions: int

    def graph(self, part: int) -> tuple[StateGraph, np.ndarray]:
        """A part's own states and its halo as a graph, and the goals that each achieves."""
        arrays = dict(self.store.get(GRAPH, part))
        achieved, expanded = arrays.pop("achieved"), int(arrays.pop("num_expanded"))
        prob, duration = (np.ascontiguousarray(column) for column in self.codes.T)
        graph = StateGraph(
            spec=self.world.spec, num_expanded=expanded, prob=prob, duration=duration, **arrays
        )
        return graph, achieved

    def problem(self, part: int, params: ExactParams, assumed: Assumptions) -> Problem:
        """The problem of a part's own states."""
        graph, achieved = self.graph(part)
        return pose(self.world, graph, params, assumed, achieved)


def values_kind(time: int) -> str:
    """Kind of the stored values of a time."""
    return f"values-{time:05d}"


class PartSolver:
    """Sweeps over the parts of one process, each with the values of its halo at hand.

    Attributes:
        seconds: Wall-clock time of both phases.
    """

    def __init__(self, parts: Parts, params: ExactParams, assumed: Assumptions) -> None:
        self.parts = parts
        self.seconds = Seconds()
        self._params = params
        self._assumed = assumed
        self._links = _links(parts)
        self._wanted = _wanted(parts, self._links)
        self._coming: dict[tuple[int, int], Values] = {}

    def sweep(self, time: int, steps_left: int, threads: ThreadPoolExecutor) -> int:
        """Both phases in all parts at one time; how many states have no finite U_r."""
        bad = 0
        outgoing: list[dict[str, np.ndarray]] = [{} for _ in range(self.parts.peers.size)]
        for part, following in zip(self.parts.numbers, self._rotated(), strict=True):
            problem = self.parts.problem(part, self._params, self._assumed)
            self.parts.store.fetch(GRAPH, following)
            values, wrong = self._sweep_part(problem, part, time, steps_left, threads)
            bad += wrong
            self.parts.store.put(values_kind(time), part, values._asdict())
            for target, numbers in self._wanted[part].items():
                rows = numbers[: np.searchsorted(numbers, len(values.v_r))]
                for name, array in values._asdict().items():
                    where = outgoing[int(self.parts.ranks[target])]
                    where[f"{part} {target} {name}"] = array[rows]
        self.parts.store.flush()
        self._receive(outgoing)
        self.parts.store.drop(values_kind(time + 2))
        return bad

    def known(self, problem: Problem, part: int, time: int) -> Iterator[tuple[Where, Values]]:
        """The values of a part's states and halo at a time, and where in its tables they belong."""
        if problem.horizon is not None and time == problem.horizon:
            size = problem.graph.num_states
            yield slice(0, size), terminal_values(problem, size)
            return
        own = Values(**self.parts.store.get(values_kind(time), part))
        yield slice(0, len(own.v_r)), own
        for source, (slots, numbers) in self._links[part].items():
            if (source, part) in self._coming:
                rows = self._coming[source, part]
            else:
                rows = Values(**self.parts.store.rows(values_kind(time), source, numbers))
            yield slots[: len(rows.v_r)], rows

    def _after(self, problem: Problem, part: int, time: int) -> Continuation:
        """The values of a part's states and halo at a time, as the kernels read them."""
        after = unknown_continuation(problem, problem.graph.num_states)
        for where, values in self.known(problem, part, time):
            problem.renew_worth(values.v_m, after.hoped, where)
            problem.renew_worth(values.v_e, after.attained, where)
            after.v_r[where] = values.v_r
        return after

    def _sweep_part(
        self, problem: Problem, part: int, time: int, left: int, threads: ThreadPoolExecutor
    ) -> tuple[Values, int]:
        graph = problem.graph
        after = self._after(problem, part, time + 1)
        count = min(graph.within(time), graph.num_expanded)
        values = room(problem, count)
        order = np.arange(count, dtype=np.int32)
        return values, Solver(problem, self.seconds).sweep(order, after, values, left, threads)

    def _rotated(self) -> list[int]:
        """The part that comes after each."""
        return self.parts.numbers[1:] + self.parts.numbers[:1]

    def _receive(self, outgoing: list[dict[str, np.ndarray]]) -> None:
        """Take the values of halo states that other processes have."""
        self._coming.clear()
        if self.parts.peers.size == 1:
            return
        for arrays in self.parts.peers.swap(outgoing):
            pairs = {tuple(map(int, name.split()[:2])) for name in arrays}
            for source, target in pairs:
                fields = (arrays[f"{source} {target} {name}"] for name in Values._fields)
                self._coming[source, target] = Values(*fields)


Link = tuple[Int64[np.ndarray, " slot"], Int32[np.ndarray, " slot"]]
"""Positions of a part's halo states in its tables, and their numbers in the part they are of."""


def _links(parts: Parts) -> dict[int, dict[int, Link]]:
    """By part of this process, and by part that has some of its halo."""
    links: dict[int, dict[int, Link]] = {}
    for part in parts.numbers:
        halo = parts.halos[part]
        own = len(parts.graph(part)[0].states) - len(halo.part)
        links[part] = {}
        for source in np.unique(halo.part).tolist():
            slots, numbers = halo.of(source)
            links[part][source] = own + slots, numbers
    return links


def _wanted(
    parts: Parts, links: dict[int, dict[int, Link]]
) -> dict[int, dict[int, Int32[np.ndarray, " slot"]]]:
    """By part of this process, and by part of another: its states that the other follows to."""
    wanted: dict[int, dict[int, Int32[np.ndarray, " slot"]]] = {part: {} for part in parts.numbers}
    if parts.peers.size == 1:
        return wanted
    asked: list[dict[str, np.ndarray]] = [{} for _ in range(parts.peers.size)]
    for part, sources in links.items():
        for source, (_, numbers) in sources.items():
            rank = int(parts.ranks[source])
            if rank != parts.peers.rank:
                asked[rank][f"{source} {part}"] = numbers
    for arrays in parts.peers.swap(asked):
        for name, numbers in arrays.items():
            source, target = map(int, name.split())
            wanted[source][target] = numbers
    return wanted
