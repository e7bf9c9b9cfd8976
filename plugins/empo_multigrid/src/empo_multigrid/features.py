"""State rows of one layout as numbers that a network reads; needs the layout, but no world."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int, Int64
from torch import Tensor

from empo_core.features import Features, FeatureShape
from empo_multigrid.channels import (
    CHANNELS,
    CONDITION,
    FIRST_AGENT,
    IMMOBILE,
    MOBILE,
    OVERLAPPABLE,
    Look,
    fixed_look,
    item_look,
    terrain_look,
)
from empo_multigrid.compact import Compactor
from empo_multigrid.feature_layout import Anatomy, Seen, aspects, item_looks
from empo_multigrid.layout import NOTHING, Layout


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
        one: What agents show.
    """

    blank: Float32[Tensor, " flat"]
    spots: Int64[Tensor, " spot"]
    values: Float32[Tensor, "look 3"]
    first_value: Int64[Tensor, " thing"]
    item: Int64[Tensor, " look"]
    item_value: Float32[Tensor, " look"]
    agent: Int64[Tensor, " agent"]
    one: Float32[Tensor, ""]


class MultigridFeatures:
    """Reads the state rows of one layout; equal for layouts that are read alike."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self._compactor = Compactor(anatomy)
        self._brushes: dict[torch.device, _Brushes] = {}

    def __eq__(self, other: object) -> bool:
        """True if the other reads rows alike."""
        return isinstance(other, MultigridFeatures) and self.anatomy == other.anatomy

    def __hash__(self) -> int:
        """Equal ones have equal hashes."""
        return hash(self.anatomy)

    def __reduce__(self) -> tuple[type[MultigridFeatures], tuple[Anatomy]]:
        """Leave out what is made when it is needed."""
        return MultigridFeatures, (self.anatomy,)

    @property
    def shape(self) -> FeatureShape:
        """Shapes of the features."""
        return self._compactor.features.shape

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``.

        Raises:
            WorldError: The rows have another length.
        """
        seen = self.anatomy.seen(states)
        return Features(self._picture(seen), *self._compactor.described(seen))

    def _picture(self, seen: Seen) -> Float32[Tensor, "state channel height width"]:
        layout, device = self.anatomy.layout, seen.rows.device
        brushes, changing = self._on(device), self.anatomy.on(device).changing
        pictures = brushes.blank.repeat(len(seen.rows), 1)
        conditions = (seen.rows[:, changing] & CONDITION) + brushes.first_value
        pictures[:, brushes.spots] = brushes.values[conditions].flatten(1)
        # Zero is added to some spot where an item lies in no cell.
        spots = (
            seen.spot + brushes.item[seen.look],
            seen.spot + MOBILE * layout.num_cells,
            seen.cells + brushes.agent,
        )
        agents = brushes.one.expand_as(seen.cells)
        values = (brushes.item_value[seen.look] * seen.lies, seen.lies, agents)
        pictures.scatter_add_(1, torch.cat(spots, 1), torch.cat(values, 1))
        return pictures.view(-1, CHANNELS, layout.height, layout.width)

    def _on(self, device: torch.device) -> _Brushes:
        if device not in self._brushes:
            parts = _brushes(self.anatomy.layout)
            self._brushes[device] = _Brushes(*(part.to(device) for part in parts))
        return self._brushes[device]


def _brushes(layout: Layout) -> list[Tensor]:
    cells = layout.num_cells
    blank = np.zeros((CHANNELS, cells), np.float32)
    for cell, kind in enumerate(layout.terrain.tolist()):
        if layout.fixed_at[cell] == NOTHING:
            _paint(blank, cell, terrain_look(kind))
    spots, values = [], []
    fixed = zip(
        layout.fixed_cell.tolist(), layout.fixed_kind.tolist(), layout.fixed_colour.tolist(),
        aspects(layout), layout.fixed_word.tolist(), strict=True,
    )  # fmt: skip
    for cell, kind, colour, aspect, word in fixed:
        looks = [fixed_look(kind, colour, aspect, condition) for condition in range(CONDITION + 1)]
        if word == NOTHING:
            _paint(blank, cell, looks[0])
            continue
        # What is seen of it at all is seen in one channel, whatever its condition.
        channel = max(looks, key=lambda look: look.value).channel
        spots += [spot * cells + cell for spot in (channel, OVERLAPPABLE, IMMOBILE)]
        values += [[look.value, look.sort == OVERLAPPABLE, look.sort == IMMOBILE] for look in looks]
    items = [item_look(*look) for look in item_looks(layout)]
    return [
        torch.from_numpy(blank.reshape(-1)),
        torch.tensor(spots, dtype=torch.int64),
        torch.tensor(values, dtype=torch.float32).reshape(-1, 3),
        torch.arange(0, len(values), CONDITION + 1),
        torch.tensor([look.channel * cells for look in items], dtype=torch.int64),
        torch.tensor([look.value for look in items], dtype=torch.float32),
        (torch.from_numpy(layout.agent_colour).long() + FIRST_AGENT) * cells,
        torch.tensor(1.0),
    ]


def _paint(picture: np.ndarray, cell: int, look: Look) -> None:
    if look.value:
        picture[look.channel, cell] = look.value
        picture[look.sort, cell] = 1
