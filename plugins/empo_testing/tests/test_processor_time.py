"""A bound on processor time holds for the least of a few tries."""

from __future__ import annotations

import itertools

import pytest

from empo_testing import processor_time


@pytest.mark.parametrize(
    ("durations", "calls", "fastest"),
    [([0.5], 1, 0.5), ([3, 0.5], 2, 0.5), ([3, 2, 4], 3, 2)],
    ids=["quick", "slow once", "slow"],
)
def test_a_call_is_made_again_only_while_it_is_slow(
    monkeypatch: pytest.MonkeyPatch, durations: list[float], calls: int, fastest: float
) -> None:
    clock = iter(itertools.accumulate(moment for spent in durations for moment in (1.0, spent)))
    monkeypatch.setattr(processor_time.time, "process_time", clock.__next__)
    results = itertools.count(1)
    assert processor_time.timed(results.__next__, limit=1) == (calls, fastest)
