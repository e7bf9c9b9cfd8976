"""Estimates of the RAM and disk that a solve needs, and refusals of what cannot fit."""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from jaxtyping import Int64

from empo_core.errors import ConfigError, SolveError
from empo_core.types import WorldSpec
from empo_exact.assumptions import Assumptions
from empo_exact.game import goal_order, padded_orders
from empo_exact.graph import ITEMS_PER_BLOCK, Explored, StateGraph
from empo_exact.plugin import ExactParams

log = logging.getLogger("empo_exact")

GIB = 1 << 30
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
SHARE = 0.8
"""Share of the machine's RAM that a run may take unless it is told otherwise."""
SMALL_BYTES = 100_000_000
"""``keep: auto`` keeps everything where the files take at most this."""
LARGE_BYTES = 1_000_000_000
"""Files that take more are announced by a warning."""
LEAST_ROOM = 64 << 20
"""RAM without which parts would be too small."""
HABITS = 3
"""Copies of the habitual policy in all states: as asked for, checked, and as the sweep reads it."""
PRIOR_HABITS = 4
"""Copies of it where it is a prior's, which is arranged anew for each time."""
ASKED_ROW = 256
"""Bytes of a state as a tuple, and of the array of beliefs there, besides its numbers."""
TIME_BYTES = 64
"""RAM per time of an episode, beside its values."""
ITEM_BYTES = 110
"""RAM per transition of the blocks under way, measured; freed memory stays with the process."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a state graph, found or estimated.

    Attributes:
        spec: The world's specification.
        layers: ``layers[d]`` states are reachable within ``d`` steps [depth].
        expanded: How many states have their transitions stored.
        transitions: Number of transitions.
        images: Number of images that transitions of a reduced graph lead to.
    """

    spec: WorldSpec
    layers: Int64[np.ndarray, " depth"]
    expanded: int
    transitions: int
    images: int = 0

    @classmethod
    def of(cls, graph: StateGraph, images: int = 0) -> Sizes:
        """The sizes of a graph."""
        return cls(graph.spec, graph.layers, graph.num_expanded, graph.num_transitions, images)

    @property
    def states(self) -> int:
        """Number of states."""
        return int(self.layers[-1])

    @property
    def graph_bytes(self) -> int:
        """Bytes of the graph's arrays, in RAM as on disk."""
        row = self.spec.state_words * self.spec.state_dtype.itemsize
        pairs = self.expanded * self.spec.num_joint_actions
        return 6 * self.transitions + 4 * pairs + row * self.states

    @property
    def exploring_bytes(self) -> int:
        """Bytes of RAM at the end of an exploration; each image was met as a row."""
        pairs = self.expanded * self.spec.num_joint_actions
        # Arrays have an eighth to spare; rows, padded to 8 bytes, and their hash table double.
        arrays = 9 * (6 * self.transitions + 4 * pairs) // 8
        return arrays + (3 * _padded_row(self.spec) + 16) * (self.states + self.images)

    @property
    def by_time(self) -> Int64[np.ndarray, " time"]:
        """States that are valued at each time [time]."""
        if self.spec.horizon is None:
            return np.array([self.states])
        times = np.minimum(np.arange(self.spec.horizon), len(self.layers) - 1)
        valued: Int64[np.ndarray, " time"] = np.minimum(self.layers[times], self.expanded)
        return valued


def disk_bytes(sizes: Sizes, keep: str, params: ExactParams | None = None) -> int:
    """Bytes that a run leaves in its directory, pictures apart; of usual parameters, if None."""
    if keep == "none":
        return 0
    return sizes.graph_bytes + int(sizes.by_time.sum()) * state_bytes(sizes.spec, params)


