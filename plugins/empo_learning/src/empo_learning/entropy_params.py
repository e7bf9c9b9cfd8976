"""Parameters of the entropy bonus; importing this does not import torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from empo_core.config import Config

Schedule = Literal["constant", "linear", "exponential"]


class EntropyParams(Config):
    """Coefficient or target of a policy loss's entropy bonus."""

    coef: float = Field(1e-4, ge=0, description="Factor of the entropy, at first.")
    end: float | None = Field(
        None, ge=0, description="Final value of a schedule; null: it is constant."
    )
    schedule: Schedule = Field("constant", description="Shape of the schedule.")
    begin: float = Field(0.0, ge=0, le=1, description="Share of the run after which it moves.")
    finish: float = Field(1.0, ge=0, le=1, description="Share of the run after which it is there.")
    target_entropy: float | None = Field(
        None,
        description="Entropy per number of an action that the factor is tuned for, e.g. -1; null: "
        "it is not tuned.",
    )
    rate: float = Field(1e-3, gt=0, description="Learning rate of the tuned factor's logarithm.")
    jacobian: float = Field(
        1.0,
        ge=0,
        le=1,
        description="1: entropy of bounded actions, from a sample, which pulls away from the "
        "bounds; 0: that of the normal numbers before, exactly; between: a mixture.",
    )
    action_power: float = Field(
        1.0, ge=0, description="The entropy counts (numbers of an action) to this power times."
    )

    @model_validator(mode="after")
    def _schedule_is_whole(self) -> EntropyParams:
        if self.schedule == "constant":
            # Not those that were given at all: a run's own config gives every default.
            defaults = {"begin": 0.0, "finish": 1.0, "end": None}
            without = [name for name, value in defaults.items() if getattr(self, name) != value]
            if without:
                raise ValueError(
                    f"{', '.join(without)}: nothing moves in a 'constant' schedule; set "
                    "schedule to 'linear' or 'exponential', or drop this"
                )
            return self
        if self.end is None:
            raise ValueError(
                f"schedule '{self.schedule}' needs an end to move to; give one, or set schedule "
                "to 'constant'"
            )
        if self.schedule == "exponential" and not (self.coef > 0 and self.end > 0):
            raise ValueError(
                f"an exponential schedule from {self.coef:g} to {self.end:g} is impossible: both "
                "must be above 0; choose 'linear', or a small positive number"
            )
        if self.finish < self.begin:
            raise ValueError(
                f"finish ({self.finish:g}) comes before begin ({self.begin:g}); equal ones make a "
                "jump"
            )
        return self

    @model_validator(mode="after")
    def _tuning_is_whole(self) -> EntropyParams:
        if self.target_entropy is None:
            if self.rate != 1e-3:
                raise ValueError("rate belongs to target_entropy: set that, or drop it")
            return self
        if self.schedule != "constant":
            raise ValueError(
                "target_entropy tunes the factor, and a schedule sets it: drop one of the two"
            )
        if self.coef <= 0:
            raise ValueError(
                "target_entropy tunes the logarithm of the factor, so coef must be above 0"
            )
        return self
