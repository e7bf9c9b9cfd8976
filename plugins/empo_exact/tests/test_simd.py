"""Kernels that treat several neighbours at once, against the same arithmetic in numpy."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from empo_exact.kernel_data import CACHE_LINE, aligned
from empo_exact.rows import Mixture, blend, extreme
from empo_exact.simd import (
    FOUR,
    SIXTEEN,
    exponential,
    four,
    kernel,
    lane_sum,
    load,
    sixteen,
    store,
)


def test_the_environment_chooses_the_primitives() -> None:
    assert (FOUR == 1) == (os.environ.get("EMPO_PLAIN_KERNELS") == "1")


@kernel
def _blend(table: Any, rows: Any, weights: Any, out: Any, begin: int, end: int) -> None:
    blend(table, Mixture(rows, 1, weights, 2, 5), out, 1, begin, end)


@kernel
def _extreme(table: Any, rows: Any, most: bool, out: Any) -> None:
    extreme(table, rows, 1, 6, most, out, 1)


@kernel
def _exponential(x: Any) -> None:
    for k in range(0, x.shape[0], SIXTEEN):
        store(x, (k,), exponential(load(x, (k,), sixteen(0.0))))


@kernel
def _sum(x: Any, flags: Any) -> float:
    total = four(0.0)
    for k in range(0, 4, FOUR):
        total += load(x, (k,), total) * load(flags, (k,), total)
    return lane_sum(total)


@pytest.fixture
def table() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(30, 44))


ROWS = np.array([-9, 3, 7, 7, 29, 0, -9], np.int32)


@pytest.mark.parametrize(("begin", "end"), [(0, 4), (0, 8), (4, 16), (0, 28), (8, 36), (0, 44)])
def test_blended_columns_are_weighted_sums_and_the_others_stay(
    table: np.ndarray, begin: int, end: int
) -> None:
    weights, out = np.random.default_rng(2).normal(size=7), np.full((3, 44), 5.0)
    _blend(table, ROWS, weights, out, begin, end)
    expected = np.full((3, 44), 5.0)
    expected[1, begin:end] = weights[2:] @ table[ROWS[1:6], begin:end]
    np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("width", [4, 8, 12, 16, 20, 24, 44])
@pytest.mark.parametrize("most", [False, True])
def test_extreme_entries_are_exact_at_every_width(
    table: np.ndarray, width: int, most: bool
) -> None:
    out, part = np.zeros((2, width)), np.ascontiguousarray(table[:, :width])
    _extreme(part, ROWS, most, out)
    chosen = part[ROWS[1:6]]
    assert np.array_equal(out[1], chosen.max(0) if most else chosen.min(0))
    assert not out[0].any()


def test_exponentials_are_right_to_two_units_in_the_last_place() -> None:
    x = np.concatenate([-np.geomspace(1e-20, 700, 4096 - 16), np.zeros(16)])
    expected = np.exp(x)
    _exponential(x)
    assert (np.abs(x - expected) <= 2 * np.spacing(expected)).all()
    assert (x[-16:] == 1.0).all()


def test_exponentials_of_hopeless_actions_are_zero() -> None:
    x = np.array([-709.0, -1e4, -1e300, -np.inf] * 4)
    _exponential(x)
    assert not x.any()


def test_bytes_are_read_as_numbers() -> None:
    x, flags = np.array([1.0, 2.0, 4.0, 8.0]), np.array([1, 0, 255, 1], np.uint8)
    assert _sum(x, flags) == 1.0 + 4.0 * 255 + 8.0


@pytest.mark.parametrize("shape", [(3,), (5, 12), (2, 3, 4)])
def test_aligned_memory_begins_with_a_cache_line(shape: tuple[int, ...]) -> None:
    memory = aligned(shape)
    assert memory.shape == shape
    assert memory.flags.c_contiguous
    assert memory.ctypes.data % CACHE_LINE == 0
