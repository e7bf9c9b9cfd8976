"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, model_validator

from empo_core import Component, Config, hookimpl


class LookupParams(Config):
    """Keys, default values and update rule of a table."""

    include_time: bool = Field(
        True, description="Tell apart the remaining steps of an episode; else values ignore time."
    )
    default: float | None = Field(
        None,
        description="Answer where nothing was learned yet; null takes -1 for q_r and v_r, -2 for "
        "u_r, 0.5 for v_h_e and x_h.",
    )
    rule: Literal["step", "running-mean"] = Field(
        "step",
        description="step: each value goes the learning rate's share of the way to the mean of "
        "its targets in the batch. running-mean: it is the mean of all its targets so far, "
        "whatever the learning rate.",
    )
    min_rate: float | None = Field(
        None, ge=0, le=1,
        description="running-mean: share of the way to new targets that is always gone, so that "
        "old ones are forgotten in time; 0 remembers all alike, null is 1e-6.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _min_rate_has_a_use(self) -> LookupParams:
        if self.min_rate is not None and self.rule != "running-mean":
            raise ValueError(
                f"rule {self.rule!r} has no min_rate: leave it out, or choose rule 'running-mean'"
            )
        return self


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer one value network."""
    yield Component(
        kind="value_network",
        name="lookup",
        params=LookupParams,
        target="empo_lookup_tables.table:LookupTable",
        api=1,
        summary="A growable table: one value per state, time, and goal, human or action.",
    )
