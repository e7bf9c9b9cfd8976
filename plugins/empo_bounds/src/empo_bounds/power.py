"""Bounds of X_h, equation (7), and of -U_r, equation (8), with outward rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

from empo_bounds.question import Question
from empo_bounds.round_off import FUNCTION, Bounds, Floats, down, lower_factor, up, upper_factor


def power_bounds(question: Question, v_e: Bounds) -> Bounds:
    """X_h from bounds of V_h^e [pair goal], goals human by human [pair human].

    ``value_kernels.attain`` does the same for pairs that were expanded, without a pass of its own.
    """
    low, high = [], []
    theory = question.theory
    for first, weights in zip(question.first_goal[:-1], question.weights, strict=True):
        goals = slice(first, first + len(weights))
        factor = weights if theory.x_agg == "weighted" else np.ones(len(weights))
        operations = len(weights) + FUNCTION + 1
        low.append(down((v_e.low[:, goals] ** theory.zeta * factor).sum(1), operations))
        high.append(up((v_e.high[:, goals] ** theory.zeta * factor).sum(1), operations))
    return Bounds(np.stack(low, 1), np.stack(high, 1))


def lack_bounds(question: Question, x_h: Bounds) -> Bounds:
    """-U_r from bounds of X_h [pair human]; infinite where a human may have no power [pair]."""
    return Bounds(
        down(_lack(question, x_h.high, lower_factor), _operations(question)),
        up(_lack(question, x_h.low, upper_factor), _operations(question)),
    )


def _lack(
    question: Question, x_h: Float64[np.ndarray, "pair human"], side: Callable[[Floats], Floats]
) -> Float64[np.ndarray, " pair"]:
    """-U_r as computed; what under- or overflows on the way is replaced by a bound of a side."""
    theory = question.theory
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        lacks = side(x_h[:, question.counted] ** -theory.xi)
        total = side(lacks.sum(1)) / (lacks.shape[1] if theory.u_agg == "mean" else 1)
        lack: Float64[np.ndarray, " pair"] = side(total) ** theory.eta
    return lack


def _operations(question: Question) -> int:
    """Operations behind a computed -U_r; a power multiplies the errors of what it is taken of."""
    before = len(question.spec.humans) + FUNCTION + 1
    return int(np.ceil(max(question.theory.eta, 1.0) * before)) + FUNCTION


def accrual_bounds(
    question: Question, duration: Float64[np.ndarray, " landing"]
) -> Float64[np.ndarray, " landing"]:
    """Weight of U_r during transitions that take so long, as computed [landing].

    It errs by less than ``2 * FUNCTION + 2`` operations.
    """
    gamma = question.theory.gamma_r
    if question.accrual == "discrete":
        return np.ones_like(duration)
    if gamma == 1.0:
        return duration
    rho = -np.log(gamma)
    accrual: Float64[np.ndarray, " landing"] = -np.expm1(-rho * duration) / rho
    return accrual


def discounts(
    gamma: float, duration: Float64[np.ndarray, " landing"]
) -> Float64[np.ndarray, " landing"]:
    """The discount of transitions that take so long, as computed; exact where that is 1."""
    discount: Float64[np.ndarray, " landing"] = np.where(duration == 1.0, gamma, gamma**duration)
    return discount
