"""State rows as numbers that a network reads; needs no world."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.features import Features, FeatureShape, Featurizer

CHANNELS = 2
"""The human, boxes."""
AGENT_FEATURES = 2
"""x and y; -1 for the robot, which is nowhere."""


@dataclass(frozen=True, slots=True)
class BlocksFeatures(Featurizer):
    """A picture of the human and of the boxes.

    Attributes:
        size: Rows and columns of the board.
        boxes: Number of boxes.
    """

    size: int
    boxes: int

    @property
    def shape(self) -> FeatureShape:
        """Shape of the features."""
        return FeatureShape(
            channels=CHANNELS,
            height=self.size,
            width=self.size,
            agents=2,
            agent_features=AGENT_FEATURES,
        )

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``.

        Raises:
            WorldError: if the rows have another length.
        """
        if states.ndim != 2 or states.shape[1] != 1 + self.boxes:
            raise WorldError(
                f"states must have shape [state, {1 + self.boxes}]: the human's cell and those of "
                f"{self.boxes} boxes; got {list(states.shape)}"
            )
        cells = states.long()
        picture = torch.zeros((len(states), CHANNELS, self.size**2), device=states.device)
        picture[:, 0].scatter_(1, cells[:, :1], 1.0)
        picture[:, 1].scatter_(1, cells[:, 1:], 1.0)
        return Features(
            picture.view(len(states), CHANNELS, self.size, self.size),
            picture.new_zeros(len(states), 0),
            places(cells, self.size).float(),
            picture.new_zeros(len(states), 0, 0),
        )


def places(states: Int[Tensor, "state word"], size: int) -> Int[Tensor, "state agent 2"]:
    """The (x, y) cell of the human, and (-1, -1) for the robot."""
    human = states[:, 0].long()
    cells = torch.full((len(states), 2, 2), -1, device=states.device)
    cells[:, 0, 0], cells[:, 0, 1] = human % size, human // size
    return cells
