"""Secants, shares and numbers of explanations."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from empo_inspector.sentences import busiest, fixed, significant, templates, whole_shares
from empo_inspector.why import secant

positive = st.floats(1e-6, 1e6)
exponents = st.sampled_from([1.0, 2.0, -1.0, -2.0, 1.1, -0.5])


def of(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


@given(positive, positive, exponents)
def test_a_secant_is_the_difference_of_powers_over_that_of_values(
    value: float, reference: float, exponent: float
) -> None:
    with mpmath.workdps(60):
        a, b = mpmath.mpf(value), mpmath.mpf(reference)
        right = (a**exponent - b**exponent) / (a - b) if a != b else exponent * b ** (exponent - 1)
    assert float(secant(of(value), of(reference), exponent)[0]) == pytest.approx(
        float(right), rel=1e-8
    )


@given(positive, exponents, st.floats(-1e-7, 1e-7))
def test_a_secant_of_near_equals_is_nearly_the_slope(
    reference: float, exponent: float, distance: float
) -> None:
    slope = exponent * reference ** (exponent - 1)
    found = float(secant(of(reference * (1 + distance)), of(reference), exponent)[0])
    assert found == pytest.approx(slope, rel=1e-6)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=5), st.floats(0.01, 100))
def test_shares_are_whole_and_sum_to_100(parts: list[float], gap: float) -> None:
    parts = [*parts, gap - math.fsum(parts)]
    shares = whole_shares(parts, gap)
    assert sum(shares) == 100
    exact = [100 * part / gap for part in parts]
    assert all(abs(a - b) <= 1.001 for a, b in zip(shares, exact, strict=True))


@pytest.mark.parametrize(
    ("sizes", "stretch"),
    [([1.0], (0, 1)), ([1, 1, 5, 4, 1], (1, 3)), ([2, 2, 2, 2], (0, 2)), ([0.0, 0.0], (0, 1))],
)
def test_the_busiest_stretch_is_the_shortest_with_half(
    sizes: list[float], stretch: tuple[int, int]
) -> None:
    assert busiest(torch.tensor(sizes).double().numpy()) == stretch


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-26.2631, "-26.263"), (-15.0625, "-15.063"), (123456.7, "1.2346e+5"), (0.0, "0.0000"),
        (-1e-10, "-1.0000e-10"), (99999.96, "1.0000e+5"), (1.00005, "1.0001"), (12345.6, "12346"),
    ],
)  # fmt: skip
def test_five_digits_are_rounded_as_javascript_does(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.125, "0.13"), (0.375, "0.38"), (1.0, "1.00")])
def test_decimals_are_rounded_half_away_from_zero(value: float, text: str) -> None:
    assert fixed(value, 2) == text


def test_templates_are_sentences_or_pieces_of_them() -> None:
    assert all(isinstance(text, str) and text for text in templates().values())
