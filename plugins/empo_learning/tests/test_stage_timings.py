"""Stages are measured, and cost nothing where nobody asks."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
import torch
from rich.console import Console

from empo_learning.stage_timings import StageTimings


class Clock:
    """A clock that goes forward when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def pipeline(timing: StageTimings, clock: Clock, forward_ms: float = 6.0) -> None:
    for name, ms in (("collect", 1.0), ("forward", forward_ms), ("scatter", 0.5), ("forward", 2.0)):
        with timing.stage(name):
            clock.now += ms / 1000


@pytest.fixture
def measured() -> StageTimings:
    """Two calls; the stage ``forward`` is entered twice in each."""
    clock = Clock()
    timing = StageTimings(clock=clock)
    pipeline(timing, clock)
    pipeline(timing, clock, forward_ms=10.0)
    return timing


def test_stats_are_milliseconds_per_call_the_longest_first(measured: StageTimings) -> None:
    assert measured.calls == 2
    stats = measured.stats()
    assert list(stats) == ["forward", "collect", "scatter"]
    assert stats == pytest.approx({"forward": 10.0, "collect": 1.0, "scatter": 0.5})


def test_the_table_shows_milliseconds_and_shares(measured: StageTimings) -> None:
    console = Console(width=60)
    with console.capture() as capture:
        console.print(measured.table())
    words = capture.get().split()
    text = " ".join(words)
    assert "Stages (2 calls)" in text
    assert "forward │ 10.000 │ 87.0%" in text
    assert "collect │ 1.000 │ 8.7%" in text
    assert "total │ 11.500 │ 100.0%" in text


def test_a_reset_forgets(measured: StageTimings) -> None:
    measured.reset()
    assert (measured.calls, measured.stats()) == (0, {})
    assert measured.table().row_count == 1


def test_a_stage_that_fails_is_measured_too() -> None:
    clock = Clock()
    timing = StageTimings(clock=clock)

    def fail() -> None:
        with timing.stage("forward"):
            clock.now += 0.5
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert timing.stats() == {"forward": 500.0}


def test_real_time_is_measured_by_default() -> None:
    timing = StageTimings()
    with timing.stage("product"):
        torch.ones(50, 50) @ torch.ones(50, 50)
    assert timing.stats()["product"] > 0


def test_disabled_timings_neither_measures_nor_allocates() -> None:
    called: list[object] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "c_call":
            called.append(argument)

    timing = StageTimings(enabled=False)
    sys.setprofile(note)
    try:
        with timing.stage("collect") as first, timing.stage("forward"):
            pass
    finally:
        sys.setprofile(None)
    assert first is None
    assert called == [sys.setprofile], "no timer is asked"
    assert timing.stage("collect") is timing.stage("forward"), "one object serves all stages"
    assert (timing.calls, timing.stats()) == (0, {})


@pytest.mark.gpu
def test_events_measure_what_a_cuda_device_does() -> None:
    timing = StageTimings("cuda")
    data = torch.ones(2000, 2000, device="cuda")
    for _ in range(600):
        with timing.stage("product"):
            data = data @ data / 2000
        with timing.stage("nothing"):
            pass
    stats = timing.stats()
    assert timing.calls == 600
    assert stats["product"] > stats["nothing"] >= 0
