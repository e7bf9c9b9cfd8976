"""State rows of one layout as numbers that a network reads; needs the layout, but no world."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int, Int16, Int64
from torch import Tensor

from empo_core.features import Features, FeatureShape, Featurizer
from empo_multigrid.layout import NOTHING, Layout
from empo_multigrid.learn.channels import (
    CHANNELS,
    CONDITION,
    FIRST_AGENT,
    IMMOBILE,
    MOBILE,
    OVERLAPPABLE,
    Appearance,
    fixed_appearance,
    item_appearance,
    terrain_appearance,
)
from empo_multigrid.learn.codec import GROUND_MASK
from empo_multigrid.learn.compact import Compactor
from empo_multigrid.learn.descriptions import STATE_OVER_GROUND, object_fields
from empo_multigrid.learn.feature_layout import ParsedStates, StateLayout, aspects, item_appearances

if TYPE_CHECKING:
    from empo_multigrid.learn.feature_updates import UpdateTables


class _Brushes(NamedTuple):
    """Tensors from which pictures of states are made, on one device. Pictures are flat here.

    Attributes:
        blank: Terrain, and fixed objects that have no word in the row.
        spots: Where each other fixed object shows itself and its sort [thing * 3].
        values: What things show there, by thing and condition.
        first_value: Where those of each thing begin.
        item: Where the channel of each item, then of each item opened, begins.
        item_value: What it shows there.
        agent: Where the channel of each agent begins.
        unit: What agents show.
    """

    blank: Float32[Tensor, " flat"]
    spots: Int64[Tensor, " spot"]
    values: Float32[Tensor, "appearance 3"]
    first_value: Int64[Tensor, " thing"]
    item: Int64[Tensor, " appearance"]
    item_value: Float32[Tensor, " appearance"]
    agent: Int64[Tensor, " agent"]
    unit: Float32[Tensor, ""]


class MultigridFeatures(Featurizer):
    """Reads the state rows of one layout; equal for layouts that are read alike."""

    can_update = True

    def __init__(self, state_layout: StateLayout) -> None:
        self.state_layout = state_layout
        self._compactor = Compactor(state_layout)
        self._brushes: dict[torch.device, _Brushes] = {}
        self._tables: UpdateTables | None = None

    def __eq__(self, other: object) -> bool:
        """True if the other reads rows alike."""
        return isinstance(other, MultigridFeatures) and self.state_layout == other.state_layout

    def __hash__(self) -> int:
        """Equal ones have equal hashes."""
        return hash(self.state_layout)

    def __reduce__(self) -> tuple[type[MultigridFeatures], tuple[StateLayout]]:
        """Leave out what is made when it is needed."""
        return MultigridFeatures, (self.state_layout,)

    @property
    def shape(self) -> FeatureShape:
        """Shapes of the features."""
        return self._compactor.features.shape

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``.

        Raises:
            WorldError: if the rows have another length.
        """
        parsed = self.state_layout.parsed(states)
        return Features(self._picture(parsed), *self._compactor.described(parsed))

    def update(
        self,
        out: Float32[np.ndarray, "state agent number"],
        before: Int16[Tensor, "state word"],
        after: Int16[Tensor, "state word"],
    ) -> None:
        """Change features of states to those of others, in place; see ``Featurizer``."""
        # Imported here because processes without a world need no compiled code.
        from empo_multigrid.learn import feature_updates

        if self._tables is None:
            self._tables = self._update_tables()
        feature_updates.update(self._tables, before.numpy(), after.numpy(), out)

    def _update_tables(self) -> UpdateTables:
        """The same tensors as ``__call__`` uses, for compiled code."""
        from empo_multigrid.learn.feature_updates import UpdateTables

        layout, shape, cpu = self.state_layout.layout, self.shape, torch.device("cpu")
        brushes, tables = self._on(cpu), self.state_layout.on(cpu)
        agents_at = shape.channels * layout.num_cells + shape.globals
        size = [
            layout.num_cells, layout.width, layout.num_agents, layout.num_items,
            layout.first_item_word, layout.opened, agents_at,
            agents_at + shape.agents * shape.agent_features,
        ]  # fmt: skip
        ground = tables.ground[tables.object_cell].long()
        word = torch.where(tables.object_changes, tables.object_word, -1)
        return UpdateTables(
            np.array(size),
            brushes.agent.numpy(),
            torch.stack([brushes.item, brushes.item_value.long(), tables.carried], 1).numpy(),
            tables.changing.numpy(),
            brushes.spots.view(-1, 3).numpy(),
            brushes.values.view(-1, CONDITION + 1, 3).numpy(),
            torch.stack([word, ground & GROUND_MASK], 1).numpy(),
            object_fields(ground).numpy(),
            STATE_OVER_GROUND,
        )

    def _picture(self, parsed: ParsedStates) -> Float32[Tensor, "state channel height width"]:
        layout, device = self.state_layout.layout, parsed.rows.device
        brushes, changing = self._on(device), self.state_layout.on(device).changing
        pictures = brushes.blank.repeat(len(parsed.rows), 1)
        conditions = (parsed.rows[:, changing] & CONDITION) + brushes.first_value
        pictures[:, brushes.spots] = brushes.values[conditions].flatten(1)
        # Zero is added to some spot where an item lies in no cell.
        spots = (
            parsed.spot + brushes.item[parsed.appearance],
            parsed.spot + MOBILE * layout.num_cells,
            parsed.cells + brushes.agent,
        )
        agents = brushes.unit.expand_as(parsed.cells)
        values = (brushes.item_value[parsed.appearance] * parsed.lies, parsed.lies, agents)
        pictures.scatter_add_(1, torch.cat(spots, 1), torch.cat(values, 1))
        return pictures.view(-1, CHANNELS, layout.height, layout.width)

    def _on(self, device: torch.device) -> _Brushes:
        if device not in self._brushes:
            parts = _brushes(self.state_layout.layout)
            self._brushes[device] = _Brushes(*(part.to(device) for part in parts))
        return self._brushes[device]


