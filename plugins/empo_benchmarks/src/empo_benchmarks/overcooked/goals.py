"""Goals of the human: to hold things, to see pots fill, to serve soups, to be at a station."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Integer

from empo_benchmarks.overcooked.kitchen import (
    COOK_WORDS,
    DISH,
    DISHES,
    FACING,
    HELD,
    ONION,
    ONIONS,
    PLACE,
    POT,
    WINDOW,
    Kitchen,
)

HOLD, FILL, READY, SERVE, AT = range(5)
"""Kinds of goals."""
STATIONS = {ONIONS: "the onions", DISHES: "the dishes", POT: "a pot", WINDOW: "the window"}


class KitchenGoal(NamedTuple):
    """A goal: its kind, and the item, onions, number of soups or station that it is about."""

    name: str
    kind: int
    about: int


def kitchen_goals(kitchen: Kitchen) -> Iterator[KitchenGoal]:
    """All goals of a kitchen."""
    for item in (ONION, DISH, DISH + kitchen.onions):
        yield KitchenGoal(f"hold {kitchen.thing(item)}", HOLD, item)
    for onions in range(1, kitchen.onions + 1):
        yield KitchenGoal(f"{onions} in a pot", FILL, onions)
    yield KitchenGoal("a soup is ready", READY, kitchen.onions)
    for soup in range(1, kitchen.soups + 1):
        yield KitchenGoal(f"soup {soup} served", SERVE, soup)
    for station, name in STATIONS.items():
        yield KitchenGoal(f"at {name}", AT, station)


def achieved(
    kitchen: Kitchen, goals: tuple[KitchenGoal, ...], rows: Integer[np.ndarray, "state word"]
) -> Bool[np.ndarray, "state goal"]:
    """True where each goal is achieved in each state."""
    onions = rows[:, kitchen.first_pot : -1 : 2]
    cooked = rows[:, kitchen.first_pot + 1 : -1 : 2]
    human = rows[:, COOK_WORDS : 2 * COOK_WORDS]
    faced = kitchen.tile[kitchen.neighbour[human[:, PLACE], human[:, FACING]]]
    is_achieved = np.empty((len(rows), len(goals)), np.bool_)
    for column, (_, kind, about) in enumerate(goals):
        if kind == HOLD:
            is_achieved[:, column] = human[:, HELD] == about
        elif kind == FILL:
            is_achieved[:, column] = (onions == about).any(1)
        elif kind == READY:
            is_achieved[:, column] = ((onions == about) & (cooked == kitchen.cook_time)).any(1)
        elif kind == SERVE:
            is_achieved[:, column] = rows[:, -1] >= about
        else:
            is_achieved[:, column] = faced == about
    return is_achieved
