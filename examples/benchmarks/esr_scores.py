"""Statistics of the benchmark: intervals of shares, means and paired differences."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from empo_learning.statistics import interval

Z = 1.959964
"""Quantile of the normal distribution for 95 %."""
AT_ONCE = 100
"""Samples of samples that are drawn together."""


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def shown(self, digits: int) -> str:
        """As tables show it."""
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def share(successes: np.ndarray) -> Estimate:
    """A share with Wilson's interval."""
    n, p = len(successes), float(successes.mean())
    middle = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    # Rounding must not carry the bounds past 0, 1 or the share itself.
    return Estimate(p, max(0.0, min(p, middle - half)), min(1.0, max(p, middle + half)))


def mean(values: np.ndarray) -> Estimate:
    """A mean with its t interval, which a single value has none of."""
    middle, half = (float(each) for each in interval(values.astype(float)))
    return Estimate(middle, middle - half, middle + half)


def paired_difference(ours: np.ndarray, others: np.ndarray, resamples: int, seed: int) -> Estimate:
    """The mean difference of the same episodes, with its bootstrap interval (percentiles)."""
    difference = (ours - others).astype(float)
    low, high = mean_interval(difference, resamples, seed=seed)
    return Estimate(float(difference.mean()), low, high)


def mean_interval(difference: np.ndarray, resamples: int, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean, by percentiles.

    As that of ``empo_learning.statistics.bootstrap``, where many means over as many episodes are
    asked for: what is drawn is kept for the next one.
    """
    means = shares(len(difference), resamples, seed) @ difference
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


@lru_cache(maxsize=1)
def shares(samples: int, resamples: int, seed: int) -> np.ndarray:
    """How large a share each sample has of each sample of samples [resample sample]."""
    generator, rows = np.random.default_rng(seed), np.empty((resamples, samples))
    for first in range(0, resamples, AT_ONCE):
        part = rows[first : first + AT_ONCE]
        drawn = generator.integers(samples, size=part.shape)
        drawn += np.arange(len(part))[:, None] * samples
        part[:] = np.bincount(drawn.ravel(), minlength=part.size).reshape(part.shape) / samples
    return rows


def csv_text(table: Sequence[object]) -> str:
    """Rows of one dataclass as CSV; an estimate has three columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for number, row in enumerate(table):
        flat: dict[str, object] = {}
        for key, value in vars(row).items():
            if isinstance(value, Estimate):
                flat |= {key: value.value, f"{key}_low": value.low, f"{key}_high": value.high}
            else:
                flat[key] = value
        if number == 0:
            writer.writerow(flat)
        writer.writerow(flat.values())
    return text.getvalue()
