"""Stopwatches by name, on a clock that tests turn."""

from __future__ import annotations

import pytest

from empo_learning.timers import Timers


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timers(clock: Clock) -> Timers:
    return Timers(clock=clock)


def iteration(timers: Timers, clock: Clock) -> None:
    """Ten seconds: 6 of rollout, 4 of them in the environment, 3 of training, 1 of the rest."""
    with timers("rollout"):
        clock.now += 2
        for _ in range(2):
            with timers("environment"):
                clock.now += 2
    with timers("training"):
        clock.now += 3
    clock.now += 1


def test_nested_times_count_for_both_names(timers: Timers, clock: Clock) -> None:
    iteration(timers, clock)
    assert timers.lap() == {"rollout": 6, "rollout/environment": 4, "training": 3}
    assert timers.seconds == 10


def test_contexts_entered_together_are_nested(timers: Timers, clock: Clock) -> None:
    with timers("rollout"), timers("environment"):
        clock.now += 2
    assert list(timers.totals()) == ["rollout", "rollout/environment"]


def test_a_lap_begins_at_zero_and_totals_go_on(timers: Timers, clock: Clock) -> None:
    iteration(timers, clock)
    timers.lap()
    assert timers.lap() == {}
    with timers("training"):
        clock.now += 5
    assert timers.totals() == {"rollout": 6, "rollout/environment": 4, "training": 8}
    assert timers.lap() == {"training": 5}


def test_milliseconds_per_unit_of_work_count_all_laps(timers: Timers, clock: Clock) -> None:
    assert timers.mean_ms(0) == {}
    iteration(timers, clock)
    timers.lap()
    iteration(timers, clock)
    expected = {"rollout": 3000.0, "rollout/environment": 2000.0, "training": 1500.0}
    assert timers.mean_ms(4) == expected


def test_shares_are_per_cent_of_all_time(timers: Timers, clock: Clock) -> None:
    assert timers.shares() == {}
    iteration(timers, clock)
    assert timers.shares() == {"rollout": 60, "rollout/environment": 40, "training": 30}


def test_what_was_measured_survives_a_resumption(timers: Timers, clock: Clock) -> None:
    iteration(timers, clock)
    saved = timers.state_dict()
    clock.now += 1000  # Nobody ran.
    later = Timers(clock=clock)
    later.load_state_dict(saved)
    iteration(later, clock)
    assert later.seconds == 20
    assert later.shares() == {"rollout": 60, "rollout/environment": 40, "training": 30}
    assert later.lap() == {"rollout": 6, "rollout/environment": 4, "training": 3}
    assert saved["seconds"] == 10  # What was saved is nobody's to change.


def test_a_measurement_counts_though_it_ends_in_an_error(timers: Timers, clock: Clock) -> None:
    def failing() -> None:
        with timers("rollout"):
            clock.now += 3
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    with timers("training"):
        clock.now += 1
    assert timers.lap() == {"rollout": 3, "training": 1}


def test_a_lap_cannot_end_within_a_measurement(timers: Timers) -> None:
    with timers("rollout"):
        with pytest.raises(RuntimeError, match=r"lap .*'rollout'"):
            timers.lap()
        with pytest.raises(RuntimeError, match=r"load.*'rollout'"):
            timers.load_state_dict({"seconds": 0.0, "totals": {}})


def test_disabled_timers_measure_nothing(clock: Clock) -> None:
    timers = Timers(enabled=False, clock=clock)
    iteration(timers, clock)
    assert timers.lap() == {}
