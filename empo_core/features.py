"""Features of states: a row of a world as the numbers that a network reads.

Axis names follow ``docs/reference/shapes.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureShape:
    """Sizes of the features that describe a state; 0 for those that a world lacks.

    Attributes:
        channels: Channels of the grid picture.
        height: Its rows.
        width: Its columns.
        globals: Numbers about the world as a whole.
        agents: Agents described, in the order of ``spec.agents``.
        agent_features: Numbers about each agent.
        objects: Objects described, e.g. buttons and switches.
        object_features: Numbers about each object.
    """

    channels: int = 0
    height: int = 0
    width: int = 0
    globals: int = 0
    agents: int = 0
    agent_features: int = 0
    objects: int = 0
    object_features: int = 0

    @property
    def flat(self) -> int:
        """Total number of features."""
        return (
            self.channels * self.height * self.width
            + self.globals
            + self.agents * self.agent_features
            + self.objects * self.object_features
        )


@dataclass(frozen=True, slots=True)
class Features:
    """States as numbers that a network reads; parts a world lacks have a 0 in their shape."""

    grid: Float[Tensor, "state channel height width"]
    globals: Float[Tensor, "state feature"]
    agents: Float[Tensor, "state agent agent_feature"]
    objects: Float[Tensor, "state object object_feature"]

    def flat(self) -> Float[Tensor, "state flat"]:
        """All numbers of each state in one row: grid, globals, agents, objects."""
        parts = (self.grid, self.globals, self.agents, self.objects)
        return torch.cat([part.flatten(1) for part in parts], 1)


class Featurizer(ABC):
    """Reads state rows as numbers, on any device, without the world.

    A featurizer can be pickled into a process that has no world.

    Attributes:
        can_update: Whether ``update`` works.
    """

    can_update: ClassVar[bool] = False

    @property
    @abstractmethod
    def shape(self) -> FeatureShape:
        """Shapes of the features."""

    @abstractmethod
    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``; time is not among them."""

    def update(
        self,
        out: Float[np.ndarray, "state agent number"],
        before: Int[Tensor, "state word"],
        after: Int[Tensor, "state word"],
    ) -> None:
        """Change flat features in place, on the CPU, which takes less time than ``__call__``.

        Args:
            out: Those of ``before`` for each of several agents, which see the same; numbers
                behind them stay as they are.
            before: States.
            after: States whose features ``out`` then has, as ``__call__`` would make them.
        """
        raise NotImplementedError(f"{type(self).__name__} makes features anew; see can_update")


@dataclass(frozen=True, slots=True)
class RowFeatures(Featurizer):
    """The words of a row as they are: what a world without a featurizer of its own gets."""

    words: int

    @property
    def shape(self) -> FeatureShape:
        """One global number per word."""
        return FeatureShape(globals=self.words)

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The words as floating-point numbers."""
        count = len(states)
        return Features(
            states.new_zeros((count, 0, 0, 0), dtype=torch.float32),
            states.to(torch.float32),
            states.new_zeros((count, 0, 0), dtype=torch.float32),
            states.new_zeros((count, 0, 0), dtype=torch.float32),
        )
