"""Sweeps over parts, one after another, each with the values of its halo at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from jaxtyping import Float64, Int32, Int64
from numpy.typing import NDArray

from empo_core.protocols import WorldModel
from empo_exact.acyclic import cyclic
from empo_exact.answers import answers, combined
from empo_exact.assumptions import Assumptions
from empo_exact.checks import refuse_non_finite, refuse_powerless, refuse_unknown
from empo_exact.game import Values, arrays_of, values_of
from empo_exact.graph import StateGraph
from empo_exact.induction import Sweeps
from empo_exact.parts.builder import GRAPH, HALO
from empo_exact.parts.peers import Peers
from empo_exact.parts.store import MemoryStore, PartStore
from empo_exact.payoffs import Payoffs
from empo_exact.plugin import ExactParams
from empo_exact.problem import Problem, pose
from empo_exact.ram import Sizes
from empo_exact.reach import Mask, advance_mask
from empo_exact.sweep import (
    Seconds,
    Solver,
    room,
    terminal_values,
)
from empo_worlds.compilation import compiled

Slots: TypeAlias = Int64[np.ndarray, " halo_state"]
Numbers: TypeAlias = Int32[np.ndarray, " halo_state"]
Messages: TypeAlias = list[dict[str, np.ndarray]]


class Link(NamedTuple):
    """Halo states of one part that another has.

    Attributes:
        slots: Their positions in the halo of the one.
        numbers: Their numbers in the other, ascending.
    """

    slots: Numbers
    numbers: Numbers


@dataclass(frozen=True)
class Parts:
    """A state graph in parts, as one process has it.

    Attributes:
        world: The world.
        numbers: The parts of this process.
        ranks: The process that has each part [part].
        codes: Probabilities and durations by code [code 2].
        store: Of each part the graph, where its halo is, and values.
        peers: All processes.
        starts: Part of each state in which episodes start, and its number there [start 2].
        sizes: Sizes of the whole graph.
        layout: Identifies which states are in which part, and which process has it.
        warning: Of a terminal state that attracts robots; empty where there is none.
    """

    world: WorldModel
    numbers: list[int]
    ranks: Int64[np.ndarray, " part"]
    codes: Float64[np.ndarray, "code 2"]
    store: PartStore
    peers: Peers
    starts: Int64[np.ndarray, "start 2"]
    sizes: Sizes
    warning: str
    layout: str

    @property
    def stays_in_memory(self) -> bool:
        """The graphs are not read from files."""
        return isinstance(self.store, MemoryStore)

    def graph(self, part: int) -> StateGraph:
        """A part's own states and its halo as a graph."""
        return self.graph_and_goals(part)[0]

    def problem(self, part: int, params: ExactParams, assumed: Assumptions) -> Problem:
        """The problem of a part's own states."""
        graph, achieved = self.graph_and_goals(part)
        return pose(self.world, graph, params, assumed, achieved)

    def starts_in(self, part: int) -> Int64[np.ndarray, " start"]:
        """The numbers, in a part, of its states in which episodes start; in order of starts."""
        numbers: Int64[np.ndarray, " start"] = self.starts[self.starts[:, 0] == part, 1]
        return numbers

    def num_own(self, part: int) -> int:
        """Number of a part's own states."""
        return int(self.store.get(HALO, part)["own"])

    def links(self, part: int) -> dict[int, Link]:
        """By part that has some of it, the halo of one part."""
        halo = self.store.get(HALO, part)
        begins = np.flatnonzero(np.diff(halo["part"], prepend=-1))
        pieces = (np.split(halo[name], begins)[1:] for name in ("part", "slot", "index"))
        return {
            int(of[0]): Link(slots, numbers) for of, slots, numbers in zip(*pieces, strict=True)
        }

    def graph_and_goals(self, part: int) -> tuple[StateGraph, np.ndarray]:
        """A part's own states and its halo as a graph, and the goals that they achieve."""
        arrays = dict(self.store.get(GRAPH, part))
        achieved, expanded = arrays.pop("achieved"), int(arrays.pop("num_expanded"))
        prob, duration = (np.ascontiguousarray(column) for column in self.codes.T)
        graph = StateGraph(
            spec=self.world.spec, num_expanded=expanded, prob=prob, duration=duration, **arrays
        )
        return graph, achieved


def values_kind(done: int) -> str:
    """Kind of the stored values after so many sweeps."""
    return f"values-{done:05d}"


@compiled
def find_ready(
    bounds: Int64[np.ndarray, " offset"],
    successor: Int32[np.ndarray, " transition"],
    v_r: Float64[np.ndarray, " state"],
    ready: Mask,
) -> None:
    """Mark the states without a value all of whose successors have one."""
    for state in range(len(bounds) - 1):
        ready[state] = np.isnan(v_r[state])
        for item in range(bounds[state], bounds[state + 1]):
            if np.isnan(v_r[successor[item]]):
                ready[state] = False
                break


