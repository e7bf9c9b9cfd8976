"""State rows as numbers that a network reads; needs no world."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from empo_benchmarks.overcooked.kitchen import (
    COOK_WORDS,
    COUNTER,
    DISH,
    FACING,
    FAR,
    PLACE,
    WINDOW,
    Kitchen,
)
from empo_benchmarks.overcooked.params import TILES
from empo_core.errors import WorldError
from empo_core.features import Features, FeatureShape, Featurizer

STATIONS = range(COUNTER, WINDOW + 1)
"""Kinds of tiles that cooks walk to."""
NEARNESS = 0.9
"""Base of the nearness of a station: this to the power of the steps to it."""


@dataclass(frozen=True)
class KitchenFeatures(Featurizer):
    """Words, one-hot, and what follows from several of them.

    That is where both cooks stand; the kind of tile that each faces, and what is on or in it; how
    near each is to each kind of station, around the other cook; pots by what is in them; and how
    many of each item lie on counters.

    Attributes:
        kitchen: What the words are about.
    """

    kitchen: Kitchen

    @property
    def shape(self) -> FeatureShape:
        """Numbers about the kitchen as a whole, and no others."""
        kitchen = self.kitchen
        cook_features = len(TILES) + self._contents + len(STATIONS)
        cooks = len(kitchen.floor) ** 2 + 2 * cook_features
        return FeatureShape(
            globals=sum(kitchen.values) + cooks + self._stages + (DISH + kitchen.onions)
        )

    @property
    def _stages(self) -> int:
        """Of pots: each number of onions that do not cook, soups that cook, count, do not count."""
        return self.kitchen.onions + 4

    @property
    def _contents(self) -> int:
        """What cells may have: nothing, items, pots by their stages."""
        return DISH + self.kitchen.onions + 1 + self._stages

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``.

        Raises:
            WorldError: if the rows have another length.
        """
        words = len(self.kitchen.values)
        if states.ndim != 2 or states.shape[1] != words:
            raise WorldError(f"states must have shape [state, {words}]; got {list(states.shape)}")
        rows = states.long()
        parts = [self.words(rows), self._cooks(rows), self._pots(rows), self._items(rows)]
        encoded = torch.cat(parts, 1)
        empty = encoded.new_zeros
        return Features(
            empty(len(rows), 0, 0, 0), encoded, empty(len(rows), 0, 0), empty(len(rows), 0, 0)
        )

    def words(self, rows: Int[Tensor, "state word"]) -> Float[Tensor, "state feature"]:
        """A 1 for the value that each word has, and 0 for those that it does not have."""
        values = self.kitchen.values
        first = torch.tensor([0, *accumulate(values[:-1])], device=rows.device)
        return torch.zeros((len(rows), sum(values)), device=rows.device).scatter_(
            1, rows.long() + first, 1.0
        )

    def _cooks(self, rows: Int[Tensor, "state word"]) -> Float[Tensor, "state feature"]:
        """Both places, and what each cook faces and is near to."""
        places = len(self.kitchen.floor)
        robot, human = rows[:, PLACE], rows[:, COOK_WORDS + PLACE]
        near, neighbour, tile = (table.to(rows.device) for table in self._tables)
        contents = self._in_cells(rows)
        parts = [one_hot(robot * places + human, places**2)]
        for cook, other, word in ((robot, human, 0), (human, robot, COOK_WORDS)):
            cell = neighbour[cook, rows[:, word + FACING]]
            inside = contents.gather(1, cell[:, None])[:, 0]
            parts += [one_hot(tile[cell], len(TILES)), one_hot(inside, self._contents)]
            parts.append(near[other, cook])
        return torch.cat([part.float() for part in parts], 1)

    def _in_cells(self, rows: Int[Tensor, "state word"]) -> Int[Tensor, "state cell"]:
        """What each counter and pot has; 0 for nothing."""
        kitchen = self.kitchen
        contents = rows.new_zeros(len(rows), len(kitchen.tile))
        contents[:, kitchen.counters] = rows[:, kitchen.first_counter : kitchen.first_pot]
        contents[:, kitchen.pots] = DISH + kitchen.onions + 1 + self._stage(rows)
        return contents

    def _stage(self, rows: Int[Tensor, "state word"]) -> Int[Tensor, "state pot"]:
        kitchen, full = self.kitchen, self.kitchen.onions
        onions = rows[:, kitchen.first_pot : -1 : 2]
        cooked = rows[:, kitchen.first_pot + 1 : -1 : 2]
        done = torch.where(onions == full, full + 2, full + 3)
        later = torch.where(cooked < kitchen.cook_time, full + 1, done)
        return torch.where(cooked == 0, onions, later)

    def _pots(self, rows: Int[Tensor, "state word"]) -> Float[Tensor, "state feature"]:
        """How many pots are in each stage."""
        return one_hot(self._stage(rows), self._stages).sum(1).float()

    def _items(self, rows: Int[Tensor, "state word"]) -> Float[Tensor, "state feature"]:
        """How many of each item lie on counters."""
        items = rows[:, self.kitchen.first_counter : self.kitchen.first_pot]
        return one_hot(items, DISH + self.kitchen.onions + 1).sum(1)[:, 1:].float()

    @cached_property
    def _tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """Nearness of stations, the cell ahead in each direction, and kinds of tiles."""
        kitchen = self.kitchen
        neighbour, tile = (
            torch.from_numpy(table).long() for table in (kitchen.neighbour, kitchen.tile)
        )
        return self._near(), neighbour, tile

    def _near(self) -> Float[Tensor, "place place station"]:
        """Of a cook who goes around a place: that place, its own, the kind of station."""
        kitchen = self.kitchen
        kinds = kitchen.tile[kitchen.neighbour]
        nearness = np.zeros((*kitchen.distances.shape[:2], len(STATIONS)), np.float32)
        for column, kind in enumerate(STATIONS):
            there = (kinds == kind).any(1)
            if there.any():
                steps = kitchen.distances[:, :, there].min(2)
                nearness[..., column] = np.where(steps < FAR, NEARNESS ** steps.astype(float), 0)
        return torch.from_numpy(nearness)
