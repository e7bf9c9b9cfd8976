"""AWR does what every policy loss must, whatever its parameters."""

from __future__ import annotations

from typing import Any

import pytest

from empo_awr.loss import Awr
from empo_awr.params import AwrParams
from empo_core.protocols import PolicyLoss
from empo_testing.policy_loss import PolicyLossTests

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "running scale": {
        "normaliser": "running_scale",
        "scale_rate": 0.3,
        "temperature": {"rule": "fixed", "value": 0.1},
        "entropy": {"target_entropy": -1.0, "rate": 0.1},
    },
    "effective sample size": {
        "normaliser": "state_range",
        "temperature": {"rule": "ess", "share": 0.6},
        "reduction": "min",
        "disagreement": -0.5,
        "max_weight": 2.0,
        "entropy": {"coef": 0.01, "end": 1e-4, "schedule": "exponential"},
    },
    "maximum a posteriori": {
        "normaliser": "none",
        "temperature": {"rule": "kl", "bound": 0.3},
        "trust_region": {"mean": 0.1, "std": 0.01},
        "entropy": {"jacobian": 0.0},
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
class TestAwr(PolicyLossTests):
    @pytest.fixture
    def loss(self, variant: str) -> PolicyLoss:
        return Awr(AwrParams.model_validate(VARIANTS[variant]))
