"""Compact rows: states with all that a network needs to know, readable without a world.

A compact row of int32 words is [grid | agents | globals | objects]: a word per cell (``codec``),
a word per agent (``descriptions``), four floats as their bits, and a word per button or switch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from jaxtyping import Float32, Int, Int32, Int64
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.features import Features, FeatureShape, Featurizer
from empo_multigrid.layout import AGENT_WORDS
from empo_multigrid.learn.channels import CHANNELS, CONDITION
from empo_multigrid.learn.codec import CONDITION_AT, decompress_grid_batch_to_tensor
from empo_multigrid.learn.descriptions import (
    AGENT_FEATURES,
    CELL_MASK,
    OBJECT_FEATURES,
    STATE_AT,
    agent_features,
    object_features,
)
from empo_multigrid.learn.feature_layout import ParsedStates, StateLayout

GLOBALS: Final = 4


@dataclass(frozen=True, slots=True)
class CompactFeatures(Featurizer):
    """Reads compact rows of any layouts of one size."""

    height: int
    width: int
    agents: int
    objects: int

    @property
    def words(self) -> int:
        """Length of a compact row."""
        return self.height * self.width + self.agents + GLOBALS + self.objects

    @property
    def shape(self) -> FeatureShape:
        """Shapes of the features."""
        return FeatureShape(
            channels=CHANNELS,
            height=self.height,
            width=self.width,
            globals=GLOBALS,
            agents=self.agents,
            agent_features=AGENT_FEATURES,
            objects=self.objects,
            object_features=OBJECT_FEATURES,
        )

    def __call__(self, states: Int32[Tensor, "state compact_word"]) -> Features:
        """The features of each state, on the device of ``states``.

        Raises:
            WorldError: if the rows have another length.
        """
        if states.ndim != 2 or states.shape[1] != self.words:
            raise WorldError(
                f"compact rows of a {self.width} x {self.height} grid with {self.agents} agents "
                f"and {self.objects} buttons and switches have shape [state, {self.words}], not "
                f"{list(states.shape)}"
            )
        sizes = [self.height * self.width, self.agents, GLOBALS, self.objects]
        grid, agents, bits, objects = torch.split(states, sizes, 1)
        ground = grid.gather(1, (objects & CELL_MASK).long())
        return tensorize_state_from_compact(
            grid.reshape(-1, self.height, self.width),
            bits.contiguous().view(torch.float32),
            agent_features(agents, self.width),
            object_features(objects, ground, self.width),
        )


class Compactor:
    """Makes compact rows of one layout's state rows, on any device."""

    def __init__(self, state_layout: StateLayout) -> None:
        self.state_layout = state_layout

    @cached_property
    def features(self) -> CompactFeatures:
        """Reads the rows that are made."""
        layout = self.state_layout.layout
        return CompactFeatures(
            layout.height, layout.width, layout.num_agents, self.state_layout.num_objects
        )

    def __call__(self, states: Int[Tensor, "state word"]) -> Int32[Tensor, "state compact_word"]:
        """The compact row of each state.

        Raises:
            WorldError: if the rows have another length.
        """
        parsed = self.state_layout.parsed(states)
        floats = self.state_layout.on(states.device).globals
        parts = (
            self._grid(parsed),
            self._agents(parsed).int(),
            floats.view(torch.int32).expand(len(states), -1),
            self._objects(parsed).int(),
        )
        return torch.cat(parts, 1)

    def compress_grid(
        self, states: Int[Tensor, "state word"]
    ) -> Int32[Tensor, "state height width"]:
        """All that stands or lies in the cells of each state, see ``codec``."""
        layout = self.state_layout.layout
        return self._grid(self.state_layout.parsed(states)).view(-1, layout.height, layout.width)

    def tensorize_state_compact(
        self, states: Int[Tensor, "state word"]
    ) -> tuple[
        Float32[Tensor, "state feature"],
        Float32[Tensor, "state agent agent_feature"],
        Float32[Tensor, "state object object_feature"],
    ]:
        """Features besides the picture: globals, agents, objects."""
        return self.described(self.state_layout.parsed(states))

    def described(
        self, parsed: ParsedStates
    ) -> tuple[
        Float32[Tensor, "state feature"],
        Float32[Tensor, "state agent agent_feature"],
        Float32[Tensor, "state object object_feature"],
    ]:
        """As ``tensorize_state_compact``, of states that were looked at already."""
        tables, width = self.state_layout.on(parsed.rows.device), self.state_layout.layout.width
        ground = tables.ground[tables.object_cell]
        return (
            tables.globals.repeat(len(parsed.rows), 1),
            agent_features(self._agents(parsed), width),
            object_features(self._objects(parsed), ground[None], width),
        )

    def _grid(self, parsed: ParsedStates) -> Int32[Tensor, "state cell"]:
        tables = self.state_layout.on(parsed.rows.device)
        grid = tables.ground.repeat(len(parsed.rows), 1)
        condition = (parsed.rows[:, tables.changing] & CONDITION) << CONDITION_AT
        grid[:, tables.changing_cell] += condition.int()
        # Zero is added somewhere where an item lies in no cell.
        grid.scatter_add_(1, parsed.spot, tables.item[parsed.appearance] * parsed.lies)
        return grid.scatter_add_(1, parsed.cells, tables.agent.expand(len(grid), -1))

    def _agents(self, parsed: ParsedStates) -> Int64[Tensor, "state agent"]:
        tables, layout = self.state_layout.on(parsed.rows.device), self.state_layout.layout
        agents = parsed.rows[:, : layout.first_item_word].reshape(
            -1, layout.num_agents, AGENT_WORDS
        )
        # The fields have bits of their own, so that their sum is all of them.
        words = (agents << tables.agent_shifts).sum(-1) + tables.able
        # One column more, for what is not carried.
        hands = torch.nn.functional.pad(words, (0, 1))
        return hands.scatter_add_(1, parsed.holder, tables.carried[parsed.appearance])[:, :-1]

    def _objects(self, parsed: ParsedStates) -> Int64[Tensor, "state object"]:
        tables = self.state_layout.on(parsed.rows.device)
        state = parsed.rows[:, tables.object_word] * tables.object_changes
        return tables.object_cell + (state << STATE_AT)


def tensorize_state_from_compact(
    grids: Int32[Tensor, "state height width"],
    globals: Float32[Tensor, "state feature"],
    agents: Float32[Tensor, "state agent agent_feature"],
    objects: Float32[Tensor, "state object object_feature"],
) -> Features:
    """The features of states of which the grid is compressed."""
    return Features(decompress_grid_batch_to_tensor(grids), globals, agents, objects)
