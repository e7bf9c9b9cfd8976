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

from empo_core.errors import WorldError
from empo_core.features import Features, FeatureShape
from empo_overcooked.kitchen import (
    COOK_WORDS,
    COUNTER,
    DISH,
    FACING,
    FAR,
    PLACE,
    WINDOW,
    Kitchen,
)
from empo_overcooked.plugin import TILES

STATIONS = range(COUNTER, WINDOW + 1)
"""Kinds of tiles that cooks walk to."""
NEARNESS = 0.9
"""Base of the nearness of a station: this to the power of the steps to it."""


@dataclass(frozen=True)
class KitchenFeatures:
    """Words, one-hot, and what follows from several of them.

    That is where both cooks stand; the kind of tile that each faces; how near each is to each kind
    of station, around the other cook; pots by what is in them; and how many of each item lie on
    counters.

    Attributes:
        kitchen: What the words are about.
    """

    kitchen: Kitchen

    @property
    def shape(self) -> FeatureShape:
        """Numbers about the kitchen as a whole, and no others."""
        kitchen = self.kitchen
        cooks = len(kitchen.floor) ** 2 + 2 * (len(TILES) + len(STATIONS))
        return FeatureShape(
            globals=sum(kitchen.values) + cooks + (kitchen.onions + 3) + (DISH + kitchen.onions)
        )

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``.

        Raises:
            WorldError: The rows have another length.
        """
        words = len(self.kitchen.values)
        if states.ndim != 2 or states.shape[1] != words:
            raise WorldError(f"states must have shape [state, {words}]; got {list(states.shape)}")
        rows = states.long()
        parts = [self.words(rows), self._cooks(rows), self._pots(rows), self._items(rows)]
        found = torch.cat(parts, 1)
        empty = found.new_zeros
        return Features(
            empty(len(rows), 0, 0, 0), found, empty(len(rows), 0, 0), empty(len(rows), 0, 0)
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
        near, faced = (table.to(rows.device) for table in (self._near, self._faced))
        parts = [one_hot(robot * places + human, places**2)]
        for own, other, word in ((robot, human, 0), (human, robot, COOK_WORDS)):
            parts += [one_hot(faced[own, rows[:, word + FACING]], len(TILES)), near[other, own]]
        return torch.cat([part.float() for part in parts], 1)

    def _pots(self, rows: Int[Tensor, "state word"]) -> Float[Tensor, "state feature"]:
        """Pots with each number of onions that do not cook, pots that cook, soups that count."""
        kitchen = self.kitchen
        onions = rows[:, kitchen.first_pot : -1 : 2]
        cooked = rows[:, kitchen.first_pot + 1 : -1 : 2]
        waiting = [(onions == number) & (cooked == 0) for number in range(kitchen.onions + 1)]
        is_ready = (onions == kitchen.onions) & (cooked == kitchen.cook_time)
        cooks = (cooked > 0) & (cooked < kitchen.cook_time)
        return torch.stack([*waiting, cooks, is_ready], -1).sum(1).float()

    def _items(self, rows: Int[Tensor, "state word"]) -> Float[Tensor, "state feature"]:
        """How many of each item lie on counters."""
        items = rows[:, self.kitchen.first_counter : self.kitchen.first_pot]
        return one_hot(items, DISH + self.kitchen.onions + 1).sum(1)[:, 1:].float()

    @cached_property
    def _faced(self) -> Int[Tensor, "place direction"]:
        return torch.from_numpy(self.kitchen.tile[self.kitchen.ahead]).long()

    @cached_property
    def _near(self) -> Float[Tensor, "place place station"]:
        """Of a cook who goes around a place: that place, its own, the kind of station."""
        kitchen = self.kitchen
        kinds = kitchen.tile[kitchen.ahead]
        found = np.zeros((*kitchen.distances.shape[:2], len(STATIONS)), np.float32)
        for column, kind in enumerate(STATIONS):
            there = (kinds == kind).any(1)
            if there.any():
                steps = kitchen.distances[:, :, there].min(2)
                found[..., column] = np.where(steps < FAR, NEARNESS ** steps.astype(float), 0)
        return torch.from_numpy(found)
