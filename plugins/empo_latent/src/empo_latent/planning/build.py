"""The planner of a run, and the discounts that it and values have."""

from __future__ import annotations

import torch
from jaxtyping import Float

from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planning.mppi import Planner
from empo_latent.types import MultiTaskSpec


def planner_of(
    model: LatentModel, params: LatentParams, rates: Float[torch.Tensor, " task"], *, compiled: bool
) -> Planner:
    """The planner of a run, with its discounts per task."""
    return Planner(
        model,
        params.planner,
        horizon=params.learning.horizon,
        discount=rates,
        episodic=model.terminates,
        critic=params.value.critic,
        value_heads=params.value.heads,
        precision=params.compute.precision,
        compiled=compiled,
    )


def discounts(params: LatentParams, spec: MultiTaskSpec) -> list[float]:
    """The discount of each task: as given, or by the length of its episodes (TD-MPC2)."""
    gamma, rule = params.gamma, params.discount
    if gamma is not None:
        return [gamma] * len(spec.tasks)
    return [
        min(max(1 - rule.denominator / length, rule.minimum), rule.maximum)
        for length in spec.episode_lengths
    ]
