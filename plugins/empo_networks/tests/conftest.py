"""A world that shows itself as a picture, and one of each network for any world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from empo_core import Config
from empo_core.features import Features, FeatureShape, Featurizer
from empo_core.types import Quantity, WorldSpec
from empo_networks.network import Network, grid_conv, identity, mlp
from empo_networks.plugin import GridConvParams, IdentityParams, MlpParams
from empo_testing.worlds import TinyWorld

Make = Callable[..., Network]

KINDS: dict[str, tuple[Callable[..., Network], type[Config]]] = {
    "mlp": (mlp, MlpParams),
    "grid-conv": (grid_conv, GridConvParams),
    "identity": (identity, IdentityParams),
}


@dataclass(frozen=True)
class Pictures(Featurizer):
    """A door on a grid of 2 rows and 3 columns, and who stands where."""

    @property
    def shape(self) -> FeatureShape:
        return FeatureShape(
            channels=2, height=2, width=3, globals=1, agents=3, agent_features=2, objects=1,
            object_features=2,
        )  # fmt: skip

    def __call__(self, states: Tensor) -> Features:
        opened, inside = states[:, 0].float(), states[:, 1].float()
        grid = torch.zeros(len(states), 2, 2, 3)
        grid[:, 0, 0, 1], grid[:, 1, 1, 2] = opened, inside
        agents = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]).repeat(len(states), 1, 1)
        agents[:, 0, 0] += 2 * inside
        return Features(
            grid, 3 * opened[:, None], agents, torch.stack([opened, inside], 1)[:, None]
        )


class PictureWorld(TinyWorld):
    """The tiny world, with features and with coordinates of its goals."""

    def __init__(self) -> None:
        super().__init__()
        goals = tuple(
            replace(goal, features=(float(i), 1.0, float(i + 1), 1.0))
            for i, goal in enumerate(self.spec.goals)
        )
        self.spec = replace(self.spec, features=Pictures(), goals=goals)


@pytest.fixture
def make() -> Make:
    """A function that makes a network, the same each time it is given the same; it may share."""

    def make(kind: str, spec: WorldSpec, quantity: Quantity, **params: object) -> Network:
        torch.manual_seed(0)
        factory, model = KINDS[kind]
        if "sharing" in model.model_fields:
            params = {"sharing": True} | params
        return factory(model.model_validate(params), spec, quantity)

    return make


@pytest.fixture
def picture_world() -> PictureWorld:
    """The tiny world as a picture."""
    return PictureWorld()
