"""Trackers: statistics of episodes, and a run's metrics and progress where people look at them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from empo_trackers.ema import EMATracker
    from empo_trackers.episodic import EpisodicEMATracker, TerminationReason
    from empo_trackers.episodic_histogram import EpisodicEMATrackerWithHistogram
    from empo_trackers.histogram import FastVectorizedHistogram

_HOMES = {
    "EMATracker": "ema",
    "EpisodicEMATracker": "episodic",
    "EpisodicEMATrackerWithHistogram": "episodic_histogram",
    "FastVectorizedHistogram": "histogram",
    "TerminationReason": "episodic",
}

__all__ = [
    "EMATracker",
    "EpisodicEMATracker",
    "EpisodicEMATrackerWithHistogram",
    "FastVectorizedHistogram",
    "TerminationReason",
]


def __getattr__(name: str) -> type:
    """Import a class when it is first asked for: whoever lists plugins is spared torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    tracker_class: type = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return tracker_class


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
