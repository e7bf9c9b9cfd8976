"""Bootstrap intervals of many mean differences over the same number of episodes, drawn once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

AT_ONCE = 100


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


def mean_interval(difference: np.ndarray, resamples: int, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean, by percentiles."""
    means = shares(len(difference), resamples, seed) @ difference
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
