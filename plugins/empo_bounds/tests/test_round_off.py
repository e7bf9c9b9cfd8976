"""Functions and sums err by no more than outward rounding assumes."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from empo_bounds.round_off import FUNCTION, UNIT, down, up
from empo_bounds.value_kernels import powered
from empo_worlds.compilation import compiled_closure


@compiled_closure
def power_of(value: float, zeta: float) -> float:
    return powered(value, zeta)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_a_sum_lies_between_its_bounds(numbers: list[float]) -> None:
    exact = sum(map(Fraction, numbers))
    computed = np.array(numbers).cumsum()[-1:]
    assert Fraction(float(down(computed, len(numbers))[0])) <= exact
    assert exact <= Fraction(float(up(computed, len(numbers))[0]))


@given(st.lists(st.floats(0, 1e-160), min_size=2, max_size=40))
def test_products_that_underflow_lie_between_their_bounds(numbers: list[float]) -> None:
    exact = sum(Fraction(x) ** 2 for x in numbers)
    computed = (np.array(numbers) ** 2).cumsum()[-1:]
    assert Fraction(float(down(computed, 2 * len(numbers))[0])) <= exact
    assert exact <= Fraction(float(up(computed, 2 * len(numbers))[0]))


def test_infinity_stays_and_nothing_becomes_negative() -> None:
    assert up(np.array([math.inf]), 3)[0] == math.inf
    assert down(np.array([0.0, 1e-310]), 3).tolist() == [0.0, 0.0]


def worst_error(name: str, points: int) -> float:
    """Largest relative error of a function, in units of rounding, over its arguments here."""
    rng = np.random.default_rng(1)
    base, exponent = rng.uniform(1e-6, 30.0, points), rng.uniform(-4.0, 4.0, points)
    computed = {
        "pow": lambda: base**exponent,
        "compiled pow": lambda: np.array(list(map(power_of, base, exponent))),
        "log": lambda: np.log(base),
        "expm1": lambda: np.expm1(-base),
    }[name]()
    worst = 0.0
    with mpmath.workdps(40):
        for x, y, z in zip(base.tolist(), exponent.tolist(), computed.tolist(), strict=True):
            a, b = mpmath.mpf(x), mpmath.mpf(y)
            right = {"log": mpmath.log, "expm1": lambda a: mpmath.expm1(-a)}.get(
                name, lambda a, b=b: a**b
            )(a)
            worst = max(worst, float(abs((z - right) / right)))
    return worst / UNIT


@pytest.mark.parametrize("name", ["pow", "compiled pow", "log", "expm1"])
def test_functions_err_by_less_than_is_assumed(name: str) -> None:
    assert worst_error(name, 4000) <= FUNCTION


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["pow", "compiled pow", "log", "expm1"])
def test_functions_err_by_less_than_is_assumed_at_a_million_points(name: str) -> None:
    assert worst_error(name, 1_000_000) <= FUNCTION
