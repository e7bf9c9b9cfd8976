"""Intervals against the textbook, closed forms, and experiments whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from empo_learning.statistics import bootstrap, interquartile_mean, interval, t_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.70620), (4, 2.77645), (9, 2.26216), (10, 2.22814), (20, 2.08596), (100, 1.98397)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, abs=2e-5)


def test_quantiles_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    found = [t_quantile(freedom) for freedom in range(1, 200)]
    np.testing.assert_allclose(found, stats.t.ppf(0.975, np.arange(1, 200)), atol=2e-5)


def test_an_interval_is_the_t_interval_of_the_mean() -> None:
    mean, half_width = interval(np.array([1.0, 2.0, 6.0]))
    assert mean == 3.0
    assert half_width == pytest.approx(4.30265 * math.sqrt(7) / math.sqrt(3), rel=1e-5)


def test_the_quantile_of_two_degrees_of_freedom_has_a_closed_form() -> None:
    p = 0.975
    assert t_quantile(2) == pytest.approx((2 * p - 1) / math.sqrt(2 * p * (1 - p)), abs=1e-5)


@pytest.mark.parametrize("number", [3, 5, 20])
def test_intervals_cover_the_truth_in_95_of_100_experiments(number: int) -> None:
    drawn = np.random.default_rng(number).normal(2.0, 3.0, (number, 10_000))
    mean, half_width = interval(drawn)
    assert 0.94 <= np.mean(np.abs(mean - 2.0) <= half_width) <= 0.96


def test_the_interquartile_mean_leaves_out_a_quarter_on_both_sides() -> None:
    rows = np.array([[100.0, 1.0, 2.0, -50.0], [0.0, 0.0, 4.0, 4.0]])
    assert interquartile_mean(rows).tolist() == [1.5, 2.0]
    assert interquartile_mean(np.arange(10.0)) == np.arange(2.0, 8.0).mean()


def test_a_bootstrap_interval_is_the_same_again_and_near_the_t_interval() -> None:
    values = np.random.default_rng(1).normal(5.0, 1.0, 200)
    found = bootstrap(values, lambda rows: rows.mean(-1))
    assert found == bootstrap(values, lambda rows: rows.mean(-1))
    mean, half_width = interval(values)
    np.testing.assert_allclose(found, [mean - half_width, mean + half_width], atol=0.02)
