"""Outward rounding: from a computed sum of numbers that are not negative to a bound of it.

A sum of ``n`` products, computed in double precision in any order, errs by at most
``n u / (1 - n u)`` of its exact value, ``u = 2^-53``, if nothing underflows; the errors of nested
sums add up. ``up`` and ``down`` move a result by ``4 (n + 12) u`` of itself, which covers their own
rounding, and by ``TINY``, which covers all that underflows. A factor that is smaller
than ``TINY`` has lost digits, and may meet a huge one; ``upper_factor`` and ``lower_factor`` are
its bounds.
Source: N. Higham, Accuracy and Stability of Numerical Algorithms, section 3.1.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Terms: TypeAlias = int | NDArray[np.int64]

UNIT: Final = 2.0**-53
"""Largest relative error of one operation."""
TINY: Final = 1e-300
"""More than 10^23 operations can lose by underflow."""
SMALLEST: Final = 5e-324
"""The smallest positive number: what a product of positive numbers is at most if it underflows."""
LARGEST: Final = float(np.finfo(np.float64).max)
"""The largest number: what an exact result is at least, up to its error, if it overflows."""
OWN: Final = 12
"""Operations of an outward rounding itself, beside those of what is rounded, and 8 to spare."""
FUNCTION: Final = 8
"""Operations whose error ``exp``, ``log``, ``pow`` and ``expm1`` have at most: 4 ulp, or 8 u."""


class Bounds(NamedTuple):
    """Bounds of numbers that are at least 0.

    Attributes:
        low: From below.
        high: From above.
    """

    low: Floats
    high: Floats


def slack(terms: Terms) -> float | Floats:
    """The share of itself by which a sum of so many operations is moved."""
    return 4.0 * UNIT * (np.asarray(terms, np.float64) + OWN)


def up(value: Floats, terms: Terms) -> Floats:
    """A bound from above of numbers at least 0 that took so many operations [...]."""
    bound: Floats = value * (1.0 + slack(terms)) + TINY
    return bound


def down(value: Floats, terms: Terms) -> Floats:
    """A bound from below of numbers at least 0 that took so many operations, itself at least 0."""
    finite = np.minimum(value, LARGEST)
    bound: Floats = np.maximum(finite * (1.0 - slack(terms)) - TINY, 0.0)
    return bound


def upper_factor(factor: Floats) -> Floats:
    """A bound from above of positive factors, the same where no digits are lost [...]."""
    return np.maximum(factor, TINY)


def lower_factor(factor: Floats) -> Floats:
    """A bound from below of factors, the same where no digits are lost [...]."""
    return np.where(factor < TINY, 0.0, np.minimum(factor, LARGEST))
