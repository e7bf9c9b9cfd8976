"""Features of a BushWorld's state rows for networks; needs no world."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.features import Features, FeatureShape, Featurizer

CHANNELS = 3
"""Density of a cell's bush (1 is impenetrable), robots, humans."""
AGENT_FEATURES = 3
"""x, y, and whether the agent is human."""


@dataclass(frozen=True, slots=True)
class BushFeatures(Featurizer):
    """Grids of densities and agents, and a row of numbers per agent.

    Attributes:
        width: Columns of the grid.
        height: Its rows.
        robots: How many robots there are.
        humans: How many humans there are.
        impenetrable: Density of a bush that no human gets through.
    """

    width: int
    height: int
    robots: int
    humans: int
    impenetrable: int

    @property
    def shape(self) -> FeatureShape:
        """Shape of the features."""
        return FeatureShape(
            channels=CHANNELS,
            height=self.height,
            width=self.width,
            agents=self.robots + self.humans,
            agent_features=AGENT_FEATURES,
        )

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``.

        Raises:
            WorldError: if the rows have another length.
        """
        agents, cells = self.robots + self.humans, self.height * self.width
        if states.ndim != 2 or states.shape[1] != agents + cells:
            raise WorldError(
                f"states must have shape [state, {agents + cells}]: {agents} cells and {cells} "
                f"densities; got {list(states.shape)}"
            )
        places = states[:, :agents].long()
        picture = torch.zeros((len(states), CHANNELS, cells), device=states.device)
        picture[:, 0] = states[:, agents:] / self.impenetrable
        for channel, agent_slice in ((1, slice(0, self.robots)), (2, slice(self.robots, agents))):
            picture[:, channel].scatter_(1, places[:, agent_slice], 1.0)
        is_human = torch.arange(agents, device=states.device) >= self.robots
        columns = [places % self.width, places // self.width, is_human.expand_as(places)]
        return Features(
            picture.view(len(states), CHANNELS, self.height, self.width),
            picture.new_zeros(len(states), 0),
            torch.stack(columns, -1).float(),
            picture.new_zeros(len(states), 0, 0),
        )
