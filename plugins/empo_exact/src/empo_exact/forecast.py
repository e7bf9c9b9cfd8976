"""Sizes, RAM, disk and time of a solve, from a few seconds of exploration."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import psutil
from jaxtyping import Float64
from pydantic import JsonValue

from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec
from empo_exact import ram
from empo_exact.assumptions import Assumptions
from empo_exact.exploration_progress import MOST, Layers, grown
from empo_exact.graph import Explored, StateGraph, world_graph
from empo_exact.payoffs import Payoffs
from empo_exact.plugin import Compute, ExactParams, UniformParams
from empo_exact.prior import UniformPrior
from empo_exact.problem import pose
from empo_exact.ram import Sizes
from empo_exact.sweep import Seconds, Solver, room, terminal_values
from empo_exact.terminal_states import warning_before

if TYPE_CHECKING:
    from empo_exact.reductions.reduced import Reduced

MIB = 1 << 20
EXPLORE_S = 5.0
"""Seconds of exploration."""
EXPLORE_BYTES = 256 << 20
"""RAM that the exploration may take."""
SAMPLE = 1_000_000
"""Transitions of the states whose sweep is timed; fewer stay in the processor's caches."""
TRIALS = 3
"""Sweeps that are timed; the fastest was disturbed least."""
MAX_JOINT = 200_000
"""Joint actions of a state beyond which nothing is expanded: it would take too much RAM."""
SPREAD = 1.2
"""RAM and transitions per state may be so many times greater than estimated, seconds twice that,
since other processes work on the same cores."""


def _stopwatch(compute: Compute) -> Callable[[], float]:
    """A clock that does not run while other work has the processor, where one thread does all."""
    is_alone = compute.workers == 1 and compute.executor is None
    return clock.process_time if is_alone else clock.perf_counter


class _Watch:
    """Ends an exploration in time; the clock runs from the first block, which loads kernels."""

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        self.is_complete = True
        self.depth = 0
        self.base = self._first = self._last = 0
        self._begin: float | None = None
        self._stopwatch = stopwatch
        self._started = self._used = 0.0
        self.seconds = 0.0

    def __call__(self, explored: Explored) -> bool:
        used: int = psutil.Process().memory_info().rss
        if self._begin is None:
            self._begin, self.base, self._first = clock.monotonic(), used, explored.expanded
            self._started = self._stopwatch()
        self._used = self._stopwatch() - self._started
        self.seconds = clock.monotonic() - self._begin
        self.depth, self._last = len(explored.layers) - 1, explored.expanded
        self.is_complete = self.seconds < EXPLORE_S and used - self.base < EXPLORE_BYTES
        return self.is_complete

    @property
    def seconds_per_state(self) -> float:
        return self._used / max(1, self._last - self._first)


