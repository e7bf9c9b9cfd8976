"""Parameters of small agents, without any other plugin."""

from __future__ import annotations

from typing import Any

import pytest

from empo_core import Component, Config
from empo_core.registry import Offer, Provider, Registry
from empo_latent.params import LatentParams

LOSS = Component(
    kind="policy_loss", name="any", params=Config, target="nowhere:Any", api=1, summary="Any."
)
SMALL: dict[str, Any] = {
    "preset": "tiny",
    "total_steps": 100,
    "tasks": [{"kind": "gymnasium", "id": "Pendulum-v1"}],
    "policy_loss": "any",
    "encoder": {"width": 8},
    "latents": {"size": 8, "group": 4, "width": 8},
    "bins": {"number": 11},
    "learning": {"batch_size": 4},
    "planner": {"samples": 8, "iterations": 2, "elites": 4, "policy_plans": 2},
}


class Small:
    """Makes parameters of small agents."""

    def __init__(self) -> None:
        self.registry = Registry([Offer(Provider("tests", "0", "tests"), LOSS)])

    def __call__(self, **groups: Any) -> LatentParams:
        """Parameters; a group that is given is added to that of a small agent."""
        data = {**SMALL, **groups}
        for name, group in SMALL.items():
            if isinstance(group, dict):
                data[name] = {**group, **groups.get(name, {})}
        return LatentParams.model_validate(data, context={"registry": self.registry})


@pytest.fixture(scope="session")
def small() -> Small:
    return Small()
