"""The solver beside the same equations with 60 digits; ``faults.py numerics`` takes 1,000 games."""

from __future__ import annotations

import numpy as np
import pytest
from precise_reference import errors

from empo_exact.defunct import chances_to_fail

SHARP = 57
"""A game with ``beta_r`` 100 and ``rho`` 16."""


@pytest.mark.parametrize("seed", [*range(10), SHARP])
def test_the_solver_has_twelve_digits(seed: int) -> None:
    largest, allowed = errors(seed)
    assert {name for name in largest if not largest[name] <= allowed[name]} == set()


@pytest.mark.parametrize("rate", [1e-15, 1e-6, 0.125, 1.0])
def test_chances_to_fail_keep_their_digits_where_they_are_small(rate: float) -> None:
    once, twice = chances_to_fail(np.array([1.0, 2.0]), rate)
    assert once == pytest.approx(rate, rel=1e-14)
    assert twice == pytest.approx(rate * (2 - rate), rel=1e-14)
