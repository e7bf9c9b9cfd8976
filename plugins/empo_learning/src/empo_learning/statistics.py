"""Means over runs, episodes or seeds, with 95 % intervals that say how far they can be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

_T_975 = (12.70620, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600, 2.26216)
"""97.5 % quantiles of Student's t distribution with 1 to 9 degrees of freedom."""
_Z_975 = 1.959963984540054
RESAMPLES = 10_000
"""Samples that a bootstrap interval is made of."""
_AT_ONCE = 100


def interval(
    values: Float[np.ndarray, "sample ..."],
) -> tuple[Float[np.ndarray, " ..."], Float[np.ndarray, " ..."]]:
    """The mean over samples, and half the width of its 95 % t interval, NaN for one sample.

    Of paired differences it takes the differences.
    """
    number = len(values)
    with np.errstate(invalid="ignore", over="ignore"):  # A curve may diverge.
        mean = np.asarray(values.mean(0))
        if number == 1:
            return mean, np.full_like(mean, np.nan)
        deviation = np.asarray(values.std(0, ddof=1))
    return mean, np.asarray(t_quantile(number - 1) * deviation / math.sqrt(number))


def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t distribution, to five digits."""
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z = _Z_975  # Cornish and Fisher's expansion in 1 / freedom.
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return sum(term / float(freedom) ** power for power, term in enumerate(terms))


def interquartile_mean(
    values: Float[np.ndarray, "*batch sample"],
) -> Float[np.ndarray, "*batch"]:
    """The mean without the lowest and the highest quarter, each rounded down."""
    cut = values.shape[-1] // 4
    middle = np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut]
    return np.asarray(middle.mean(-1))


def bootstrap(
    values: Float[np.ndarray, " sample"],
    statistic: Callable[[Float[np.ndarray, "batch sample"]], Float[np.ndarray, " batch"]],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """The 95 % bootstrap interval of a statistic, by percentiles.

    Args:
        values: The samples.
        statistic: From samples in rows to one number per row.
        resamples: Number of samples of samples.
        seed: Draws them.
    """
    generator = np.random.default_rng(seed)
    samples = [
        statistic(values[generator.integers(len(values), size=(_AT_ONCE, len(values)))])
        for _ in range(-(-resamples // _AT_ONCE))
    ]
    low, high = np.quantile(np.concatenate(samples)[:resamples], [0.025, 0.975])
    return float(low), float(high)