def ram_bytes(
    sizes: Sizes,
    params: ExactParams,
    original: Sizes | None = None,
    assumed: Assumptions | None = None,
) -> int:
    """Bytes that a solve takes at its peak, beyond those of the process before it.

    Args:
        sizes: Of the graph.
        params: The parameters.
        original: Of the graph of original states, which comes on top of a reduced one where the
            values of all are kept.
        assumed: Assumptions about the humans beyond the parameters.
    """
    spec = sizes.spec
    goals, payoff = len(goal_order(spec)), payoff_bytes(spec, params)
    now = sizes.by_time
    # One pair of tables is read and another written, both as large to the end as at first; without
    # times there is one.
    tables = payoff * (sizes.states + (int(now[-1]) if spec.horizon else 0))
    tables += payoff * sizes.images * (2 if spec.horizon else 1)
    values = state_bytes(spec, params) * now
    later = np.zeros_like(values)
    later[:1] = values[1:2].sum()  # Whatever is kept, those of time 1 are.
    if params.keep in ("all", "auto"):
        later = np.append(np.cumsum(values[:0:-1])[::-1], 0)
    inducing = tables + int((later + values).max())
    inducing += sizes.graph_bytes + 2 * goals * (sizes.states + sizes.images)
    inducing += 4 * sizes.transitions * (sizes.images > 0)
    if params.defunct.rate > 0:  # Both layers have transitions of their own.
        inducing += sizes.graph_bytes + 4 * sizes.transitions
    inducing += assumed_bytes(sizes, params, assumed or Assumptions())
    more = original.exploring_bytes if original is not None and params.keep == "all" else 0
    return block_bytes(sizes, params) + max(sizes.exploring_bytes, inducing) + more


