"""State rows of one layout as numbers that a network reads; needs the layout, but no world."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int, Int64
from torch import Tensor

from empo_core.types import Features, FeatureShape
from empo_multigrid.anatomy import Anatomy, aspects, item_looks
from empo_multigrid.compact import Compactor
from empo_multigrid.layout import AGENT_WORDS, CELL, NOTHING, Layout
from empo_multigrid.looks import (
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


class _Brushes(NamedTuple):
    """What the picture of a state is made of, on one device. Pictures are flat here.

    Attributes:
        blank: Terrain, and fixed objects that have no word in the row.
        spots: Where each other fixed object shows itself and its sort [thing * 3].
        values: What it shows there, by condition [thing condition 3].
        item: Where the channel of each item, then of each item opened, begins.
        item_value: What it shows there.
        agent: Where the channel of each agent begins.
    """

    blank: Float32[Tensor, " flat"]
    spots: Int64[Tensor, " spot"]
    values: Float32[Tensor, "thing condition 3"]
    item: Int64[Tensor, " look"]
    item_value: Float32[Tensor, " look"]
    agent: Int64[Tensor, " agent"]


class MultigridFeatures:
    """Reads the state rows of one layout; equal for layouts that are read alike."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self._compactor = Compactor(anatomy)
        self._brushes: dict[torch.device, _Brushes] = {}

    def __eq__(self, other: object) -> bool:
        """Whether the other reads rows alike."""
        return isinstance(other, MultigridFeatures) and self.anatomy == other.anatomy

    def __hash__(self) -> int:
        """Equal ones have equal hashes."""
        return hash(self.anatomy)

    def __reduce__(self) -> tuple[type[MultigridFeatures], tuple[Anatomy]]:
        """Leave out what is made when it is needed."""
        return MultigridFeatures, (self.anatomy,)

    @property
    def shape(self) -> FeatureShape:
        """What its answers look like."""
        return self._compactor.features.shape

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``.

        Raises:
            WorldError: The rows have another length.
        """
        return Features(
            self._picture(self.anatomy.rows(states)),
            *self._compactor.tensorize_state_compact(states),
        )

    def _picture(
        self, rows: Int64[Tensor, "state word"]
    ) -> Float32[Tensor, "state channel height width"]:
        layout = self.anatomy.layout
        brushes, changing = self._on(rows.device), self.anatomy.on(rows.device).changing
        pictures = brushes.blank.repeat(len(rows), 1)
        thing = torch.arange(len(changing), device=rows.device)
        conditions = rows[:, changing] & CONDITION
        pictures[:, brushes.spots] = brushes.values[thing, conditions].flatten(1)
        items = self.anatomy.items(rows)
        lies = (items.place >= 0) & (items.place < layout.num_cells)
        # Zero is added to some spot where an item lies in no cell.
        place = items.place.clamp(0, layout.num_cells - 1)
        agents = rows[:, CELL : layout.first_item_word : AGENT_WORDS] + brushes.agent
        spots = [place + brushes.item[items.look], place + MOBILE * layout.num_cells, agents]
        values = [brushes.item_value[items.look] * lies, lies, torch.ones_like(agents)]
        pictures.scatter_add_(1, torch.cat(spots, 1), torch.cat(values, 1).float())
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
        values.append(
            [[look.value, look.sort == OVERLAPPABLE, look.sort == IMMOBILE] for look in looks]
        )
    items = [item_look(*look) for look in item_looks(layout)]
    return [
        torch.from_numpy(blank.reshape(-1)),
        torch.tensor(spots, dtype=torch.int64),
        torch.tensor(values, dtype=torch.float32).reshape(-1, CONDITION + 1, 3),
        torch.tensor([look.channel * cells for look in items], dtype=torch.int64),
        torch.tensor([look.value for look in items], dtype=torch.float32),
        (torch.from_numpy(layout.agent_colour).long() + FIRST_AGENT) * cells,
    ]


def _paint(picture: np.ndarray, cell: int, look: Look) -> None:
    if look.value:
        picture[look.channel, cell] = look.value
        picture[look.sort, cell] = 1
