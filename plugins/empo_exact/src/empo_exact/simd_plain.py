"""The primitives of ``simd`` in ordinary numba: lanes are a single number."""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import numpy as np
from jaxtyping import Shaped

from empo_worlds.compilation import inlined

Lanes: TypeAlias = float
"""Neighbouring numbers, in the annotations of kernels: their arithmetic is that of a float."""

Index: TypeAlias = tuple[int | np.integer[Any], ...]

FOUR: Final = 1
EIGHT: Final = 1
SIXTEEN: Final = 1

NEGLIGIBLE: Final = -708.0
"""Exponentials of less than this are taken to be 0; they are below 1e-307."""


@inlined
def four(number: float) -> Lanes:
    """Lanes that all hold a number."""
    return number


@inlined
def eight(number: float) -> Lanes:
    """Lanes that all hold a number."""
    return number


@inlined
def sixteen(number: float) -> Lanes:
    """Lanes that all hold a number."""
    return number


@inlined
def entry(array: Shaped[np.ndarray, "*axes"], index: Index) -> Any:
    """One entry of an array."""
    return array[index]


@inlined
def load(array: Shaped[np.ndarray, "*axes"], index: Index, like: Lanes) -> Lanes:
    """Entries of an array from an index on."""
    return float(array[index])


@inlined
def store(array: Shaped[np.ndarray, "*axes"], index: Index, lanes: Lanes) -> None:
    """Write lanes to the entries of an array from an index on."""
    array[index] = lanes


@inlined
def smaller(a: Lanes, b: Lanes) -> Lanes:
    """The smaller of two numbers in each lane."""
    return b if b < a else a


@inlined
def larger(a: Lanes, b: Lanes) -> Lanes:
    """The larger of two numbers in each lane."""
    return b if b > a else a


@inlined
def where_less(a: Lanes, b: Lanes, yes: Lanes, no: Lanes) -> Lanes:
    """``yes`` in the lanes where ``a < b``, else ``no``."""
    return yes if a < b else no


@inlined
def lane_sum(lanes: Lanes) -> float:
    """The sum of all lanes."""
    return lanes


@inlined
def logarithm(x: Lanes) -> Lanes:
    """log(x) for x >= 0."""
    return math.log(x)


@inlined
def exponential(x: Lanes) -> Lanes:
    """exp(x) for x <= 0; 0 where it is negligible."""
    return math.exp(x) if x > NEGLIGIBLE else 0.0
