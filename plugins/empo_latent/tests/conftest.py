"""Parameters of small agents, without any other plugin; makes ``reference_*`` importable."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from empo_core import Component, Config
from empo_core.plugins.registry import Offer, Provider, Registry
from empo_environments.plugin import empo_components as environments
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec, SequenceBatch
from empo_learning.plugin import empo_components as shared
from empo_testing import shape_checks

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
# Their shapes are checked, as those of the code that they are compared with.
shape_checks.install([path.stem for path in HERE.glob("reference_*.py")])

LOSS = Component(
    kind="policy_loss", name="any", params=Config, target="nowhere:Any", api=1, summary="Any."
)
SMALL: dict[str, Any] = {
    "size": "tiny",
    "total_steps": 100,
    "tasks": ["gymnasium/Pendulum-v1"],
    "policy_loss": "any",
    "encoder": {"width": 8},
    "latents": {"size": 8, "group": 4, "width": 8},
    "bins": {"number": 11},
    "replay": {"batch_size": 4},
    "planner": {"samples": 8, "iterations": 2, "elites": 4, "policy_plans": 2},
}


class Small:
    """Makes parameters of small agents."""

    def __init__(self) -> None:
        components = (LOSS, *environments(), *shared())
        self.registry = Registry([Offer(Provider("tests", "0", "tests"), c) for c in components])

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


class Lab:
    """Makes models that already say something, in float64, and experience for them to learn from.

    Observations have three numbers, actions two, of which the second of two tasks uses the first.
    """

    def model(
        self, params: LatentParams, *, tasks: int = 1, optimistic: bool = False, seed: int = 0
    ) -> LatentModel:
        """A model all of whose weights are random: no head is 0, no average like its network."""
        spec = MultiTaskSpec(
            words=3,
            pictures=False,
            shape=(3,),
            actions=2,
            active=((True, True), (True, False))[:tasks],
            tasks=("one", "two")[:tasks],
            action_repeats=(1,) * tasks,
            episode_lengths=(100,) * tasks,
        )
        generator = torch.Generator().manual_seed(seed)
        model = LatentModel(params, spec, generator=generator, optimistic=optimistic).double()
        with torch.no_grad():
            for weight in model.parameters():
                noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
                weight.add_(0.3 * noise)
        return model

    def sequences(
        self, *, time: int = 3, number: int = 2, tasks: int = 1, seed: int = 0
    ) -> SequenceBatch:
        """Random steps, none of which ends an episode."""
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        return SequenceBatch(
            observation=normal(time + 1, number, 3),
            action=normal(time, number, 2).tanh(),
            reward=3 * normal(time, number, 1),
            terminated=torch.zeros(time, number, 1, dtype=torch.float64),
            task=torch.arange(number) % tasks if tasks > 1 else None,
        )


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab()
