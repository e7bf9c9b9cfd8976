"""Needs of a solve in parts, from a graph that was explored for some seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from pydantic import JsonValue

from empo_exact import ram
from empo_exact.graph import StateGraph
from empo_exact.parts.partition import change_counts, choose_partition, slow_words
from empo_exact.plugin import ExactParams
from empo_exact.ram import Sizes

COUNTS = (1, 2, 4, 8)
EXCHANGE = 0.8e9
"""Bytes per second that processes pack, exchange and unpack; a network of 10 Gbit/s has 1.25e9."""
MEETING_S = 0.005
"""Seconds that processes take to wait for each other and to agree, after every sweep."""
MIB = 1 << 20
Show: TypeAlias = Callable[[Sequence[float]], str]
"""Text of the least and the greatest of some numbers."""


def halo_share(graph: StateGraph, parts: int) -> float:
    """States of other parts that follow those of one, for each state, if there are so many."""
    if parts == 1:
        return 0.0
    partition = choose_partition([graph.states], parts, slow_words(change_counts(graph)))
    owner = partition.owners(graph.states)
    of = np.repeat(owner[: graph.num_expanded], np.diff(graph.bounds))
    halo = 0
    for part in range(partition.count):
        follows = np.zeros(graph.num_states, np.bool_)
        follows[graph.successor[of == part]] = True
        halo += int((follows & (owner != part)).sum())
    return halo / graph.num_states


def in_parts(
    graph: StateGraph,
    params: ExactParams,
    sizes: Sequence[Sizes],
    seconds: tuple[Sequence[float], Sequence[float]],
    formats: tuple[Show, Show],
) -> dict[str, JsonValue]:
    """Bytes of each part, halo and time, with a process for each part.

    Args:
        graph: As much of its graph as was explored.
        params: Of the solver.
        sizes: Sizes of the whole graph; the least and the most, where it was not explored.
        seconds: Time of one process to explore once, and to sweep; each likewise.
        formats: Shows a range of bytes, and of seconds.
    """
    report: dict[str, JsonValue] = {}
    show_mib, show_seconds = formats
    light = params.model_copy(update={"keep": "none"})
    for count in COUNTS:
        halo, needs = halo_share(graph, count), []
        for size, exploring, sweeping in zip(sizes, *seconds, strict=True):
            row = ram.state_bytes(size.spec, params)
            # A share of what one piece takes, and what reaching the states of the halo pays.
            whole = ram.ram_bytes(size, light) - ram.block_bytes(size, light)
            part = (whole + halo * ram.payoff_bytes(size.spec, params) * size.states) / count
            exchanged = halo * row * int(size.by_time.sum()) / count / EXCHANGE
            exchanged += MEETING_S * len(size.by_time) * (count > 1)
            needs.append((part / MIB, (exploring + sweeping) / count + exchanged))
        mib, took = zip(*needs, strict=True)
        name = "1 part" if count == 1 else f"{count} parts"
        report[name] = (
            f"{show_mib(mib)} MiB each, halo {halo:.2f} rows a state, {show_seconds(took)} s"
        )
    return report
