"""Parameters of the theory, once for every algorithm that computes its quantities.

Source: "Model-Based Soft Maximization of Suitable Metrics of Long-Term Human Power"
(arXiv 2508.00159v2), Table 1, equations (1)-(9). Each symbol keeps the paper's letter;
``equations`` has the formulas. Discounts are per unit of time: a transition that lasts ``D``
is discounted by ``gamma ** D``.

An algorithm takes them at ``algorithm.params.theory``. ``HumanTheory`` is what the robot believes
about the humans (Phase 1), ``TheoryParams`` is what it maximises (Phase 2), ``CompleteTheory`` is
both. A field that an algorithm would ignore is not in the model that it takes.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from empo_core.config import Config

Rationality = float | Literal["inf"]
MOST_EXPONENT = 1000.0
"""Greatest zeta, xi and eta: from about there on powers of 1/2 are 0 in double precision."""


class HumanTheory(Config):
    """Equations (1)-(3): what the robot believes about the humans."""

    beta_h: Rationality = Field(
        10.0, description="Rationality of the humans, at least 0; 'inf' picks the best actions."
    )
    gamma_h: float = Field(1.0, gt=0, le=1, description="Humans' discount per unit of time.")
    nu: float = Field(0.0, ge=0, le=1, description="Weight of the habitual policy in equation (2).")
    robot_model: Literal["pessimistic", "optimistic"] = Field(
        "pessimistic",
        description="Whether humans expect the worst or the best of the robot: min or max in (1).",
    )

    @field_validator("beta_h")
    @classmethod
    def _is_at_least_0(cls, beta_h: Rationality) -> Rationality:
        if isinstance(beta_h, float) and beta_h < 0:
            raise ValueError(f"beta_h must be at least 0, not {beta_h}")
        return beta_h


class TheoryParams(Config):
    """Equations (4)-(9): what the robot maximises."""

    gamma_h: float = Field(1.0, gt=0, le=1, description="Humans' discount per unit of time.")
    gamma_r: float = Field(1.0, gt=0, le=1, description="Robot's discount per unit of time.")
    beta_r: float = Field(10.0, ge=0, description="Exponent of the robot's power-law policy.")
    zeta: float = Field(
        1.0, gt=0, le=MOST_EXPONENT, description="Preference for certainty over a goal's chances."
    )
    xi: float = Field(
        1.0, gt=0, le=MOST_EXPONENT, description="Aversion to unequal power between humans."
    )
    eta: float = Field(
        1.0, gt=0, le=MOST_EXPONENT, description="Aversion to unequal power over time."
    )
    x_agg: Literal["weighted", "sum"] = Field(
        "weighted", description="X_h sums V^zeta over goals, with or without their weights."
    )
    u_agg: Literal["mean", "sum"] = Field(
        "mean", description="U_r averages or sums X_h^-xi over humans."
    )
    terminal_value: float = Field(
        -1e-10, lt=0, description="V_r of states where the episode is over."
    )


class CompleteTheory(TheoryParams, HumanTheory):
    """Equations (1)-(9), for algorithms that solve both phases."""

    accrual: Literal["discrete", "continuous"] = Field(
        "discrete", description="U_r counts once per transition, or accrues during it."
    )
