"""Estimates of the RAM that a solve needs, and refusals of what cannot fit."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from empo_core.errors import SolveError
from empo_exact.graph import StateGraph
from empo_exact.kernel_data import Game
from empo_exact.plugin import ExactParams

GIB = 1 << 30
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def limit(params: ExactParams) -> int:
    """Bytes that this process may hold."""
    if params.compute.ram_limit_gb is not None:
        return int(params.compute.ram_limit_gb * GIB)
    free: int = psutil.virtual_memory().available
    here: int = psutil.Process().memory_info().rss
    # A container may allow less than the machine has.
    with contextlib.suppress(OSError, ValueError):
        free = min(free, int(CGROUP_LIMIT.read_text()) - here)
    return here + max(0, free) * 9 // 10


def refuse_beyond(limit_bytes: int, states: int) -> None:
    """Stop exploring when RAM runs out.

    Raises:
        SolveError: The process holds more than the limit.
    """
    used = psutil.Process().memory_info().rss
    if used > limit_bytes:
        raise SolveError(
            f"this process holds {used / GIB:.2f} GiB with {states} states found so far; the limit "
            f"is {limit_bytes / GIB:.2f} GiB for all of it. Use a smaller max_steps or raise "
            "compute.ram_limit_gb."
        )


def needs(graph: StateGraph, goals: int, params: ExactParams) -> dict[str, int]:
    """Bytes that the sweeps will take, by what for."""
    horizon = graph.spec.horizon
    state_bytes = 8 * (2 * goals + 1)
    if horizon is None:
        values = worth = graph.num_states * state_bytes
    else:
        counts = [min(graph.within(t), graph.num_expanded) for t in range(horizon)]
        kept = {"all": sum(counts), "disk": 0, "root": sum(counts[:2])}[params.keep]
        last = counts[-1] + graph.num_states
        values, worth = (kept + last) * state_bytes, graph.num_states * state_bytes
    return {"graph": graph.nbytes + graph.states.nbytes, "values": values, "sweep": worth}


def statement(graph: StateGraph, game: Game, params: ExactParams) -> str:
    """Sizes of a solve, in words."""
    wanted = needs(graph, len(game.weight), params)
    parts = ", ".join(f"{what} {size / 2**20:.1f} MiB" for what, size in wanted.items())
    return (
        f"solving {graph.spec.name!r}: {graph.num_states:,} states, {graph.num_transitions:,} "
        f"transitions, {len(graph.spec.goals)} goals; RAM: {parts}"
    )


def check(graph: StateGraph, game: Game, params: ExactParams) -> None:
    """Refuse a solve whose values cannot fit.

    Raises:
        SolveError: With what is needed, what there is, and what to do.
    """
    wanted = needs(graph, len(game.weight), params)
    used, allowed = psutil.Process().memory_info().rss, limit(params)
    more = wanted["values"] + wanted["sweep"]
    if used + more > allowed:
        raise SolveError(
            f"solving {graph.spec.name!r} ({graph.num_states} states, {graph.num_transitions} "
            f"transitions, {len(graph.spec.goals)} goals) needs {more / GIB:.2f} GiB for values on "
            f"top of {used / GIB:.2f} GiB in use; the limit is {allowed / GIB:.2f} GiB. Set keep: "
            "disk or keep: root, use a smaller max_steps, or raise compute.ram_limit_gb."
        )
