# mypy: disable-error-code="no-any-return"
"""Features of states that follow others, by changing only what differs; compiled.

The plain twin is ``MultigridFeatures``, which makes the features of any states anew. A picture has
thousands of numbers, of which a step changes some ten.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_multigrid.layout import (
    AGENT_WORDS,
    CELL,
    DIRECTION,
    FLAGS,
    FORCED,
    PAUSED,
    TERMINATED,
    Ints,
    Longs,
)
from empo_multigrid.learn.channels import CONDITION, MOBILE
from empo_multigrid.learn.descriptions import (
    AGENT_FEATURES,
    CARRIED_AT,
    CARRIED_COLOUR_AT,
    OBJECT_FEATURES,
)
from empo_worlds.compilation import compiled, nested

Numbers = NDArray[np.float32]
CELLS, WIDTH, AGENTS, ITEMS, FIRST_ITEM, OPENED, AGENTS_AT, OBJECTS_AT = range(8)
FACES, CARRIES, IS_PAUSED = 2, 8, 10
"""Positions among the features of an agent; abilities, at 6 and 7, never change."""
FIRST_OF_OBJECT = 6
"""Features of an object before it never change: its kind and its cell."""


class UpdateTables(NamedTuple):
    """The constants of a layout, as compiled code wants them.

    Attributes:
        size: ``CELLS`` ... ``OBJECTS_AT`` [8]; the last two are where these features begin.
        agent: Where the channel of each agent begins [agent].
        item: Where the channel of each item begins, what it shows, and its bits in its carrier's
            word; of each item, then of each item opened [appearance 3].
        thing: The word in the row of each fixed object that has one [thing].
        spots: Where it shows itself and its sort [thing 3].
        values: What it shows there in each condition [thing condition 3].
        object: The word in the row of each described object, or -1, and its ground [object 2].
        fields: Shift, mask and base of each of its features that change [object feature 3].
        state_shift: Where its word goes above its ground.
    """

    size: Longs
    agent: Longs
    item: Longs
    thing: Longs
    spots: Longs
    values: Numbers
    object: Longs
    fields: Longs
    state_shift: int


@nested
def _add(out: Numbers, state: int, place: int, value: float) -> None:
    for agent in range(out.shape[1]):
        out[state, agent, place] += value


@nested
def _put(out: Numbers, state: int, place: int, value: float) -> None:
    for agent in range(out.shape[1]):
        out[state, agent, place] = value


@nested
def _draw_item(
    t: UpdateTables, out: Numbers, state: int, item: int, place: int, sign: float
) -> None:
    """Show an item where it lies, or take it away with ``sign`` -1."""
    if place >= t.size[OPENED]:
        place -= t.size[OPENED]
        item += t.size[ITEMS]
    if 0 <= place < t.size[CELLS]:
        _add(out, state, t.item[item, 0] + place, sign * t.item[item, 1])
        _add(out, state, MOBILE * t.size[CELLS] + place, sign)


@nested
def _carried(t: UpdateTables, rows: Ints, state: int, agent: int) -> int:
    """Bits of what an agent carries."""
    bits = 0
    for item in range(t.size[ITEMS]):
        place, appearance = int(rows[state, t.size[FIRST_ITEM] + item]), item
        if place >= t.size[OPENED]:
            place -= t.size[OPENED]
            appearance += t.size[ITEMS]
        if place == t.size[CELLS] + agent:
            bits += t.item[appearance, 2]
    return bits


@nested
def _update_agent(
    t: UpdateTables, before: Ints, after: Ints, out: Numbers, state: int, agent: int
) -> None:
    """Show an agent as it is now, in the order of ``descriptions.agent_features``."""
    base, at = AGENT_WORDS * agent, t.size[AGENTS_AT] + AGENT_FEATURES * agent
    old, new = int(before[state, base + CELL]), int(after[state, base + CELL])
    if old != new:
        _add(out, state, t.agent[agent] + old, -1.0)
        _add(out, state, t.agent[agent] + new, 1.0)
        _put(out, state, at, float(new % t.size[WIDTH]))
        _put(out, state, at + 1, float(new // t.size[WIDTH]))
    old, new = int(before[state, base + DIRECTION]), int(after[state, base + DIRECTION])
    if old != new:
        _put(out, state, at + FACES + old, 0.0)
        _put(out, state, at + FACES + new, 1.0)
    old, new = int(before[state, base + FLAGS]), int(after[state, base + FLAGS])
    if old != new:
        _put(out, state, at + IS_PAUSED, float((new & PAUSED) // PAUSED))
        _put(out, state, at + IS_PAUSED + 1, float((new & TERMINATED) // TERMINATED))
    new = int(after[state, base + FORCED])
    if before[state, base + FORCED] != new:
        _put(out, state, at + IS_PAUSED + 2, float(new - 1))


@nested
def _update_things(t: UpdateTables, before: Ints, after: Ints, out: Numbers, state: int) -> None:
    """Show fixed objects as they are now."""
    for thing in range(len(t.thing)):
        word = t.thing[thing]
        if before[state, word] != after[state, word]:
            for spot in range(3):
                value = t.values[thing, after[state, word] & CONDITION, spot]
                _put(out, state, t.spots[thing, spot], value)
    for number in range(len(t.object)):
        word = t.object[number, 0]
        if word >= 0 and before[state, word] != after[state, word]:
            combined = (int(after[state, word]) << t.state_shift) + t.object[number, 1]
            at = t.size[OBJECTS_AT] + OBJECT_FEATURES * number + FIRST_OF_OBJECT
            for feature in range(OBJECT_FEATURES - FIRST_OF_OBJECT):
                shift, mask = t.fields[number, feature, 0], t.fields[number, feature, 1]
                _put(
                    out,
                    state,
                    at + feature,
                    (combined >> shift & mask) + t.fields[number, feature, 2],
                )


@compiled
def update(t: UpdateTables, before: Ints, after: Ints, out: Numbers) -> None:
    """Change flat features of the states ``before`` to those of ``after``.

    Args:
        t: The layout.
        before: State rows [state word].
        after: State rows [state word].
        out: Features of each state, for several readers and perhaps with more behind them
            [state reader number].
    """
    for state in range(len(after)):
        has_moved = False
        for item in range(t.size[ITEMS]):
            word = t.size[FIRST_ITEM] + item
            if before[state, word] != after[state, word]:
                has_moved = True
                _draw_item(t, out, state, item, int(before[state, word]), -1.0)
                _draw_item(t, out, state, item, int(after[state, word]), 1.0)
        for agent in range(t.size[AGENTS]):
            _update_agent(t, before, after, out, state, agent)
            if has_moved:
                carried = _carried(t, after, state, agent)
                at = t.size[AGENTS_AT] + AGENT_FEATURES * agent + CARRIES
                _put(out, state, at, float((carried >> CARRIED_AT & 7) - 1))
                _put(out, state, at + 1, float((carried >> CARRIED_COLOUR_AT & 7) - 1))
        _update_things(t, before, after, out, state)
