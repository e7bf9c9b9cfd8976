"""Parameters of policy loss ``ppo``."""

from __future__ import annotations

from pydantic import Field

from empo_core import Config
from empo_learning.entropy_params import EntropyParams

LOG_RATIO_LIMIT = 10.0
"""Logarithms of ratios are cut to this and minus this, so that ratios stay finite: a policy that
far from the one that acted learns nothing from its action."""


class PpoEntropyParams(EntropyParams):
    """The entropy bonus of PPO: by default of the exact entropy, whatever actions consist of."""

    coef: float = Field(0.01, ge=0, description="Factor of the entropy, at first.")
    jacobian: float = Field(
        0.0,
        ge=0,
        le=1,
        description="0: entropy of the policy, exactly; 1: from a sample, as distributions of "
        "bounded actions need it; between: a mixture.",
    )
    action_power: float = Field(
        0.0, ge=0, description="The entropy counts (numbers of an action) to this power times."
    )


class PpoParams(Config):
    """Proximal policy optimisation: the clipped surrogate objective (Schulman et al. 2017)."""

    clip: float = Field(0.2, gt=0, lt=1, description="Clip of the ratio of probabilities around 1.")
    entropy: PpoEntropyParams = PpoEntropyParams()
