"""States in the public implementation's own form, for comparing results with it.

Its state is ``(t, agents, mobile, mutable)``: agents are ``(x, y, direction, terminated,
started, paused, carried type, carried colour, forced action)``, mobile the sorted ``(type, x,
y)`` of blocks and rocks, mutable doors, boxes and so on in reading order.

That form lacks where keys and balls lie, and whether a box that is gone was opened. Coming
from it, a key or ball that is not carried is put where it was in the initial state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_multigrid import layout as codes
from empo_multigrid.layout import Ints, Layout
from empo_multigrid.scene import control, scene
from empo_multigrid.world import MultigridWorld

Entry: TypeAlias = tuple[str | int | None, ...]
ReferenceState: TypeAlias = tuple[int, tuple[Entry, ...], tuple[Entry, ...], tuple[Entry, ...]]

_ITEMS: Final = {
    codes.BLOCK: "block",
    codes.ROCK: "rock",
    codes.KEY: "key",
    codes.BALL: "ball",
    codes.BOX: "box",
}
_FIXED: Final = {
    codes.DOOR: "door",
    codes.MAGIC_WALL: "magicwall",
    codes.BUSH: "bush",
    codes.KILL_BUTTON: "killbutton",
    codes.PAUSE_SWITCH: "pauseswitch",
    codes.CONTROL_BUTTON: "controlbutton",
}


def to_reference(world: MultigridWorld, row: Int[Tensor, " word"], t: int) -> ReferenceState:
    """A state, ``t`` steps after the start, as the public implementation writes it."""
    layout, words = world.layout, row.cpu().numpy()
    contents = scene(layout, words)
    agents = []
    for agent in contents.agents:
        held = agent.carrying
        agents.append(
            (
                *_xy(layout, agent.cell),
                agent.direction,
                agent.terminated,
                True,
                agent.paused,
                None if held is None else _ITEMS[held.kind],
                None if held is None else codes.COLOURS[held.colour],
                None if agent.forced == codes.NOTHING else agent.forced,
            )
        )
    mobile = sorted(
        (_ITEMS[thing.kind], *_xy(layout, cell))
        for cell, thing in contents.loose.items()
        if thing.kind in (codes.BLOCK, codes.ROCK)
    )
    by_cell = _boxes(layout, words) | {
        int(layout.fixed_cell[index]): _fixture(layout, index, word)
        for index, word in enumerate(contents.fixed)
        if word != codes.NOTHING
    }
    mutable = (by_cell[cell] for cell in sorted(by_cell))
    return t, tuple(agents), tuple(mobile), tuple(mutable)


def from_reference(world: MultigridWorld, state: Sequence[Any]) -> Int[Tensor, " word"]:
    """The state row that a state of the public implementation, tuples or lists, stands for.

    Raises:
        WorldError: if ``state`` is no state of this world.
    """
    try:
        _, agents, mobile, mutable = state
        row = _row(world, agents, mobile, mutable)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise WorldError(
            f"not a state of {world.spec.name!r} in reference form: {error}"
        ) from error
    return torch.from_numpy(row)


def _row(
    world: MultigridWorld, agents: Sequence[Any], mobile: Sequence[Any], mutable: Sequence[Any]
) -> Ints:
    layout, row = world.layout, world.initial_state().numpy()
    if len(agents) != layout.num_agents:
        raise ValueError(f"it has {len(agents)} agents, the world {layout.num_agents}")
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
    if fixtures:
        raise ValueError(f"it has an object in cell {min(fixtures)}, the world has none")
    hands = {
        i: (str(agent[6]), str(agent[7])) for i, agent in enumerate(agents) if agent[6] is not None
    }
    _place_items(layout, row, hands, lying)
    return row


def _agent_words(layout: Layout, agent: Sequence[Any]) -> tuple[int, int, int, int]:
    x, y, direction, terminated, started, paused, _, _, forced = agent
    if not started:
        raise ValueError("an agent that has not started is unknown here")
    if direction not in range(4):
        raise ValueError(f"{direction!r} is no direction")
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


def _fixture(layout: Layout, index: int, word: int) -> Entry:
    kind = int(layout.fixed_kind[index])
    head = _FIXED[kind], *_xy(layout, int(layout.fixed_cell[index]))
    if kind == codes.DOOR:
        return *head, word == codes.DOOR_OPEN, word == codes.DOOR_LOCKED
    if kind == codes.PAUSE_SWITCH:
        return *head, bool(word & 1), bool(word & 2)
    if kind == codes.CONTROL_BUTTON:
        button = control(word)
        agent, action = (None if v == codes.NOTHING else v for v in (button.agent, button.action))
        return *head, button.enabled, agent, action, button.awaiting
    return *head, bool(word)


def _boxes(layout: Layout, row: Ints) -> dict[int, Entry]:
    """The entry of each closed box on the floor, by cell."""
    boxes: dict[int, Entry] = {}
    contents = _things(layout.item_content_kind, layout.item_content_colour)
    for item in np.flatnonzero(layout.item_kind == codes.BOX).tolist():
        place = int(row[layout.first_item_word + item])
        if 0 <= place < layout.num_cells:
            kind, colour = contents[item]
            boxes[place] = ("box", *_xy(layout, place), kind or None, colour or None)
    return boxes


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
    if any(lying.values()):
        raise ValueError(f"the world has no such items: {lying}")
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


def _xy(layout: Layout, cell: int) -> tuple[int, int]:
    return cell % layout.width, cell // layout.width


def _cell(layout: Layout, x: int, y: int) -> int:
    if x not in range(layout.width) or y not in range(layout.height):
        raise ValueError(f"({x},{y}) is outside the {layout.width} x {layout.height} grid")
    return y * layout.width + x
