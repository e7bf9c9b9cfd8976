"""Conformance kit of schedules: a proper factor at any time, which depends on nothing else."""

from __future__ import annotations

import math

import pytest

from empo_core.protocols import Schedule
from empo_testing.exploration import global_randomness_untouched

PROGRESS = [number / 64 for number in range(65)]
"""Shares of a run, its beginning and its end among them."""


class ScheduleTests:
    """Subclass this in your plugin's tests and override ``schedule``."""

    @pytest.fixture
    def schedule(self) -> Schedule:
        """The schedule under test."""
        raise NotImplementedError("override the fixture 'schedule'")

    def test_it_is_a_schedule(self, schedule: Schedule) -> None:
        assert isinstance(schedule, Schedule)

    def test_factors_are_finite_and_not_negative(self, schedule: Schedule) -> None:
        factors = [schedule(progress) for progress in PROGRESS]
        assert all(math.isfinite(factor) and factor >= 0 for factor in factors), factors

    def test_something_can_be_learned(self, schedule: Schedule) -> None:
        assert any(schedule(progress) > 0 for progress in PROGRESS)

    def test_equal_progress_gives_equal_factors_in_any_order(self, schedule: Schedule) -> None:
        with global_randomness_untouched():
            there = [schedule(progress) for progress in PROGRESS]
            back = [schedule(progress) for progress in reversed(PROGRESS)]
        assert there == back[::-1]
