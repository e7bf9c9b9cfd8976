"""State rows as numbers that a network reads; needs no world."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.features import Features, FeatureShape, Featurizer

AGENTS = 3
AGENT_FEATURES = 2
"""x and y; -1 for an assistant that is nowhere."""
CHANNELS = AGENTS + 1
"""A channel for each agent, and boxes."""


@dataclass(frozen=True)
class DisempowerFeatures(Featurizer):
    """A picture of agents and boxes, and one-hot numbers of keys and the freeze timer.

    Attributes:
        height: Rows of the board.
        width: Columns of the board.
        places: Column and row of each cell.
        first_box: Word of the first box.
        key_word: The word after the last box.
        extra: How many values each word from there on has.
    """

    height: int
    width: int
    places: tuple[tuple[int, int], ...]
    first_box: int
    key_word: int
    extra: tuple[int, ...]

    @property
    def shape(self) -> FeatureShape:
        """Shape of the features."""
        return FeatureShape(
            channels=CHANNELS,
            height=self.height,
            width=self.width,
            globals=sum(self.extra),
            agents=AGENTS,
            agent_features=AGENT_FEATURES,
        )

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``.

        Raises:
            WorldError: if the rows have another length.
        """
        words = self.key_word + len(self.extra)
        if states.ndim != 2 or states.shape[1] != words:
            raise WorldError(f"states must have shape [state, {words}]; got {list(states.shape)}")
        rows = states.long()
        x, y = torch.tensor(self.places, device=rows.device).T
        grid_cell = (y * self.width + x)[rows[:, : self.key_word]]
        picture = torch.zeros((len(rows), CHANNELS, self.height * self.width), device=rows.device)
        for agent in range(self.first_box):
            picture[:, agent].scatter_(1, grid_cell[:, agent : agent + 1], 1.0)
        picture[:, AGENTS].scatter_(1, grid_cell[:, self.first_box :], 1.0)
        extra = [
            torch.nn.functional.one_hot(rows[:, self.key_word + i], size)
            for i, size in enumerate(self.extra)
        ]
        return Features(
            picture.view(len(rows), CHANNELS, self.height, self.width),
            torch.cat([picture.new_zeros(len(rows), 0), *extra], 1),
            self.agent_cells(rows).float(),
            picture.new_zeros(len(rows), 0, 0),
        )

    def agent_cells(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent 2"]:
        """The (x, y) cells of the agents, (-1, -1) for an assistant that is nowhere."""
        places = torch.tensor(self.places, device=states.device)
        cells = torch.full((len(states), AGENTS, 2), -1, device=states.device)
        cells[:, : self.first_box] = places[states[:, : self.first_box].long()]
        return cells
