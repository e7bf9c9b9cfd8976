"""Parameters of the theory, once for every algorithm that computes its quantities.

Source: "Model-Based Soft Maximization of Suitable Metrics of Long-Term Human Power"
(arXiv 2508.00159v2), Table 1, equations (1)-(9). Each symbol keeps the paper's letter;
``equations`` has the formulas. Discounts are per unit of time: a transition that lasts ``D``
is discounted by ``gamma ** D``.

An algorithm takes them at ``algorithm.params.theory``. ``HumanTheory`` is what the robot believes
about the humans (Phase 1), ``TheoryParams`` is what it maximises (Phase 2), ``CompleteTheory`` is
both. A field that an algorithm would ignore is not in the model that it takes.

``counting``, ``rho`` and ``early_end`` belong to the objective of the paper's successor (arXiv
2608.08240). Their defaults are the first paper's; learners take these alone and refuse others.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from empo_core.config import Config

Rationality = float | Literal["inf"]
MOST_EXPONENT = 1000.0
"""Greatest zeta, xi and eta: from about there on powers of 1/2 are 0 in double precision."""
MOST_BETA = 1e9
"""Greatest beta_h and beta_r: from there on options that differ by a millionth have no chance."""
Counting = Literal["arrival", "presence"]
RobotModel = Literal["pessimistic", "optimistic", "even"]

MOST_RHO = 16
"""The highest order of moments of the robot's cost."""
TERMINAL_VALUE = -1e-10
"""V_r of states where the episode is over, unless it is given."""
COUNTING = (
    "arrival: entering a goal counts 1, undiscounted, and nothing counts at an end; presence: "
    "being in a goal counts 1, also at an end, and entering it later counts gamma_h to the power "
    "of the time."
)


class HumanTheory(Config):
    """Equations (1)-(3): what the robot believes about the humans."""

    beta_h: Rationality = Field(
        10.0, description="Rationality of the humans, at least 0; 'inf' picks the best actions."
    )
    gamma_h: float = Field(1.0, gt=0, le=1, description="Humans' discount per unit of time.")
    nu: float = Field(0.0, ge=0, le=1, description="Weight of the habitual policy in equation (2).")
    robot_model: RobotModel = Field(
        "pessimistic",
        description="Whether humans expect the worst or the best of the robot, or an even choice "
        "among its available joint actions: min, max or mean in (1).",
    )
    counting: Counting = Field("arrival", description=COUNTING)

    @field_validator("beta_h")
    @classmethod
    def _is_at_least_0(cls, beta_h: Rationality) -> Rationality:
        if isinstance(beta_h, float) and not 0 <= beta_h <= MOST_BETA:
            raise ValueError(
                f"beta_h must be from 0 to {MOST_BETA:g}, or 'inf', which picks the best actions; "
                f"it is {beta_h}"
            )
        return beta_h


class TheoryParams(Config):
    """Equations (4)-(9): what the robot maximises."""

    gamma_h: float = Field(1.0, gt=0, le=1, description="Humans' discount per unit of time.")
    gamma_r: float = Field(1.0, gt=0, le=1, description="Robot's discount per unit of time.")
    beta_r: float = Field(
        10.0, ge=0, le=MOST_BETA, description="Exponent of the robot's power-law policy."
    )
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
        TERMINAL_VALUE,
        lt=0,
        description="V_r of states where the episode is over; with counting: arrival only.",
    )
    counting: Counting = Field("arrival", description=COUNTING)
    rho: int = Field(
        1,
        ge=1,
        le=MOST_RHO,
        description="Aversion to risk over trajectories: the robot avoids a high mean of its cost "
        "to this power. A whole number.",
    )
    early_end: Literal["stop", "absorb"] = Field(
        "stop",
        description="With counting: presence, whether U_r counts once in a terminal state, or goes "
        "on in every step that would be left.",
    )

    @field_validator("rho", mode="before")
    @classmethod
    def _is_an_order(cls, rho: object) -> object:
        is_number = isinstance(rho, int | float) and not isinstance(rho, bool)
        if not is_number or rho not in range(1, MOST_RHO + 1):
            raise ValueError(
                f"rho must be a whole number from 1 to {MOST_RHO}, since moments of that order are "
                f"computed, not {rho}"
            )
        return rho

    @model_validator(mode="after")
    def _ends_as_it_counts(self) -> TheoryParams:
        if self.counting == "presence" and self.terminal_value != TERMINAL_VALUE:
            raise ValueError(
                "terminal_value has no meaning with counting: presence, where a terminal state is "
                "worth its own U_r; leave terminal_value out, or choose counting: arrival"
            )
        if self.counting == "arrival" and self.early_end == "absorb":
            raise ValueError(
                "early_end: absorb needs counting: presence, for with arrival a terminal state is "
                "worth terminal_value; set counting: presence, or leave early_end out"
            )
        return self


class CompleteTheory(TheoryParams, HumanTheory):
    """Equations (1)-(9), for algorithms that solve both phases."""

    accrual: Literal["discrete", "continuous"] = Field(
        "discrete", description="U_r counts once per transition, or accrues during it."
    )


def theory_data(theory: TheoryParams | HumanTheory) -> dict[str, JsonValue]:
    """The parameters as JSON data for digests, as they were before there were others.

    ``counting``, ``rho`` and ``early_end`` are left out where they are as they always were.
    """
    data: dict[str, JsonValue] = theory.model_dump(mode="json")
    fields = CompleteTheory.model_fields
    return {
        key: value
        for key, value in data.items()
        if key not in ("counting", "rho", "early_end") or value != fields[key].default
    }
