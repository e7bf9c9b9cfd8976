"""Powers in bits: a change of units of X_h, U_r and V_r, in which no order changes.

Source: arXiv 2608.08240. Differences of bits are ratios of the quantities; a mean of bits over
states means nothing. ``norm`` is ``E[Y^rho]^(1/rho)`` of the robot's discounted cost Y of a
trajectory; it is -V_r where ``rho`` is 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from empo_theory.parameters import TheoryParams


def individual_power(x_h: float) -> float:
    """I_h = log2 X_h; -infinity where X_h is 0."""
    return _log2(x_h)


def aggregate_power(u_r: float, eta: float) -> float:
    """P, for which -U_r is 2^(-eta P)."""
    return -_log2(-u_r) / eta


def equal_power(u_r: float, theory: TheoryParams, humans: int) -> float:
    """The bits that all of so many humans would need alike for the same P."""
    power = aggregate_power(u_r, theory.eta)
    return (power + (math.log2(humans) if theory.u_agg == "sum" else 0.0)) / theory.xi


def long_term_power(norm: float, rho: int) -> float:
    """L = -log2 E[Y^rho]; divided by ``rho`` it falls where ``rho`` is raised."""
    return -rho * _log2(norm)


def robot_action_value(q_r: float, rho: int) -> float:
    """-log2 E[(gamma_r^D Y')^rho] of what follows an action, from ``q_r``, the negative norm of it.

    It is L where U_r is left out, and NaN where the action is not available.
    """
    return math.nan if math.isnan(q_r) else -rho * _log2(-q_r)


@dataclass(frozen=True)
class Bits:
    """The powers in a state.

    Attributes:
        individual: I_h of each human.
        most: The most that I_h could be: all goals attained for certain.
        aggregate: P.
        equal: The equal-power equivalent of P.
        long_term: L.
    """

    individual: tuple[float, ...]
    most: tuple[float, ...]
    aggregate: float
    equal: float
    long_term: float


def bits_of(
    theory: TheoryParams,
    x_h: Sequence[float],
    weights: Sequence[Sequence[float]],
    u_r: float,
    norm: float,
    counted: int,
) -> Bits:
    """All powers of a state.

    Args:
        theory: The theory.
        x_h: X_h of each human.
        weights: The weights of the goals of each human.
        u_r: U_r.
        norm: The norm of order ``theory.rho``.
        counted: How many humans U_r counts.
    """
    is_weighted = theory.x_agg == "weighted"
    return Bits(
        individual=tuple(map(individual_power, x_h)),
        most=tuple(_log2(sum(of) if is_weighted else float(len(of))) for of in weights),
        aggregate=aggregate_power(u_r, theory.eta),
        equal=equal_power(u_r, theory, counted),
        long_term=long_term_power(norm, theory.rho),
    )


def _log2(number: float) -> float:
    """log2 of a number from 0 on."""
    return math.log2(number) if number > 0 else (-math.inf if number == 0 else math.nan)
