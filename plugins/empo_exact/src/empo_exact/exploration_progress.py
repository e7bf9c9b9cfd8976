"""Progress of an exploration, in one piece or in parts, which ends when RAM runs out."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from contextlib import contextmanager

from empo_core.protocols import Tracker, WorldModel
from empo_exact import ram
from empo_exact.graph import Explored, Progress
from empo_exact.growth import share_explored
from empo_exact.plugin import ExactParams

GRAPH = "state graph"
PROGRESS_S = 0.1
"""Seconds between signs of progress."""


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