class Forecast:
    """The needs of a solve; ranges, where the exploration did not end in time.

    Attributes:
        world: The world that was explored.
    """

    def __init__(self, world: WorldModel, params: ExactParams) -> None:
        """Explore for some seconds, and time a sweep over what was found.

        Raises:
            ConfigError: if the horizon alone takes more RAM than there is.
            SolveError: if the world breaks its contract, or what it declares is refuted.
        """
        ram.check_horizon(world.spec, params)
        self.world, self._params = world, params
        self._watch = _Watch(_stopwatch(params.compute))
        self._graph, self._reduced = _explored(world, params, self._watch)
        images = len(self._reduced.images.variant) if self._reduced else 0
        self._sizes = [Sizes.of(self._graph, images)]
        if not self._watch.is_complete:
            self._sizes.append(_extrapolated(world, self._graph, self._watch.depth, images))
        # What is kept are the values of all original states.
        self._written = [_original(size, self._reduced) for size in self._sizes]
        self._keeps = [ram.resolved(size, params) for size in self._written]
        sweep = sweep_seconds(world, self._graph, params)
        self._sweeping = [int(size.by_time.sum()) * sweep for size in self._sizes]
        self._exploring = [
            (size.expanded + (size is not written and resolved.keep == "all") * written.expanded)
            * self._watch.seconds_per_state
            for size, written, resolved in zip(self._sizes, self._written, self._keeps, strict=True)
        ]

    def needs(self) -> dict[str, JsonValue]:
        """Sizes, RAM, disk and seconds of the solve that was asked for."""
        params, watch, horizon = self._params, self._watch, self.world.spec.horizon
        steps = "" if horizon is None else f" of {horizon}"
        report: dict[str, JsonValue] = {
            "states": _range([size.states for size in self._sizes]),
            "transitions": _range([size.transitions for size in self._sizes]),
            "explored": f"{watch.depth}{steps} steps, in {watch.seconds:.1f} s",
        }
        if watch.is_complete:
            report = {
                "states": self._graph.num_states,
                "transitions": self._graph.num_transitions,
                "depth": len(self._graph.layers) - 1,
            }
        peaks, disk = _bytes(self._sizes, self._written, self._keeps, params)
        ram_range = (watch.base + peaks[0], watch.base + peaks[1])
        took = np.add(self._exploring, self._sweeping).tolist()
        report |= {
            "RAM (MiB)": _range([size / MIB for size in ram_range]),
            "RAM limit (MiB)": round(ram.limit(params) / MIB),
            "keep": " or ".join(dict.fromkeys(size.keep for size in self._keeps)),
            # Of the orbits that are met, some states may be out of reach.
            "disk (MB)": "up to " * (self._reduced is not None and disk[-1] > 0)
            + _range([size / 1e6 for size in disk]),
            "seconds": _seconds(took),
            "fits": _verdict(
                self._sizes[0].states > params.compute.max_states, *ram_range, ram.limit(params)
            ),
        }
        if idle := params.idle_checkpoints(1):
            report["checkpoints"] = f"none, unless torchrun starts several processes: {idle}"
        if warning := warning_before(self.world, self._graph, params):
            report["warning"] = warning
        return report

    def alternatives(self) -> dict[str, JsonValue]:
        """What each reduction would leave, and what 1, 2, 4 and 8 parts would take.

        Nothing where the world starts in several states, which neither supports.
        """
        if self._graph.within(0) > 1:
            return {}
        from empo_exact.reductions.prediction import predictions

        graph, params = self._graph, self._params
        report = dict(predictions(self.world, params, graph, is_complete=self._watch.is_complete))
        if graph.num_transitions and not params.reduce:
            from empo_exact.parts.forecast import in_parts

            seconds = self._exploring, self._sweeping
            report |= in_parts(graph, params, self._sizes, seconds, (_range, _seconds))
        return report


def too_many_actions(spec: WorldSpec) -> str | None:
    """Why nothing is explored, where expanding a single state would take too much RAM."""
    if spec.num_joint_actions <= MAX_JOINT:
        return None
    return f"not counted, with {spec.num_joint_actions:,} joint actions in each"


def _explored(
    world: WorldModel, params: ExactParams, watch: _Watch
) -> tuple[StateGraph, Reduced | None]:
    """The graph that is explored, as far as time allows, and what it is reduced by."""
    # Beyond the limit on states it is still of use to know how many there are.
    compute = params.compute.model_copy(update={"max_states": Compute().max_states})
    # Lumping comes after exploration, and takes all of it.
    reduce = [name for name in params.reduce if name != "lump"]
    params = params.model_copy(update={"reduce": reduce, "compute": compute})
    if not reduce:
        return world_graph(world, params, watch), None
    from empo_exact.reductions.preparation import prepare
    from empo_exact.reductions.reduced import explored

    reduced = explored(world, prepare(world, params, Assumptions()), params, watch)
    return reduced.graph, reduced


def _original(sizes: Sizes, reduced: Reduced | None) -> Sizes:
    """The sizes of the graph of all original states, by those of a reduced one."""
    if reduced is None:
        return sizes
    share = reduced.original_sizes.states / reduced.graph.num_states
    layers = (share * sizes.layers).astype(np.int64)
    return Sizes(sizes.spec, layers, int(share * sizes.expanded), int(share * sizes.transitions))


def _bytes(
    sizes: Sequence[Sizes],
    written: Sequence[Sizes],
    keeps: Sequence[ExactParams],
    params: ExactParams,
) -> tuple[list[float], list[int]]:
    """RAM at the peak, and disk, at least and at most.

    Args:
        sizes: Of the graph, at least and perhaps at most.
        written: Of the graph whose values are kept.
        keeps: The parameters with ``keep`` as what it means.
        params: The parameters.
    """
    spills = params.compute.graph == "spill"
    peaks = [
        ram.least_spilling_bytes(size, resolved)
        if spills
        else ram.ram_bytes(size, resolved, None if original is size else original)
        for size, original, resolved in zip(sizes, written, keeps, strict=True)
    ]
    disk = [
        ram.disk_bytes(original, resolved.keep, params)
        + spills * ram.spilled_disk_bytes(size, params)
        for size, original, resolved in zip(sizes, written, keeps, strict=True)
    ]
    return [peaks[0] - ram.block_bytes(sizes[0], params), SPREAD * peaks[-1]], disk


