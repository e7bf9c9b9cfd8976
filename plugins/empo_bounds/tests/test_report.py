"""What is printed of an interval contains it, whatever its size; pictures name missing bounds."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from empo_bounds.certificate import Certificate, RoundRecord
from empo_bounds.report import interval_text, picture

SHARE = Decimal("1.000001e-9")


@given(st.floats(-1e308, 1e308, allow_nan=False), st.floats(-1e308, 1e308, allow_nan=False))
def test_a_printed_interval_contains_what_it_is_of(first: float, other: float) -> None:
    low, high = sorted((first, other))
    below, above = map(Decimal, interval_text([low, high]).strip("[]").split(", "))
    assert below <= Decimal(low) + SHARE * abs(Decimal(low))
    assert above >= Decimal(high) - SHARE * abs(Decimal(high))
    for number, text in ((low, below), (high, above)):
        assert (text == 0) == (number == 0)
        assert abs(text - Decimal(number)) <= Decimal("1.001e-3") * abs(Decimal(number))


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-1.185e-10, -1.185e-10, "[-1.185e-10, -1.185e-10]"),
        (-1.5e30, -1.23456e24, "[-1.500e+30, -1.234e+24]"),
        (1 - 1e-14, 1 + 1e-14, "[1.0000, 1.000]"),
        (-2.29251, -0.70579, "[-2.293, -0.7057]"),
        (None, 0.0, "[unbounded, 0]"),
        (0.00005, 123456.7, "[5.000e-5, 123500]"),
    ],
)
def test_intervals_are_shown_to_four_digits(low: float | None, high: float, text: str) -> None:
    assert interval_text([low, high]) == text


@pytest.mark.parametrize(
    ("lows", "label"),
    [
        ([None, None], "at least: unbounded"),
        ([None, -2.0], "at least: unbounded in 1 of 2 rounds"),
        ([-3.0, -2.0], "at least"),
    ],
)
def test_a_picture_has_both_bounds_or_says_which_is_missing(
    lows: list[float | None], label: str
) -> None:
    rounds = [
        RoundRecord(
            occupancy=0.1, pairs=pairs, transitions=pairs, outside=0.1, v_r=[low, -1.0],
            widest_v_e=0.5, median_v_e=0.5, seconds=0.0,
        )
        for pairs, low in zip((1, 10), lows, strict=True)
    ]  # fmt: skip
    certificate = Certificate.model_construct(rounds=rounds, vacuous_v_r=[None, 0.0])
    legend = picture(certificate).axes[0].get_legend()
    assert legend is not None
    assert {"at most", label} <= {text.get_text() for text in legend.get_texts()}
