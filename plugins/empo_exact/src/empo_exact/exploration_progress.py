"""Progress of an exploration, in one piece or in parts, which ends when RAM runs out."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

import numpy as np
from jaxtyping import Float64, Int64

from empo_core.protocols import Tracker, WorldModel
from empo_exact import ram
from empo_exact.graph import Explored, Progress
from empo_exact.plugin import ExactParams

GRAPH = "state graph"
PROGRESS_S = 0.1
"""Seconds between signs of progress."""
MOST = 1e15
"""States beyond which an extrapolation says nothing."""

Layers = Sequence[int] | Int64[np.ndarray, " depth"]


def grown(
    layers: Layers,
    num_states: int,
    horizon: int | None,
    *,
    recent: Callable[[Sequence[float]], float],
    fade: float,
) -> Float64[np.ndarray, " later"]:
    """How many states are reachable within each later number of steps, at most 1,000 of them.

    Args:
        layers: How many are within 0, 1, ... steps.
        num_states: How many were found, in a further layer too.
        horizon: Steps of an episode; None looks four times as far as ``layers`` go.
        recent: The rate of growth that goes on, from the last four.
        fade: The power of the depth that the rate falls with.
    """
    depth = len(layers) - 1
    steps = min(1000, (4 * (depth + 1) if horizon is None else horizon) - depth)
    rates = [*np.diff(np.log(layers[-5:])), math.log(num_states / layers[-1])]
    rate = recent([float(rate) for rate in (rates[:-1] or rates)])
    start = max(depth, 1)
    rising = rate * np.cumsum((start / (start + np.arange(1.0, steps + 1))) ** fade)
    projected: Float64[np.ndarray, " later"] = np.exp(
        np.minimum(math.log(layers[-1]) + rising, math.log(MOST))
    )
    return projected


def share_explored(explored: Explored, horizon: int | None) -> float:
    """The share of the states to be expanded that is, if growth falls as 1 over the depth."""
    later = grown(explored.layers, explored.num_states, horizon, recent=fmean, fade=1.0)
    before_last = later[-1 if horizon is None else -2] if len(later) > 1 else explored.layers[-1]
    return min(0.99, explored.expanded / max(float(before_last), explored.layers[-1]))


@contextmanager
def exploring(world: WorldModel, params: ExactParams, tracker: Tracker) -> Iterator[Progress]:
    """Tells a tracker how far an exploration is, and that it has ended.

    Raises:
        SolveError: if the process holds more RAM than the limit, or will.
    """
    horizon = world.spec.horizon
    limit, share, last_report = ram.limit(params), 0.0, 0.0

    def progress(explored: Explored) -> bool:
        nonlocal share, last_report
        ram.refuse_beyond(limit, explored, params, world.spec)
        if clock.monotonic() - last_report > PROGRESS_S:
            last_report = clock.monotonic()
            share = max(share, share_explored(explored, horizon))
            of = "" if horizon is None else f" of {horizon}"
            tracker.status(
                GRAPH, f"{len(explored.layers) - 1}{of} steps, {explored.num_states:,} states found"
            )
            tracker.progress(GRAPH, share, 1.0)
        return True

    tracker.progress(GRAPH, 0.0, 1.0)
    yield progress
    tracker.progress(GRAPH, 1.0, 1.0)