def assumed_bytes(sizes: Sizes, params: ExactParams, assumed: Assumptions) -> int:
    """Bytes that assumptions about the humans take by state, while they are arranged."""
    spec = sizes.spec
    goals = 8 * len(goal_order(spec))
    actions = max((spec.num_actions[human] for human in spec.humans), default=1)
    # As the caller's function returns them, and as the sweep reads them.
    row_bytes = 2 * goals * ((assumed.beta_h is not None) + (assumed.nu is not None))
    if params.theory.nu > 0 or assumed.nu is not None:
        is_prior = assumed.habit is None and bool(assumed.habit_prior or params.habit)
        row_bytes += (PRIOR_HABITS if is_prior else HABITS) * goals * actions
    if callable(assumed.believed_others):
        profiles = math.prod(spec.num_actions[human] for human in spec.humans)
        others = max(profiles // spec.num_actions[human] for human in spec.humans)
        # Of each state, of all, and as the sweep reads them; and the row that was asked about.
        row_bytes += 3 * 8 * len(spec.humans) * actions * others + ASKED_ROW
    return row_bytes * sizes.expanded


def block_bytes(sizes: Sizes, params: ExactParams) -> int:
    """Bytes of the blocks of an exploration that are under way at a time."""
    items, workers = min(ITEMS_PER_BLOCK, sizes.transitions), params.compute.workers
    # Several workers leave one more, which is written while the next is numbered.
    return ITEM_BYTES * (workers + (2 if workers == 1 else 3)) * items


def state_bytes(spec: WorldSpec, params: ExactParams | None = None) -> int:
    """Bytes of the values of one state at one time; of usual parameters, if None."""
    rho = 1 if params is None else params.theory.rho
    return num_layers(params) * 8 * (2 * len(goal_order(spec)) + rho)


def payoff_bytes(spec: WorldSpec, params: ExactParams | None = None) -> int:
    """Bytes of what reaching one state pays; see ``payoffs.Payoffs`` and ``state_bytes``."""
    rho = 1 if params is None else params.theory.rho
    norms = rho + padded_orders(rho) if rho > 1 else 0
    return num_layers(params) * (16 * len(goal_order(spec)) + 8 * norms)


def num_layers(params: ExactParams | None) -> int:
    """2 where robots may fail, for states have values where they have, too; else 1."""
    return 2 if params is not None and params.defunct.rate > 0 else 1


def limit(params: ExactParams) -> int:
    """Bytes that this process may hold."""
    if params.compute.ram_limit_gb is not None:
        return int(params.compute.ram_limit_gb * GIB)
    machine = psutil.virtual_memory()
    all_bytes, free, here = machine.total, machine.available, used_bytes()
    # A container may allow less than the machine has.
    with contextlib.suppress(OSError, ValueError):
        all_bytes = min(all_bytes, int(CGROUP_LIMIT.read_text()))
    return int(min(SHARE * all_bytes, here + free))


def used_bytes() -> int:
    """Bytes of RAM that this process holds."""
    used: int = psutil.Process().memory_info().rss
    return used


def check_horizon(spec: WorldSpec, params: ExactParams) -> None:
    """Refuse more steps than there is RAM for, whatever the states, before anything is explored.

    Raises:
        ConfigError: if a single state at each time needs more RAM than there is, with both numbers.
    """
    keeps_all = params.keep == "all" or (params.keep == "auto" and bool(params.rollouts))
    bytes_per_time = TIME_BYTES + (state_bytes(spec, params) if keeps_all else 0)
    needed_bytes, allowed = (spec.horizon or 0) * bytes_per_time, limit(params)
    if needed_bytes > allowed:
        raise ConfigError(
            f"world_model.params.max_steps: an episode of {spec.name!r} has {spec.horizon:,} "
            f"steps; one state alone at each of them takes {needed_bytes:,} bytes "
            f"({needed_bytes / GIB:,.1f} GiB) of RAM, and the limit is {allowed / GIB:,.1f} GiB. "
            f"Choose less{', or set keep: none' if keeps_all else ''}."
        )


def refuse_beyond(
    limit_bytes: int, explored: Explored, params: ExactParams, spec: WorldSpec
) -> None:
    """Stop exploring when RAM runs out, or will do so in the states that were found already.

    Raises:
        SolveError: if the process holds more than the limit, or will.
    """
    sizes = sizes_found(explored, spec)
    used, exploring_bytes = (
        used_bytes(),
        sizes.exploring_bytes if params.compute.graph == "memory" else 0,
    )
    kept_bytes = _least_kept_bytes(explored, spec, params) if params.keep == "all" else 0
    if max(used, exploring_bytes + kept_bytes) <= limit_bytes:
        return
    holds = f"holds {used / GIB:.2f} GiB with {explored.num_states} states found so far"
    needs = (
        f"needs {(exploring_bytes + kept_bytes) / GIB:.2f} GiB for the {explored.num_states} "
        f"states found so far{', their values of all times' if kept_bytes else ''} and where their "
        "actions lead"
    )
    keep_less = kept_bytes > 0 and max(used, exploring_bytes) <= limit_bytes
    raise SolveError(
        f"exploring {spec.name!r}, this process {holds if used > limit_bytes else needs}; the "
        f"limit is {limit_bytes / GIB:.2f} GiB for all of it. "
        + _remedies(sizes, params, limit_bytes, keep_less=keep_less)
    )


def _least_kept_bytes(explored: Explored, spec: WorldSpec, params: ExactParams) -> int:
    """Bytes of the values of all times, if no further states were found."""
    times = spec.horizon or 1
    layers = explored.layers[:times]
    return state_bytes(spec, params) * (sum(layers) + (times - len(layers)) * explored.num_states)


def _remedies(sizes: Sizes, params: ExactParams, limit_bytes: int, *, keep_less: bool) -> str:
    """The settings that would help where RAM does not suffice.

    Args:
        sizes: Of the graph.
        params: As they are.
        limit_bytes: RAM that the process may hold.
        keep_less: It suffices if the values of all times are not in RAM.
    """
    advice = ["use a smaller max_steps", "raise compute.ram_limit_gb"]
    in_memory = params.compute.graph == "memory"
    if keep_less:
        advice.insert(0, "set keep: disk or none")
    elif in_memory and least_spilling_bytes(sizes, params) <= limit_bytes:
        advice.insert(0, "set compute.graph: spill, so that only the states themselves are in RAM")
    *others, last = advice
    text = f"{', '.join(others)} or {last}."
    return text[0].upper() + text[1:]


def sizes_found(explored: Explored, spec: WorldSpec) -> Sizes:
    """The sizes if no further states were found, and others have as many transitions."""
    is_last = spec.horizon is not None and len(explored.layers) >= spec.horizon
    expanded = explored.layers[-1] if is_last else explored.num_states
    branching = explored.transitions / max(1, explored.expanded)
    layers = np.array([explored.num_states])
    return Sizes(spec, layers, expanded, int(branching * expanded), explored.met)


def resolved(sizes: Sizes, params: ExactParams) -> ExactParams:
    """The parameters with ``keep: auto`` as what it means for a graph of this size."""
    if params.keep != "auto":
        return params
    is_small = disk_bytes(sizes, "all", params) <= SMALL_BYTES
    return params.model_copy(update={"keep": "all" if is_small or params.rollouts else "none"})


def least_spilling_bytes(sizes: Sizes, params: ExactParams) -> int:
    """Bytes of RAM that a solve from files takes at least: the states, and room for a part."""
    rows = (3 * _padded_row(sizes.spec) + 16) * sizes.states
    return rows + block_bytes(sizes, params) + LEAST_ROOM


def _padded_row(spec: WorldSpec) -> int:
    """Bytes of a state row in the table of rows."""
    return -(-spec.state_words * spec.state_dtype.itemsize // 8) * 8


def spilled_disk_bytes(sizes: Sizes, params: ExactParams | None = None) -> int:
    """Bytes of the files of a solve: its graph, and what was found or values of four times."""
    return sizes.graph_bytes + max(
        sizes.graph_bytes, 4 * state_bytes(sizes.spec, params) * sizes.states
    )


def announce(
    graph: StateGraph,
    params: ExactParams,
    stored_sizes: Sizes | None = None,
    assumed: Assumptions | None = None,
) -> None:
    """Say what a solve takes before it begins; ``stored_sizes``: see ``check``."""
    sizes = Sizes.of(graph)
    written = disk_bytes(stored_sizes or sizes, params.keep, params)
    log.info(
        "solving %r: %s states, %s transitions, %s goals; about %.2f GiB of RAM, "
        "and %.1f MB in the run directory (keep: %s)",
        graph.spec.name,
        f"{graph.num_states:,}",
        f"{graph.num_transitions:,}",
        len(graph.spec.goals),
        (used_bytes() + remaining_bytes(sizes, params, assumed)) / GIB,
        written / 1e6,
        params.keep,
    )
    if written > LARGE_BYTES:
        log.warning(
            "keep: %s leaves %.2f GB in the run directory; keep: auto or none leave less",
            params.keep,
            written / 1e9,
        )


def check(
    sizes: Sizes,
    params: ExactParams,
    directory: Path | None = None,
    stored_sizes: Sizes | None = None,
    assumed: Assumptions | None = None,
) -> None:
    """Refuse a solve whose values cannot fit into RAM, or what is kept onto the disk.

    Args:
        sizes: Of the graph.
        params: The parameters.
        directory: Where files go; None: nowhere.
        stored_sizes: Of the graph whose values are written; None: of this one.
        assumed: Assumptions about the humans beyond the parameters.

    Raises:
        SolveError: if the solve does not fit, with what is needed, what there is, and what to do.
    """
    allowed = limit(params)
    used, more = used_bytes(), remaining_bytes(sizes, params, assumed)
    without = remaining_bytes(sizes, params.model_copy(update={"keep": "none"}), assumed)
    spec = sizes.spec
    problem = (
        f"solving {spec.name!r} ({sizes.states} states, {sizes.transitions} transitions, "
        f"{len(spec.goals)} goals) needs"
    )
    if used + more > allowed:
        raise SolveError(
            f"{problem} {more / GIB:.2f} GiB for values on top of {used / GIB:.2f} GiB in use; the "
            f"limit is {allowed / GIB:.2f} GiB. "
            + _remedies(sizes, params, allowed, keep_less=used + without <= allowed)
        )
    if directory is None:
        return
    stored_sizes = stored_sizes or sizes
    advice = "Set keep: none, use a smaller max_steps, or run it on another disk"
    refuse_disk(stored_sizes, disk_bytes(stored_sizes, params.keep, params), directory, advice)


def refuse_disk(sizes: Sizes, needed_bytes: int, directory: Path, advice: str) -> None:
    """Refuse what does not fit onto the disk of a directory.

    Raises:
        SolveError: if it does not fit, with what is needed, what there is, and ``advice``.
    """
    there = next(folder for folder in (directory, *directory.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if needed_bytes > free:
        raise SolveError(
            f"solving {sizes.spec.name!r} ({sizes.states} states, {sizes.transitions} transitions, "
            f"{len(sizes.spec.goals)} goals) needs {needed_bytes / 1e9:.2f} GB on the disk of "
            f"{there}, which has {free / 1e9:.2f} GB left. {advice}."
        )


def remaining_bytes(sizes: Sizes, params: ExactParams, assumed: Assumptions | None = None) -> int:
    """Bytes of RAM that are still to come where the graph is there."""
    total_bytes = ram_bytes(sizes, params, assumed=assumed)
    return max(0, total_bytes - sizes.graph_bytes - block_bytes(sizes, params))