class Report(NamedTuple):
    """Message of each process to the others after a sweep.

    Attributes:
        valued: How many states it has valued.
        bad: How many of them have no finite U_r.
        start: V_r of the first start; None in processes that do not have it.
        is_due: It is time for a checkpoint.
    """

    valued: int
    bad: int
    start: float | None
    is_due: bool


class Checkpoints(Protocol):
    """Make values safe; see ``commits.Commits``.

    Attributes:
        done: Sweeps whose values are safe in all processes; 0: none.
    """

    done: int

    def is_due(self) -> bool:
        """True if it is time to commit."""

    def commit(self, sweeps: PartSweeps, done: int) -> None:
        """Make the values after so many sweeps safe."""


class PartSweeps(Sweeps):
    """Sweeps over all parts of one process; see ``induction.induce``.

    Attributes:
        parts: The graph.
        params: Theory and solver parameters.
        assumed: Assumptions beyond them.
        seconds: Wall-clock time of both phases.
        commits: Make values safe from time to time; None: nothing does.
        answers: Fingerprint of what priors answered in all sweeps.
        doubtful: By part, the states that the last sweep valued, where V_r is not finite in all.
    """

    def __init__(self, parts: Parts, params: ExactParams, assumed: Assumptions) -> None:
        self.horizon = parts.world.spec.horizon
        self.num_states = parts.sizes.states
        self.parts = parts
        self.commits: Checkpoints | None = None
        self.seconds = Seconds()
        self.answers = 0
        self.doubtful: dict[int, Int32[np.ndarray, " state"]] = {}
        self.params = params
        self.assumed = assumed
        self._queried = _queried(parts)
        self._coming: dict[tuple[int, int], Values] = {}
        self._posed: dict[int, Problem] = {}
        self._payoffs: Payoffs | None = None
        self._stored: list[int] = []
        self._has_gaps = False
        self._is_due = False

    def sweep(self, done: int, threads: ThreadPoolExecutor) -> tuple[int, float | None]:
        """See ``Sweeps``."""
        valued, bad = 0, 0
        self.doubtful.clear()
        parts = self.parts
        followers = parts.numbers[1:] + parts.numbers[:1]
        for part, following in zip(parts.numbers, followers, strict=True):
            problem = self.problem(part)
            parts.store.fetch(GRAPH, following)
            values, count, wrong = self._sweep_part(problem, part, done, threads)
            valued += count
            bad += wrong
            parts.store.put(values_kind(done + 1), part, arrays_of(values))
        parts.store.flush()
        self.offer(done + 1)
        is_due = bool(self.commits and self.commits.is_due())
        # All at once, since a message takes milliseconds.
        reports = parts.peers.all(Report(valued, bad, self.start_value(done + 1), is_due))
        self._is_due = reports[0].is_due
        self._refuse(done + 1, reports)
        start = next((report.start for report in reports if report.start is not None), None)
        return sum(report.valued for report in reports), start

    def _refuse(self, done: int, reports: Sequence[Report]) -> None:
        """Refuse what the sweep found that makes ``done`` of them."""
        parts, time = self.parts, None if self.horizon is None else self.horizon - done
        if any(report.bad for report in reports):
            self._has_gaps = time is not None
            reached = None if time is None else self.reached(time)
            for part in self.doubtful:
                problem, values = self.problem(part), self.values(part, done)
                refuse_powerless(problem, values, time, reached[part] if reached else None)
        for part, order in self.doubtful.items():
            starts = len(parts.starts_in(part))
            if not self._has_gaps or starts:
                values = self.values(part, done)
                valued = values._replace(v_r=values.v_r[order])
                refuse_unknown(valued, time, self._has_gaps, starts)
        if not any(report.valued for report in reports):
            rows = [row for of_rank in parts.peers.all(self.unvalued(done)) for row in of_rank]
            raise cyclic(parts.world, rows[0])

    def _refuse_ends(self) -> None:
        """Refuse states at the horizon in which a human is without power, if presence counts."""
        if self.horizon is None or self.params.theory.counting == "arrival":
            return
        ends = {}
        for part in self.parts.numbers:
            ends[part] = terminal_values(self.problem(part), self.parts.num_own(part))
        if not any(self.parts.peers.all(any(np.isnan(of.v_r).any() for of in ends.values()))):
            return
        self._has_gaps, reached = True, self.reached(self.horizon)
        for part, values in ends.items():
            refuse_powerless(self.problem(part), values, self.horizon, reached[part])

    def keep(self, done: int, *, is_last: bool) -> None:
        """See ``Sweeps``."""
        if self.commits and self._is_due and not is_last:
            self.commits.commit(self, done)
        self._stored.append(done)
        required = {done, done - 1, self.commits.done if self.commits else done}
        for older in [] if self.keeps_times else [n for n in self._stored if n not in required]:
            self.parts.store.drop(values_kind(older), self.parts.numbers)
            self._stored.remove(older)

    def begin(self, done: int) -> tuple[int, float | None]:
        """See ``Sweeps``."""
        self._has_gaps = not math.isfinite(self.params.theory.terminal_value)
        if not done:
            self._refuse_ends()
            return 0, None
        self._stored = [done]
        self.offer(done)
        starts = self.parts.peers.all(self.start_value(done))
        parts = [self.values(part, done).v_r for part in self.parts.numbers]
        valued = self.parts.peers.sum(sum(int(np.count_nonzero(~np.isnan(v_r))) for v_r in parts))
        if self.horizon is not None:
            self._has_gaps = any(self.parts.peers.all(bool(self.unvalued(done))))
        return valued, next(value for value in starts if value is not None)

    def offer(self, done: int) -> None:
        """Send the values after ``done`` sweeps that other processes want, and take theirs."""
        outgoing = self._nothing()
        for part, targets in self._queried.items():
            for target, numbers in targets.items():
                rows = self.parts.store.rows(values_kind(done), part, numbers)
                where = outgoing[int(self.parts.ranks[target])]
                where |= {f"{part} {target} {name}": array for name, array in rows.items()}
        self._coming.clear()
        for source, target, arrays in self._swapped(outgoing, lent_as="values"):
            self._coming[source, target] = values_of(arrays)

    def value_blocks(
        self, problem: Problem, part: int, done: int
    ) -> Iterator[tuple[Slots, Values]]:
        """Values after ``done`` sweeps, and the rows of a part's tables that they belong in."""
        if done == 0:
            values = terminal_values(problem, problem.graph.num_states)
            if self.horizon is None:
                values.v_r[:] = np.nan
            yield np.arange(len(values.v_r)), values
            return
        values = self.values(part, done)
        yield np.arange(len(values.v_r)), values
        behind = self.parts.num_own(part)
        for source, (slots, numbers) in self.parts.links(part).items():
            rows = self._coming.get((source, part))
            if rows is None:
                rows = values_of(self.parts.store.rows(values_kind(done), source, numbers))
            yield behind + slots[: len(rows.v_r)].astype(np.int64), rows

    def table(self, problem: Problem, part: int, done: int) -> Values:
        """The values of a part's states and halo; NaN where they are not known."""
        values = room(problem, problem.graph.num_states)
        for array in values:
            array[:] = np.nan
        for where, block in self.value_blocks(problem, part, done):
            for array, rows in zip(values, block, strict=True):
                array[where] = rows
        return values

    @property
    def keeps_all(self) -> bool:
        """The whole graph is wanted in the end, with the values of all times."""
        return self.params.keep in ("all", "disk")

    @property
    def keeps_times(self) -> bool:
        """The values after all sweeps are wanted in the end, not only those after the last."""
        return self.keeps_all and self.horizon is not None

    def start_value(self, done: int) -> float | None:
        """V_r of the first start; None in processes that do not have it."""
        part, number = self.parts.starts[0]
        if part not in self.parts.numbers:
            return None
        row = self.parts.store.rows(values_kind(done), int(part), np.array([number], np.int32))
        return float(row["v_r"][0])

    def unvalued(self, done: int) -> list[NDArray[np.integer]]:
        """A state row of this process without a value; empty where there is none."""
        for part in self.parts.numbers:
            v_r = self.parts.store.get(values_kind(done), part)["v_r"]
            for state in np.flatnonzero(np.isnan(v_r))[:1]:
                return [self.parts.graph(part).states[state]]
        return []

    def values(self, part: int, done: int) -> Values:
        """The values of a part's own states after so many sweeps."""
        return values_of(self.parts.store.get(values_kind(done), part))

    def problem(self, part: int) -> Problem:
        """The problem of a part; the same every time where its graph stays in memory."""
        if part in self._posed:
            return self._posed[part]
        problem = self.parts.problem(part, self.params, self.assumed)
        if self.parts.stays_in_memory:
            self._posed[part] = problem
        return problem

    def reached(self, steps: int) -> dict[int, Mask]:
        """Which states of each part can be reached after so many steps."""
        parts, masks = self.parts, {part: self._nowhere(part) for part in self.parts.numbers}
        for part, mask in masks.items():
            mask[parts.starts_in(part)] = True
        for _ in range(steps):
            after, outgoing = {part: self._nowhere(part) for part in parts.numbers}, self._nothing()
            for part in parts.numbers:
                graph = parts.graph(part)
                now, then = (np.zeros(graph.num_states, np.bool_) for _ in range(2))
                now[: len(masks[part])] = masks[part]
                advance_mask(graph.bounds, graph.successor, now, then)
                after[part] |= then[: len(masks[part])]
                for source, (slots, numbers) in parts.links(part).items():
                    where = outgoing[int(parts.ranks[source])]
                    where[f"{part} {source} marked"] = numbers[then[len(masks[part]) + slots]]
            for _, target, arrays in self._swapped(outgoing):
                after[target][arrays["marked"]] = True
            masks = after
        return masks

    def _sweep_part(
        self, problem: Problem, part: int, done: int, threads: ThreadPoolExecutor
    ) -> tuple[Values, int, int]:
        """The values of a part, how many are new, and how many states have no finite U_r."""
        graph, after = problem.graph, self._after(problem, part, done)
        if self.horizon is None:
            ready = np.zeros(graph.num_expanded, np.bool_)
            find_ready(graph.bounds, graph.successor, after.v_r, ready)
            order = np.flatnonzero(ready).astype(np.int32)
            _, values = next(self.value_blocks(problem, part, done))
            values = Values(*(array[: graph.num_expanded].copy() for array in values))
            left = 1
        else:
            left = done + 1
            count = graph.expanded_within(self.horizon - left)
            order, values = np.arange(count, dtype=np.int32), room(problem, count)
        solver = Solver(problem, self.seconds)
        bad = solver.sweep(order, after, values, left, threads)
        self.answers = combined(self.answers, self._of_part(part, solver.answers))
        refuse_non_finite(problem, values, f"{left} steps before the end")
        if not math.isfinite(float(values.v_r[order].sum())):
            self.doubtful[part] = order
        return values, len(order), bad

    def answered(self, done: int, store: PartStore) -> int:
        """The fingerprint of what priors answer in so many sweeps, whose values a store has."""
        total = 0
        for part in self.parts.numbers:
            problem, digest = self.problem(part), 0
            if problem.prior is None and problem.habit is None:
                continue
            if self.horizon is None:
                valued = ~np.isnan(store.get(values_kind(done), part)["v_r"])
                digest = answers(problem, np.flatnonzero(valued).astype(np.int32), 1)
            horizon = self.horizon or 0
            for left in range(1, done + 1) if horizon else ():
                count = problem.graph.expanded_within(horizon - left)
                order = np.arange(count, dtype=np.int32)
                digest = combined(digest, answers(problem, order, left))
            total = combined(total, self._of_part(part, digest))
        return total

    def _of_part(self, part: int, digest: int) -> int:
        """A fingerprint that tells the states of a part from those of others."""
        return (2 * part + 1) * digest

    def _after(self, problem: Problem, part: int, done: int) -> Payoffs:
        """What reaching a part's states and halo pays, in the memory of the part before."""
        states = problem.graph.num_states
        if self._payoffs is None or len(self._payoffs.v_r) < states:
            self._payoffs = None  # Freed before there are new ones.
            self._payoffs = Payoffs(problem, states)
        after = self._payoffs.reused(problem, states)
        for numbers, values in self.value_blocks(problem, part, done):
            after.renew(values, numbers, np.arange(len(numbers)))
        return after

    def _nowhere(self, part: int) -> Mask:
        return np.zeros(self.parts.num_own(part), np.bool_)

    def _nothing(self) -> Messages:
        return [{} for _ in range(self.parts.peers.size)]

    def _swapped(
        self, outgoing: Messages, lent_as: str | None = None
    ) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
        """Arrays from a part to a part, by name, that were sent to this process."""
        for messages in self.parts.peers.swap(outgoing, lent_as):
            pairs: dict[tuple[int, int], dict[str, np.ndarray]] = {}
            for key, array in messages.items():
                first, second, name = key.split()
                pairs.setdefault((int(first), int(second)), {})[name] = array
            for (source, target), arrays in pairs.items():
                yield source, target, arrays


def _queried(parts: Parts) -> dict[int, dict[int, Numbers]]:
    """By part of this process, and by part of another: its states that follow those of that."""
    queried: dict[int, dict[int, Numbers]] = {part: {} for part in parts.numbers}
    if parts.peers.size == 1:
        return queried
    requests: Messages = [{} for _ in range(parts.peers.size)]
    for part in parts.numbers:
        for source, link in parts.links(part).items():
            rank = int(parts.ranks[source])
            if rank != parts.peers.rank:
                requests[rank][f"{source} {part}"] = link.numbers
    for messages in parts.peers.swap(requests):
        for name, numbers in messages.items():
            source, target = map(int, name.split())
            queried[source][target] = numbers
    return queried
