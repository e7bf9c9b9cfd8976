"""Sketches of kitchens: glyphs for pages that draw many states of one world."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Int16

from empo_benchmarks.overcooked.goals import KitchenGoal
from empo_benchmarks.overcooked.kitchen import (
    COOK_WORDS,
    DIRECTIONS,
    FACING,
    NOTHING,
    PLACE,
    Kitchen,
)
from empo_benchmarks.overcooked.picture import (
    TINTS,
    draw_cook,
    draw_item,
    draw_pot,
    draw_tile,
    station,
)
from empo_core.types import WorldSpec
from empo_theory.inspection import Sketch
from empo_worlds.grid.pictures import Glyphs

HEADINGS = np.array([3, 1, 0, 2], np.int32)
"""North, south, east and west as a ``Sketch`` numbers them."""
TILES = ("floor", "counter", "onions", "dishes", "stove", "window")


def sketch(
    kitchen: Kitchen,
    goals: Sequence[KitchenGoal],
    spec: WorldSpec,
    rows: Int16[np.ndarray, "state word"],
) -> Sketch:
    """Pictures of some states."""
    glyphs, tiles = Glyphs(), kitchen.tile.tolist()
    ground = [glyphs.number(TILES[kind], partial(draw_tile, kind=kind)) for kind in tiles]
    things = np.zeros((len(rows), len(tiles)), np.int32)
    cooks = np.zeros((len(rows), len(spec.agents)), np.int32)
    for state, row in enumerate(rows.tolist()):
        for cell in kitchen.counters:
            if item := row[kitchen.word[cell]]:
                paint = partial(draw_item, item=item, x=0.5, y=0.5)
                things[state, cell] = glyphs.number(kitchen.thing(item), paint)
        for cell in kitchen.pots:
            onions, cooked = row[kitchen.word[cell] :][:2]
            name = f"pot: onions {onions}, cooked {cooked}/{kitchen.cook_time}"
            paint = partial(draw_pot, onions=onions, cooked=cooked / kitchen.cook_time)
            things[state, cell] = glyphs.number(name, paint)
        for number, agent in enumerate(spec.agents):
            _, facing, held = row[COOK_WORDS * number :][:COOK_WORDS]
            name = f"{agent.name}, faces {DIRECTIONS[facing]}"
            name += "" if held == NOTHING else f", holds {kitchen.thing(held)}"
            paint = partial(draw_cook, agent=number, tint=TINTS[number], facing=facing, held=held)
            cooks[state, number] = glyphs.number(name, paint)
    words = rows[:, : COOK_WORDS * len(spec.agents)].astype(np.int64)
    return Sketch(
        width=kitchen.width,
        height=len(kitchen.lines),
        glyphs=tuple(glyphs.glyphs),
        ground=np.array(ground),
        things=things,
        agents=cooks,
        places=kitchen.floor[words[:, PLACE::COOK_WORDS]].astype(np.int32),
        headings=HEADINGS[words[:, FACING::COOK_WORDS]],
        goals=np.array([kitchen.tile == station(goal) for goal in goals]),
    )
