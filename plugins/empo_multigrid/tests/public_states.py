"""States in the public implementation's own form as state rows, for comparing results with it.

Its state is ``(t, agents, mobile, mutable)``: agents are ``(x, y, direction, terminated,
started, paused, carried type, carried colour, forced action)``, mobile the sorted ``(type, x,
y)`` of blocks and rocks, mutable doors, boxes and so on in reading order.

That form lacks where keys and balls lie, and whether a box that is gone was opened. Coming
from it, a key or ball that is not carried is put where it was in the initial state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from empo_multigrid import layout as codes
from empo_multigrid.layout import Ints, Layout
from empo_multigrid.world import MultigridWorld

_ITEMS: Final = {
    codes.BLOCK: "block",
    codes.ROCK: "rock",
    codes.KEY: "key",
    codes.BALL: "ball",
    codes.BOX: "box",
}


def from_reference(world: MultigridWorld, state: Sequence[Any]) -> Int[Tensor, " word"]:
    """The state row that a state of the public implementation, tuples or lists, stands for."""
    layout, row = world.layout, world.initial_state().numpy()
    _, agents, mobile, mutable = state
    for index, agent in enumerate(agents):
        row[codes.AGENT_WORDS * index : codes.AGENT_WORDS * (index + 1)] = _agent_words(
            layout, agent
        )
    fixtures: dict[int, int] = {}
    lying: dict[str, list[int]] = {"block": [], "rock": [], "box": []}
    for kind, x, y, *values in mutable:
        if kind == "box":
            lying[kind].append(_cell(layout, x, y))
        else:
            fixtures[_cell(layout, x, y)] = _word(kind, values)
    for kind, x, y in mobile:
        lying[kind].append(_cell(layout, x, y))
    for index in np.flatnonzero(layout.fixed_word >= 0).tolist():
        row[layout.fixed_word[index]] = fixtures.pop(int(layout.fixed_cell[index]))
    assert not fixtures
    hands = {
        i: (str(agent[6]), str(agent[7])) for i, agent in enumerate(agents) if agent[6] is not None
    }
    _place_items(layout, row, hands, lying)
    return torch.from_numpy(row)


def _agent_words(layout: Layout, agent: Sequence[Any]) -> tuple[int, int, int, int]:
    x, y, direction, terminated, started, paused, _, _, forced = agent
    assert started
    flags = codes.TERMINATED * bool(terminated) | codes.PAUSED * bool(paused)
    return _cell(layout, x, y), direction, flags, 0 if forced is None else forced + 1


def _word(kind: str, values: Sequence[Any]) -> int:
    if kind == "door":
        is_open, is_locked = values
        return codes.DOOR_OPEN if is_open else codes.DOOR_LOCKED if is_locked else codes.DOOR_CLOSED
    if kind == "pauseswitch":
        is_on, enabled = values
        return int(is_on) | int(enabled) << 1
    if kind == "controlbutton":
        enabled, agent, action, awaiting = values
        agent, action = (0 if value is None else value + 1 for value in (agent, action))
        return int(enabled) | int(awaiting) << 1 | agent << 2 | action << 8
    (flag,) = values  # Magic wall, bush or kill button.
    return int(flag)


def _place_items(
    layout: Layout, row: Ints, hands: dict[int, tuple[str, str]], lying: dict[str, list[int]]
) -> None:
    """Fill in the items' words, which still are those of the initial state."""
    first = layout.first_item_word
    start = row[first : first + layout.num_items].tolist()
    # Boxes that were not moved keep their cell, so that differing boxes stay apart.
    order = sorted(range(layout.num_items), key=lambda item: start[item] not in lying["box"])
    things = _things(layout.item_kind, layout.item_colour)
    left = {item: things[item] for item in order}
    for agent, held in hands.items():
        item, place = _held(layout, left, held)
        row[first + item] = place + agent
        del left[item]
    for item, (kind, _) in left.items():
        cells = lying.get(kind)
        if cells is None:
            continue  # A key or ball, see the module's docstring.
        if kind == "box" and start[item] in cells:
            cells.remove(start[item])
        elif cells:
            row[first + item] = cells.pop(0)
        elif kind == "box" and layout.item_content_kind[item] == codes.NOTHING:
            row[first + item] = codes.GONE
        else:
            raise ValueError(f"a {kind} is missing")
    assert not any(lying.values())
    for group in np.unique(layout.item_group):
        members = first + np.flatnonzero(layout.item_group == group)
        row[members] = np.sort(row[members])


def _held(
    layout: Layout, left: dict[int, tuple[str, str]], held: tuple[str, str]
) -> tuple[int, int]:
    """An item that an agent can hold, and the place of agent 0's hands for it."""
    contents = _things(layout.item_content_kind, layout.item_content_colour)
    for item, thing in left.items():
        if thing == held and thing[0] not in ("block", "rock"):
            return item, layout.num_cells
    for item in left:
        if contents[item] == held:
            return item, layout.opened + layout.num_cells
    raise ValueError(f"the world has no {held[1]} {held[0]} that could be carried")


def _things(kinds: Ints, colours: Ints) -> list[tuple[str, str]]:
    """Kind and colour of each in words; of nothing, empty words."""
    return [
        ("", "") if kind == codes.NOTHING else (_ITEMS[kind], codes.COLOURS[colour])
        for kind, colour in zip(kinds.tolist(), colours.tolist(), strict=True)
    ]


def _cell(layout: Layout, x: int, y: int) -> int:
    return y * layout.width + x
