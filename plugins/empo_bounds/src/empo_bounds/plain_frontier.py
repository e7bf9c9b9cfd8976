"""Bounds of pairs that were not expanded, in plain loops: what ``assumptions`` is checked by."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from empo_bounds.question import Question
from empo_bounds.recorded import Recorded

EXCESS = 2e-9
"""More than probabilities of one step sum up to beyond 1."""


def counts_of(question: Question, duration: float) -> float:
    """Weight of U_r in a transition that takes so long."""
    gamma = question.theory.gamma_r
    if question.accrual == "discrete":
        return 1.0
    return duration if gamma == 1.0 else (1.0 - gamma**duration) / -math.log(gamma)


def lack_of(question: Question, x_h: Float64[np.ndarray, " human"]) -> float:
    """-U_r of these powers; infinite where one is 0."""
    theory = question.theory
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        total = (x_h**-theory.xi).sum()
        if theory.u_agg == "mean":
            total /= len(x_h)
        return float(total**theory.eta)


class PlainFrontier:
    """Bounds of V_h^e and -V_r where nothing was expanded and episodes go on."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded, self._question = recorded, recorded.question
        horizon = self._question.spec.horizon
        steps = [1] if horizon is None else range(1, horizon + 1)
        self._v_e = {left: (1.0 + EXCESS) ** left for left in steps}
        self._loss = self._endless() if horizon is None else self._losses(horizon)

    def v_e(self, time: int) -> float:
        """The largest V_h^e at a time."""
        return self._v_e[self._left(time)]

    def loss(self, time: int) -> tuple[float, float]:
        """-V_r at a time at best and at worst."""
        return self._loss[self._left(time)]

    def _left(self, time: int) -> int:
        horizon = self._question.spec.horizon
        return 1 if horizon is None else horizon - time

    def _best(self, left: int) -> float:
        """-U_r where everybody attains every goal."""
        theory = self._question.theory
        powers = [
            sum(
                (weight if theory.x_agg == "weighted" else 1.0) * self._v_e[left] ** theory.zeta
                for weight in weights.tolist()
            )
            for weights in self._question.weights
        ]
        return lack_of(self._question, np.array(powers))

    def _worst(self) -> float:
        """-U_r where everybody has the least power that is assumed."""
        humans = len(self._question.spec.humans)
        return lack_of(self._question, np.full(humans, self._recorded.min_power or 0.0))

    def _counts(self) -> tuple[float, float]:
        """Least and largest sum of the weights of U_r in one step."""
        if not self._recorded.is_timed:
            once = counts_of(self._question, 1.0)
            return once * (1.0 - EXCESS), once * (1.0 + EXCESS)
        return (1.0, 1.0) if self._question.accrual == "discrete" else (0.0, math.inf)

    def _endless(self) -> dict[int, tuple[float, float]]:
        theory, (min_count, max_count) = self._question.theory, self._counts()
        discount, high = theory.gamma_r * (1.0 + EXCESS), math.inf
        if discount < 1.0 and not self._recorded.is_timed:
            high = max_count * self._worst() / (1.0 - discount) - theory.terminal_value
        return {1: (min_count * self._best(1), high)}

    def _losses(self, horizon: int) -> dict[int, tuple[float, float]]:
        recorded, theory = self._recorded, self._question.theory
        (min_count, max_count), worst = self._counts(), self._worst()
        slow, fast = (0.0, 1.0) if recorded.is_timed else (theory.gamma_r, theory.gamma_r)
        end, losses = -theory.terminal_value, {}
        low = high = end
        for left in range(1, horizon + 1):
            if not recorded.never_ends_early:
                low, high = min(low, end), max(high, end)
            low = min_count * self._best(left) + slow * (1.0 - EXCESS) * low
            high = max_count * worst + fast * (1.0 + EXCESS) * high
            losses[left] = low, high
        return losses
