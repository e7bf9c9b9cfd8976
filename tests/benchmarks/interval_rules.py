"""Rules of intervals: means over boxes of distributions, and boxes that contain policies.

Bounds of a softmax over a box of values are at two of its corners, since the share of an action
grows with its own value and falls with the others'. The least and greatest mean over a box of
distributions hand out what its lower bounds leave, in order of value (Givan, Leach and Dean,
Bounded-parameter Markov decision processes, 2000). Results are rounded outwards.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from empo_bounds.round_off import FUNCTION, UNIT, Bounds, down, up
from empo_theory.equations import TIE_TOLERANCE

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Longs = NDArray[np.int64]

TIE_SHARE = 1e-3
"""Share of the tie tolerance within which it is left open whether actions tie."""


def greatest_mean(value: Floats, box: Bounds) -> Floats:
    """Greatest mean over the last axis of numbers at least 0, distributions from a box [...]."""
    low, high = np.broadcast_arrays(*box)
    order = np.argsort(-value, -1)
    most = np.minimum(_handed_out(value, low, high, order) + _spare(value), (high * value).sum(-1))
    return cast(Floats, most)


def least_mean(value: Floats, box: Bounds) -> Floats:
    """Least mean over the last axis of numbers at least 0, distributions from a box [...]."""
    low, high = np.broadcast_arrays(*box)
    order = np.argsort(np.where(high > 0, value, np.inf), -1)
    least = np.maximum(_handed_out(value, low, high, order) - _spare(value), (low * value).sum(-1))
    return cast(Floats, least)


def _spare(value: Floats) -> Floats:
    """What a mean is lost or gained where computed probabilities do not sum to 1 [...]."""
    return cast(Floats, 8.0 * UNIT * (value.shape[-1] + 4) * value.max(-1))


def _handed_out(value: Floats, low: Floats, high: Floats, order: Longs) -> Floats:
    """The mean where what the least probabilities leave goes to actions in an order [...]."""
    value, low, high, order = np.broadcast_arrays(value, low, high, order)
    room = np.take_along_axis(high - low, order, -1)
    rest = (1.0 - low.sum(-1, keepdims=True)) - (np.cumsum(room, -1) - room)
    given = np.clip(rest, 0.0, room)
    total = (low * value).sum(-1) + (given * np.take_along_axis(value, order, -1)).sum(-1)
    return cast(Floats, total)


def softmax_box(beta: float, value: Bounds, available: Flags, terms: int) -> Bounds:
    """Bounds of equation (2), actions on the last axis; 0 where not available [... action]."""
    if math.isinf(beta):
        return _tied(value, available)
    low, high = (np.where(available, side, 0.0) for side in value)
    above = beta * (high[..., None, :] - low[..., :, None])
    below = beta * (low[..., None, :] - high[..., :, None])
    return _shares(above, below, available, terms)


def power_box(beta: float, loss: Bounds, available: Flags, terms: int) -> Bounds:
    """Bounds of equation (5) from those of -Q_r, actions on the last axis [... action]."""
    low, high = (np.log(np.where(available, np.maximum(side, 1e-300), 1.0)) for side in loss)
    above = beta * (high[..., :, None] - low[..., None, :])
    below = beta * (low[..., :, None] - high[..., None, :])
    error = 4 * FUNCTION * UNIT * beta * (np.abs(low) + np.abs(high))
    error = error[..., :, None] + error[..., None, :]
    return _shares(above + error, below - error, available, terms)


def _shares(above: Floats, below: Floats, available: Flags, terms: int) -> Bounds:
    """1 / (1 + the sum of exp over other actions), exponents on the last axis [... action]."""
    other = available[..., None, :] & ~np.eye(available.shape[-1], dtype=np.bool_)
    with np.errstate(over="ignore", under="ignore"):
        most = np.exp(above + 8 * UNIT * np.abs(above), where=other, out=np.zeros_like(above))
        least = np.exp(below - 8 * UNIT * np.abs(below), where=other, out=np.zeros_like(below))
    low = down(1.0 / (1.0 + up(most.sum(-1), terms)), FUNCTION)
    high = up(1.0 / (1.0 + down(least.sum(-1), terms)), FUNCTION)
    return Bounds(np.where(available, low, 0.0), np.where(available, np.minimum(high, 1.0), 0.0))


def _tied(value: Bounds, available: Flags) -> Bounds:
    """Bounds of equation (2) where the best actions share everything evenly [... action]."""
    low = np.where(available, value.low, -np.inf)
    high = np.where(available, value.high, -np.inf)
    best_low, best_high = low.max(-1, keepdims=True), high.max(-1, keepdims=True)
    slack = TIE_TOLERANCE * np.maximum(1.0, np.abs(best_high))
    out = ~available | (high < best_low - slack * (1 + TIE_SHARE))
    certain = ~out & (low >= best_high - slack * (1 - TIE_SHARE))
    sure, most = certain.sum(-1, keepdims=True), (~out).sum(-1, keepdims=True)
    least = np.where(certain, 1.0 / most, 0.0)
    share = np.where(certain, 1.0 / np.maximum(sure, 1), 1.0 / (sure + 1.0))
    return Bounds(least, np.where(out, 0.0, share))


def narrow(known: Bounds, where: tuple[Any, ...], found: Bounds) -> None:
    """Intersect bounds with others.

    Raises:
        ValueError: Nothing is left, so some bound is wrong.
    """
    low = np.maximum(known.low[where], found.low)
    high = np.minimum(known.high[where], found.high)
    if not (low <= high).all():
        raise ValueError("bounds contradict each other")
    known.low[where], known.high[where] = low, high
