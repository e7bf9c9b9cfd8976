"""The schedule kit passes a right schedule and fails each one broken on purpose."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from empo_core.protocols import Schedule
from empo_testing.schedule import ScheduleTests

Runner = Callable[..., set[str]]


def falling(progress: float) -> float:
    """Follows the protocol."""
    return 1 - progress


def overshooting(progress: float) -> float:
    return 0.5 - progress


def nothing(progress: float) -> float:
    return 0.0


def noisy(progress: float) -> float:
    return random.random()


def counting() -> Schedule:
    calls = itertools.count(1)
    return lambda progress: 1 / next(calls)


FLAWS: list[tuple[Any, str]] = [
    (5, "test_it_is_a_schedule"),
    (overshooting, "test_factors_are_finite_and_not_negative"),
    (nothing, "test_something_can_be_learned"),
    (noisy, "test_equal_progress_gives_equal_factors_in_any_order"),
    (counting(), "test_equal_progress_gives_equal_factors_in_any_order"),
]


def subclass(made: Any) -> type:
    class TestIt(ScheduleTests):
        @pytest.fixture
        def schedule(self) -> Schedule:
            return made  # type: ignore[no-any-return]

    return TestIt


def test_a_right_schedule_passes(kit_failures: Runner) -> None:
    assert kit_failures(subclass(falling)) == set()


@pytest.mark.parametrize(("flaw", "caught_by"), FLAWS)
def test_a_broken_schedule_fails(kit_failures: Runner, flaw: Any, caught_by: str) -> None:
    assert caught_by in kit_failures(subclass(flaw), only=[caught_by])


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, name in FLAWS}
    assert caught == {name for name in dir(ScheduleTests) if name.startswith("test_")}
