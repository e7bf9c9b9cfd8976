"""What this distribution offers; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, model_validator

from empo_core import Component, Config, hookimpl
from empo_core.config import HumanPriorRef

Rationality = float | Literal["inf"]

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "beta_h": 5.0, "gamma_h": 0.99, "gamma_r": 0.99, "beta_r": 5.0, "zeta": 2.0, "xi": 1.0,
        "eta": 1.1, "x_agg": "sum", "u_agg": "sum", "accrual": "discrete",
    },
    "reference": {
        "beta_h": 10.0, "gamma_h": 1.0, "gamma_r": 1.0, "beta_r": 10.0, "zeta": 1.0, "xi": 1.0,
        "eta": 1.0, "x_agg": "weighted", "u_agg": "mean", "accrual": "continuous",
    },
    "neutral": {
        "beta_h": 10.0, "gamma_h": 1.0, "gamma_r": 1.0, "beta_r": 10.0, "zeta": 1.0, "xi": 1.0,
        "eta": 1.0, "x_agg": "weighted", "u_agg": "mean", "accrual": "discrete",
    },
}  # fmt: skip
"""Theory parameters set at once by ``preset``; explicit keys win. Spec A.5 and G.1."""


class Belief(Config):
    """One line of a table of beliefs: how likely the other humans act like this together."""

    human: int = Field(ge=0, description="Agent index of the human who believes it.")
    others: list[int] = Field(
        description="Actions of the other humans, in the order of their agent indices."
    )
    prob: float = Field(ge=0, le=1, description="Its probability; one human's must sum to 1.")


class PriorParams(Config):
    """Phase 1: what the robot believes about the humans. Symbols as in the paper."""

    preset: Literal["paper", "reference", "neutral"] | None = Field(
        None, description="Sets the theory parameters at once; keys given beside it win."
    )
    beta_h: Rationality = Field(
        10.0, description="Rationality of the humans, at least 0; 'inf' picks the best actions."
    )
    gamma_h: float = Field(1.0, gt=0, le=1, description="Humans' discount per unit of time.")
    nu: float = Field(0.0, ge=0, le=1, description="Weight of the habitual policy in equation (2).")
    habit: HumanPriorRef | None = Field(
        None, description="The habitual policy pi^0; None means uniform over actions."
    )
    believed_others: list[Belief] | None = Field(
        None,
        description="What each human believes about the other humans' joint action; null means "
        "independent and even over their available actions.",
    )
    robot_model: Literal["pessimistic", "optimistic"] = Field(
        "pessimistic",
        description="Whether humans expect the worst or the best of the robot: min or max in (1).",
    )

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, data: Any) -> Any:
        preset = data.get("preset") if isinstance(data, dict) else None
        if isinstance(preset, str) and preset in PRESETS:
            known = PRESETS[preset]
            return {key: known[key] for key in known if key in cls.model_fields} | data
        return data

    @model_validator(mode="after")
    def _is_consistent(self) -> PriorParams:
        if isinstance(self.beta_h, float) and self.beta_h < 0:
            raise ValueError(f"beta_h must be at least 0, not {self.beta_h}")
        if self.habit is not None and self.nu == 0:
            raise ValueError("habit has no effect while nu is 0; set nu > 0 or leave habit out")
        return self


class ExactParams(PriorParams):
    """Phases 1 and 2: the theory, and how to solve it."""

    gamma_r: float = Field(1.0, gt=0, le=1, description="Robot's discount per unit of time.")
    beta_r: float = Field(10.0, ge=0, description="Exponent of the robot's power-law policy.")
    zeta: float = Field(1.0, gt=0, description="Preference for certainty over a goal's chances.")
    xi: float = Field(1.0, gt=0, description="Aversion to unequal power between humans.")
    eta: float = Field(1.0, gt=0, description="Aversion to unequal power over time.")
    x_agg: Literal["weighted", "sum"] = Field(
        "weighted", description="X_h sums V^zeta over goals, with or without their weights."
    )
    u_agg: Literal["mean", "sum"] = Field(
        "mean", description="U_r averages or sums X_h^-xi over humans."
    )
    accrual: Literal["discrete", "continuous"] = Field(
        "discrete", description="U_r counts once per transition, or accrues during it."
    )
    terminal_value: float = Field(
        -1e-10, lt=0, description="V_r of states where the episode is over."
    )
    human_prior: HumanPriorRef | None = Field(
        None, description="How humans act; None solves Phase 1 with the parameters above."
    )
    keep: Literal["all", "disk", "root"] = Field(
        "all",
        description="Keep the values of all times in memory, in one file per time, or only "
        "those at the start.",
    )
    workers: int = Field(
        2, ge=1, description="Threads; worker processes where the world is written in Python."
    )
    start_method: Literal["forkserver", "spawn"] = Field(
        "forkserver", description="How worker processes start."
    )
    max_states: int = Field(
        50_000_000, ge=1, description="Refuse worlds with more states than this."
    )
    memory_limit_gb: float | None = Field(
        None,
        gt=0,
        description="Refuse what makes this process larger; null means 90 % of what is free.",
    )
    count_unrolled: bool = Field(
        False, description="Count (time, state) pairs and edges even where that is costly."
    )
    rollouts: int | None = Field(
        None,
        ge=0,
        description="Rollouts to play and draw after solving; null means 1, or 0 with keep: root.",
    )

    @property
    def num_rollouts(self) -> int:
        """How many rollouts to play."""
        return self.rollouts if self.rollouts is not None else int(self.keep != "root")

    @model_validator(mode="after")
    def _uses_every_key(self) -> ExactParams:
        if self.human_prior is None:
            return self
        beta_h = PRESETS[self.preset or "neutral"]["beta_h"]
        usual = {"beta_h": beta_h, "nu": 0.0, "robot_model": "pessimistic"}
        for key in ("beta_h", "nu", "habit", "believed_others", "robot_model"):
            if getattr(self, key) != usual.get(key):
                raise ValueError(
                    f"{key} has no effect beside human_prior, which says how humans act; leave "
                    f"{key} out, or set it in the params of a prior that has it"
                )
        return self

    @model_validator(mode="after")
    def _can_play(self) -> ExactParams:
        if self.keep == "root" and self.rollouts:
            raise ValueError(
                "rollouts need the values of all times: set keep to all or disk, or rollouts to 0"
            )
        return self


class UniformParams(Config):
    """The uniform prior has no parameters."""


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer the exact algorithm, and its Phase 1 as a human prior."""
    yield Component(
        kind="algorithm",
        name="exact",
        params=ExactParams,
        target="empo_exact.algorithm:Exact",
        api=1,
        summary="Both phases by backward induction in float64: exact policies and values.",
    )
    yield Component(
        kind="human_prior",
        name="exact",
        params=PriorParams,
        target="empo_exact.prior:ExactPrior",
        api=1,
        summary="Phase 1: boundedly rational humans, by backward induction.",
    )
    yield Component(
        kind="human_prior",
        name="uniform",
        params=UniformParams,
        target="empo_exact.prior:UniformPrior",
        api=1,
        summary="Humans choose evenly among their available actions.",
    )
