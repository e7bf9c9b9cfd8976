"""Schedules of learning rates, alone and in runs of every learner."""

from __future__ import annotations

import math
from typing import Any

import pytest

from empo_core.config import ScheduleRef
from empo_core.errors import ConfigError
from empo_core.protocols import Schedule
from empo_learning.lr_schedules import (
    CheckedSchedule,
    Constant,
    Cosine,
    Inverse,
    Linear,
    schedule_of,
)
from empo_learning.params import Optimiser
from empo_learning.plugin import ConstantParams, EndParams, InverseParams
from empo_testing.schedule import ScheduleTests

SCHEDULES = [
    Constant(ConstantParams()),
    Linear(EndParams()),
    Cosine(EndParams(end=0.1)),
    Inverse(InverseParams(end=0.2, power=0.5)),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda made: type(made).__name__)
class TestSchedules(ScheduleTests):
    @pytest.fixture
    def schedule(self, schedule: Schedule) -> Schedule:
        return schedule


@pytest.mark.parametrize(
    ("name", "params", "progress", "factor"),
    [
        ("constant", {}, 0.7, 1.0),
        ("linear", {}, 0.0, 1.0),
        ("linear", {}, 0.25, 0.75),
        ("linear", {"end": 0.2}, 0.5, 0.6),
        ("cosine", {}, 0.25, (1 + math.sqrt(0.5)) / 2),
        ("cosine", {"end": 3.0}, 1.0, 3.0),
        ("inverse", {}, 0.5, 1 / 1.5),
        # Of 100 steps 70 were constant: 1/t and 1/sqrt(t).
        ("inverse", {"end": 0.7}, 0.5, 70 / 85),
        ("inverse", {"end": math.sqrt(0.7), "power": 0.5}, 0.5, math.sqrt(70 / 85)),
    ],
)
def test_factors_are_those_of_the_formulas(
    name: str, params: dict[str, Any], progress: float, factor: float
) -> None:
    optimiser = Optimiser(lr_schedule=ScheduleRef.model_validate({"name": name, "params": params}))
    assert schedule_of(optimiser)(progress) == pytest.approx(factor, rel=1e-12)


def test_the_last_rollout_may_go_past_the_end() -> None:
    assert CheckedSchedule(Linear(EndParams()))(1.2) == 0.0


def division(progress: float) -> float:
    return 1 / progress


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (division, r"division.*test_lr_schedules\.py:\d+"),
        (lambda progress: -1.0, "-1"),
        (lambda progress: math.nan, "nan"),
        (lambda progress: "fast", r"fast.*test_lr_schedules\.py:\d+"),
        (lambda: 1.0, "TypeError"),
    ],
)
def test_a_wrong_function_is_named_with_its_place(function: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"optimiser\.lr_schedule: .*{problem}"):
        CheckedSchedule(function)(0.0)


def test_a_function_replaces_defaults_but_nothing_that_was_chosen() -> None:
    constant = Optimiser(lr_schedule=ScheduleRef.model_validate("constant"))
    for optimiser in (Optimiser(), constant):
        assert schedule_of(optimiser, lambda progress: 7.0)(0.5) == 7.0
    with pytest.raises(ConfigError, match=r"optimiser\.lr_schedule: .*'linear'"):
        schedule_of(Optimiser(lr_schedule=ScheduleRef.model_validate("linear")), division)
