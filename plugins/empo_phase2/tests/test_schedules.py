"""Each schedule against numbers worked out by hand from its definition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_phase2.warmup import linear, phased_out_before, sigmoid_ramp

steps = st.integers(0, 10**6)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(-5, 1.0), (0, 1.0), (2500, 0.7525), (5000, 0.505), (10_000, 0.01), (10**9, 0.01)],
)
def test_linear_goes_straight_from_start_to_end(step: int, expected: float) -> None:
    assert linear(step, 1.0, 0.01, 10_000) == pytest.approx(expected, rel=1e-12)


def test_linear_also_rises_and_ends_exactly() -> None:
    assert linear(1, 0.0, 0.3, 3) == pytest.approx(0.1)
    assert linear(3, 0.1, 0.3, 3) == 0.3
    assert linear(0, 0.5, 0.9, 0) == 0.9
    assert linear(-1, 0.5, 0.9, -3) == 0.9


# (s(6 (t - 1/2)) - s(-3)) / (s(3) - s(-3)) with the logistic function s, at t = step / 20000.
RAMP = [
    (-1, 0.0), (0, 0.0), (2_000, 0.0394927827), (5_000, 0.1491464521), (10_000, 0.5),
    (15_000, 0.8508535480), (18_000, 0.9605072173), (20_000, 1.0), (50_000, 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("step", "expected"), RAMP)
def test_the_ramp_is_the_middle_of_a_sigmoid(step: int, expected: float) -> None:
    assert sigmoid_ramp(step, 20_000) == pytest.approx(expected, abs=1e-9)


def test_without_a_ramp_the_full_value_holds_at_once() -> None:
    assert sigmoid_ramp(0, 0) == 1.0
    assert sigmoid_ramp(-3, -1) == 1.0


@given(first=steps, second=steps, length=st.integers(1, 10**5))
@settings(max_examples=100)
def test_the_ramp_rises_within_its_bounds(first: int, second: int, length: int) -> None:
    low, high = sorted((first, second))
    assert 0 <= sigmoid_ramp(low, length) <= sigmoid_ramp(high, length) <= 1


# Warm-up ends at 50,000; 0.7 of 100,000 steps is 70,000.
@pytest.mark.parametrize(
    ("step", "oldest"),
    [
        (0, 0), (49_999, 0), (50_000, 0), (50_001, 2), (60_000, 25_000), (69_999, 49_997),
        (70_000, 50_000), (100_000, 50_000), (10**9, 50_000),
    ],
)  # fmt: skip
def test_warm_up_experience_is_phased_out_and_never_comes_back(step: int, oldest: int) -> None:
    assert phased_out_before(step, 50_000, 70_000) == oldest


@pytest.mark.parametrize("final", [0, 49_999, 50_000])
def test_a_window_without_length_drops_warm_up_at_its_end(final: int) -> None:
    assert phased_out_before(49_999, 50_000, final) == 0
    assert phased_out_before(50_000, 50_000, final) == 50_000


@given(step=steps, warm_up_end=steps, final=steps)
@settings(max_examples=200)
def test_the_age_limit_never_falls_and_never_passes_the_present(
    step: int, warm_up_end: int, final: int
) -> None:
    now, later = (phased_out_before(s, warm_up_end, final) for s in (step, step + 1))
    assert 0 <= now <= later
    assert now <= min(step, warm_up_end)