def _verdict(is_refused: bool, low: float, high: float, allowed: int) -> str:
    if is_refused:
        return "no: more states than compute.max_states"
    if low > allowed:
        return "no: more RAM than compute.ram_limit_gb allows"
    return "yes" if high <= allowed else "perhaps: RAM may not suffice"


def _extrapolated(world: WorldModel, graph: StateGraph, depth: int, images: int) -> Sizes:
    """The sizes if layers go on to grow, ever more slowly, after ``depth`` complete ones."""
    explored_layers, horizon = graph.layers[: depth + 1], graph.spec.horizon
    later = most_layers(explored_layers, graph.num_states, horizon)
    if world.max_states is not None:
        later = np.minimum(later, world.max_states)
    layers = np.append(explored_layers, np.maximum(later, graph.num_states))
    expanded = layers[-1 if horizon is None else -2]
    branching = graph.num_transitions / max(1, graph.num_expanded)
    transitions, images = (
        int(SPREAD * branching * expanded),
        int(images / graph.num_states * layers[-1]),
    )
    return Sizes(graph.spec, layers.astype(np.int64), int(expanded), transitions, images)


def most_layers(
    layers: Layers, num_states: int, horizon: int | None
) -> Float64[np.ndarray, " later"]:
    """How many states are reachable within later numbers of steps, at most.

    In most worlds growth falls as 1 over the depth or faster; the square root of it, of more than
    the fastest growth of late, is on the safe side.
    """
    return grown(layers, num_states, horizon, recent=lambda rates: SPREAD * max(rates), fade=0.5)


def sweep_seconds(world: WorldModel, graph: StateGraph, params: ExactParams) -> float:
    """Seconds that both phases take per state and time, from a sweep over a sample.

    A prior may take long to build, or to answer; the uniform one stands for it.
    """
    branching = max(1, graph.num_transitions // max(1, graph.num_expanded))
    sample = min(graph.num_expanded, max(1, SAMPLE // branching))
    if not graph.num_transitions:
        return 0.0
    theory = params.theory.model_copy(update={"nu": 0.0})
    prior = UniformPrior(UniformParams(), world) if params.human_prior is not None else None
    assumed = Assumptions(human_prior=prior)
    timed = ExactParams(theory=theory, counts=params.counts, compute=params.compute)
    problem = pose(world, graph, timed, assumed)
    end = int(graph.offsets[sample * graph.spec.num_joint_actions])
    reached = max(sample, int(graph.successor[:end].max(initial=0)) + 1)
    solver, order = Solver(problem, Seconds()), np.arange(sample, dtype=np.int32)
    fastest, end_values = math.inf, terminal_values(problem, reached)
    stopwatch = _stopwatch(params.compute)
    after, before = Payoffs.of(problem, end_values), Payoffs(problem, sample)
    with ThreadPoolExecutor(params.compute.workers) as threads:
        for _ in range(1 + TRIALS):  # The first one loads kernels.
            begin = stopwatch()
            solver.sweep(order, after, room(problem, sample), 1, threads, before)
            fastest = min(fastest, stopwatch() - begin)
    return ram.num_layers(params) * fastest / sample


def _seconds(ends: Sequence[float]) -> str:
    """The least and the greatest time; other processes may work on the same cores."""
    return _range([ends[0] / (2 * SPREAD), ends[-1] * 2 * SPREAD])


def _range(ends: Sequence[float]) -> str:
    """The least and the greatest number, to two digits, or one where they are equal."""
    low, high = _rounded(ends[0], math.floor), _rounded(ends[-1], math.ceil)
    return low if low == high else f"{low} to {high}"


def _rounded(value: float, way: Callable[[float], int]) -> str:
    if value >= MOST:
        return "far too many"
    if value < 0.1:
        return "0" if way is math.floor else "0.1"
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{way(round(value / unit, 6)) * unit:,.{max(0, -round(math.log10(unit)))}f}"
