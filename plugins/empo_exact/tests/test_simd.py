"""Kernels that treat several neighbours at once, against the same arithmetic in numpy."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
import pytest

from empo_exact.game import CACHE_LINE, aligned
from empo_exact.rows import Successors, blend_replies, extreme_replies
from empo_exact.simd import (
    FOUR,
    SIXTEEN,
    exponential,
    four,
    kernel,
    lane_sum,
    load,
    logarithm,
    sixteen,
    store,
)


def test_the_environment_chooses_the_primitives() -> None:
    assert (FOUR == 1) == (os.environ.get("EMPO_PLAIN_KERNELS") == "1")


class Replies(NamedTuple):
    """What of a game says which row each reply of the robot leads to."""

    profile_joint: np.ndarray
    robot_joint: np.ndarray
    num_robot_actions: int


@kernel
def _blend(game: Any, table: Any, rows: Any, weights: Any, out: Any) -> None:
    blend_replies(game, table, Successors(rows, 1), 1, weights, out)


@kernel
def _extreme(game: Any, table: Any, rows: Any, is_max: bool, out: Any) -> None:
    extreme_replies(game, table, Successors(rows, 1), 1, is_max, out)


@kernel
def _exponential(x: Any) -> None:
    for k in range(0, x.shape[0], SIXTEEN):
        store(x, (k,), exponential(load(x, (k,), sixteen(0.0))))


@kernel
def _logarithm(x: Any) -> None:
    for k in range(0, x.shape[0], SIXTEEN):
        store(x, (k,), logarithm(load(x, (k,), sixteen(0.0))))


@kernel
def _sum(x: Any, flags: Any) -> float:
    total = four(0.0)
    for k in range(0, 4, FOUR):
        total += load(x, (k,), total) * load(flags, (k,), total)
    return lane_sum(total)


WIDTHS = [4, 8, 12, 16, 20, 24, 44]
REPLIES = [1, 2, 3, 4, 5, 7, 8]


def table(width: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(30, width))


def one_profile_of_two(replies: int) -> tuple[Replies, np.ndarray, np.ndarray]:
    """A robot that acts first, rows of its replies to two profiles, and those to the second."""
    rows = np.random.default_rng(replies).integers(0, 30, 1 + 2 * replies).astype(np.int32)
    first = np.array([0, replies], np.int32)
    return Replies(first, np.arange(replies, dtype=np.int32), replies), rows, rows[1 + replies :]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("replies", REPLIES)
def test_replies_are_blended_by_their_weights(width: int, replies: int) -> None:
    (game, rows, chosen), out = one_profile_of_two(replies), np.full((3, width), 5.0)
    weights = np.random.default_rng(2).normal(size=replies)
    _blend(game, table(width), rows, weights, out)
    np.testing.assert_allclose(out[1], weights @ table(width)[chosen], rtol=1e-13, atol=1e-14)
    assert (out[[0, 2]] == 5.0).all()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("replies", REPLIES)
@pytest.mark.parametrize("is_max", [False, True])
def test_extremes_of_replies_are_exact(width: int, replies: int, is_max: bool) -> None:
    (game, rows, chosen), out = one_profile_of_two(replies), np.full((3, width), 5.0)
    _extreme(game, table(width), rows, is_max, out)
    found = table(width)[chosen]
    assert np.array_equal(out[1], found.max(0) if is_max else found.min(0))
    assert (out[[0, 2]] == 5.0).all()


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


def test_logarithms_are_right_to_two_units_in_the_last_place() -> None:
    near, far = 1 + np.geomspace(1e-15, 0.9, 2048), np.geomspace(1e-307, 1e308, 8192 - 32)
    x = np.concatenate([near, 1 / near, far, np.ones(32)])
    expected = np.log(x)
    _logarithm(x)
    assert (np.abs(x - expected) <= 2 * np.spacing(np.abs(expected))).all()


def test_logarithms_at_the_ends_are_infinite() -> None:
    x = np.array([0.0, np.inf] * 8)
    _logarithm(x)
    assert x.tolist() == [-np.inf, np.inf] * 8


def test_bytes_are_read_as_numbers() -> None:
    x, flags = np.array([1.0, 2.0, 4.0, 8.0]), np.array([1, 0, 255, 1], np.uint8)
    assert _sum(x, flags) == 1.0 + 4.0 * 255 + 8.0


@pytest.mark.parametrize("shape", [(3,), (5, 12), (2, 3, 4)])
def test_aligned_memory_begins_with_a_cache_line(shape: tuple[int, ...]) -> None:
    memory = aligned(shape)
    assert memory.shape == shape
    assert memory.flags.c_contiguous
    assert memory.ctypes.data % CACHE_LINE == 0
