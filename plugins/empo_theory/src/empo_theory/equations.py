"""The equations of the paper as pure tensor functions.

Source: "Model-Based Soft Maximization of Suitable Metrics of Long-Term Human Power"
(arXiv 2508.00159v2), Table 1, equations (1)-(9). The exact solver and the learners compute
the same quantities; whatever computes them faster is tested against these functions.

Symbols: beta_h (human rationality, >= 0), nu (weight of the habitual policy, in [0, 1]),
beta_r (robot rationality, >= 0), zeta (risk aversion over goals, > 0), xi (inequality
aversion over humans, > 0), eta (inequality aversion over time, > 0), gamma_r = exp(-rho_r)
(discount, in (0, 1]).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from empo_theory.parameters import CompleteTheory

XAggregation = Literal["weighted", "sum"]
UAggregation = Literal["mean", "sum"]
Accrual = Literal["discrete", "continuous"]

TIE_TOLERANCE = 1e-12
"""Relative difference under which two values of Q_h^m count as equally good at beta_h = inf."""


def human_policy(
    q: Float[Tensor, "*batch action"],
    beta_h: Float[Tensor, "*batch"],
    available: Bool[Tensor, "*batch action"],
    nu: Float[Tensor, "*batch"] | None = None,
    habit: Float[Tensor, "*batch action"] | None = None,
) -> Float[Tensor, "*batch action"]:
    """Policy of a boundedly rational human, equation (2).

    Args:
        q: Q_h^m, in [0, 1].
        beta_h: Inverse temperature, >= 0; infinity spreads evenly over the best actions.
        available: Which actions exist; at least one per row.
        nu: Weight of the habitual policy; None means 0.
        habit: The habitual policy pi^0; needed with ``nu``.
    """
    q = q.masked_fill(~available, -math.inf)
    gap = q - q.amax(-1, keepdim=True)
    greedy = torch.isinf(beta_h)[..., None]
    # A finite stand-in where beta is infinite keeps inf * 0 out of the softmax.
    finite = torch.where(greedy, torch.ones_like(beta_h)[..., None], beta_h[..., None])
    # An unavailable action must stay out even at beta = 0, where 0 * -inf is NaN.
    soft = torch.softmax((finite * gap).masked_fill(~available, -math.inf), -1)
    scale = q.amax(-1, keepdim=True).abs().clamp(min=1.0)
    best = ((gap >= -TIE_TOLERANCE * scale) & available).to(q.dtype)
    policy = torch.where(greedy, best / best.sum(-1, keepdim=True), soft)
    if nu is None or habit is None:
        return policy
    return nu[..., None] * habit + (1 - nu[..., None]) * policy


def robot_policy(
    q_r: Float[Tensor, "*batch action"], beta_r: float, available: Bool[Tensor, "*batch action"]
) -> Float[Tensor, "*batch action"]:
    """Power-law policy of the robot, equation (5): proportional to (-Q_r)^(-beta_r).

    Computed in log space, so neither large ``beta_r`` nor tiny ``q_r`` overflow.

    Args:
        q_r: Q_r, negative wherever available.
        beta_r: Exponent, >= 0 and finite.
        available: Which joint robot actions exist.
    """
    logits = -beta_r * torch.log(-torch.where(available, q_r, -1.0))
    return torch.softmax(torch.where(available, logits, -math.inf), -1)


def human_power(
    v_e: Float[Tensor, "*batch goal"],
    weight: Float[Tensor, " goal"],
    zeta: float,
    x_agg: XAggregation = "weighted",
) -> Float[Tensor, "*batch"]:
    """Power X_h of one human over its goals, equation (7); ``weighted`` uses the goal weights."""
    powered = v_e**zeta
    return (weight * powered).sum(-1) if x_agg == "weighted" else powered.sum(-1)


def robot_reward(
    x_h: Float[Tensor, "*batch human"], xi: float, eta: float, u_agg: UAggregation = "mean"
) -> Float[Tensor, "*batch"]:
    """Intrinsic reward U_r < 0 from the powers X_h > 0 of all humans, equation (8)."""
    lack = x_h**-xi
    return -((lack.mean(-1) if u_agg == "mean" else lack.sum(-1)) ** eta)


def reward_weight(rho_r: float, duration: float, accrual: Accrual) -> float:
    """Weight of U_r during a transition of the given duration, in equation (9).

    ``discrete`` counts it once (equation 9); ``continuous`` integrates exp(-rho t) over it.
    """
    if accrual == "discrete":
        return 1.0
    return duration if rho_r == 0 else -math.expm1(-rho_r * duration) / rho_r


def end_weight(theory: CompleteTheory, steps_left: int | None) -> float:
    """Weight of U_r in a state where the episode is over; for one unit of time, or for all left.

    Args:
        theory: The theory, in which presence counts.
        steps_left: Steps that would be left; None: the world has no horizon.
    """
    gamma = theory.gamma_r
    once = reward_weight(-math.log(gamma), 1.0, theory.accrual)
    if theory.early_end == "stop":
        return once
    if steps_left is None:
        return once / (1.0 - gamma)
    return once * math.fsum(gamma**step for step in range(steps_left + 1))