def _brushes(layout: Layout) -> list[Tensor]:
    cells = layout.num_cells
    blank = np.zeros((CHANNELS, cells), np.float32)
    for cell, kind in enumerate(layout.terrain.tolist()):
        if layout.fixed_at[cell] == NOTHING:
            _paint(blank, cell, terrain_appearance(kind))
    spots, values = [], []
    fixed = zip(
        layout.fixed_cell.tolist(), layout.fixed_kind.tolist(), layout.fixed_colour.tolist(),
        aspects(layout), layout.fixed_word.tolist(), strict=True,
    )  # fmt: skip
    for cell, kind, colour, aspect, word in fixed:
        appearances = [
            fixed_appearance(kind, colour, aspect, condition) for condition in range(CONDITION + 1)
        ]
        if word == NOTHING:
            _paint(blank, cell, appearances[0])
            continue
        # What is seen of it at all is seen in one channel, whatever its condition.
        channel = max(appearances, key=lambda appearance: appearance.value).channel
        spots += [spot * cells + cell for spot in (channel, OVERLAPPABLE, IMMOBILE)]
        values += [
            [appearance.value, appearance.sort == OVERLAPPABLE, appearance.sort == IMMOBILE]
            for appearance in appearances
        ]
    items = [item_appearance(*appearance) for appearance in item_appearances(layout)]
    return [
        torch.from_numpy(blank.reshape(-1)),
        torch.tensor(spots, dtype=torch.int64),
        torch.tensor(values, dtype=torch.float32).reshape(-1, 3),
        torch.arange(0, len(values), CONDITION + 1),
        torch.tensor([appearance.channel * cells for appearance in items], dtype=torch.int64),
        torch.tensor([appearance.value for appearance in items], dtype=torch.float32),
        (torch.from_numpy(layout.agent_colour).long() + FIRST_AGENT) * cells,
        torch.tensor(1.0),
    ]


def _paint(picture: np.ndarray, cell: int, appearance: Appearance) -> None:
    if appearance.value:
        picture[appearance.channel, cell] = appearance.value
        picture[appearance.sort, cell] = 1
