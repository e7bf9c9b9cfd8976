"""Tables of a comparison."""

from __future__ import annotations

import pytest

from empo_compare.comparison import Comparison
from empo_compare.comparison import Group as RunGroup
from empo_compare.report import tables


@pytest.mark.parametrize(
    ("differs", "has_l"), [("algorithm.params.theory.rho", False), ("seed", True)]
)
def test_long_term_power_of_different_rho_has_no_difference(differs: str, has_l: bool) -> None:
    groups = tuple(RunGroup(name, (), {}) for name in "AB")
    numbers = {key: {"A": (1.0, 0.1, 1), "B": (2.0, 0.1, 1)} for key in ("L", "L_per_rho")}
    comparison = Comparison(
        groups=groups,
        labels={},
        differences={differs: {"A": 1, "B": 4}},
        results={f"root.bits.{key}": values for key, values in numbers.items()},
        bands={},
    )
    *_, (title, _, rows) = tables(comparison)
    assert [row[0] for row in rows] == ["L"] * has_l + ["L_per_rho"]
    assert ("rho" in title) is not has_l
