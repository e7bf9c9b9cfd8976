"""Components of a plugin that the tests of this folder install; see fixture ``components``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from doors import Adding, DoorWorld, EagerHumans
from pydantic import Field
from torch import Tensor, nn

from empo_core import Component, Config, hookimpl
from empo_core.protocols import ValueNetwork
from empo_core.types import Quantity, ValueQuery, WorldSpec


class FlatParams(Config):
    hidden: int = Field(8, ge=1, description="Width.")


class DoorParams(Config):
    horizon: int = Field(4, ge=1, description="Steps.")


class FlatNet(ValueNetwork):
    """A small network on rows, time and goals as numbers."""

    def __init__(self, params: FlatParams, spec: WorldSpec, quantity: Quantity) -> None:
        super().__init__()
        self.quantity = quantity
        self._featurizer = spec.featurizer
        outputs = spec.num_robot_actions if quantity == "q_r" else 1
        width = spec.featurizer.shape.flat + 1
        self.body = nn.Sequential(nn.Linear(width, params.hidden), nn.Tanh())
        self.head = nn.Linear(params.hidden, outputs)
        self.goal = nn.Embedding(len(spec.goals), params.hidden)

    def forward(self, query: ValueQuery) -> Tensor:
        asked = query.spread()
        flat = self._featurizer(asked.states).flat()
        hidden = self.body(torch.cat([flat, asked.steps_left[:, None].float()], 1))
        if asked.goal is not None:
            return torch.sigmoid(self.head(hidden + self.goal(asked.goal)))
        return -1 - nn.functional.softplus(self.head(hidden))


def adding(params: Config) -> Adding:
    return Adding()


def eager(params: Config, world: Any) -> EagerHumans:
    return EagerHumans(world)


def door(params: DoorParams) -> DoorWorld:
    return DoorWorld(params.horizon)


@hookimpl
def empo_components() -> Iterable[Component]:
    for kind, name, params, factory in (
        ("value_network", "test-flat", FlatParams, "FlatNet"),
        ("aggregator", "test-adding", Config, "adding"),
        ("human_prior", "test-eager", Config, "eager"),
        ("world_model", "test-door", DoorParams, "door"),
    ):
        target = f"door_components:{factory}"
        yield Component(kind=kind, name=name, params=params, target=target, api=1)  # type: ignore[arg-type]
