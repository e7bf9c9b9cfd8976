"""A state row taken apart for people: who and what is where, and in which condition."""

from __future__ import annotations

from typing import NamedTuple

from empo_multigrid import layout as codes
from empo_multigrid.layout import Ints, Layout


class VisibleItem(NamedTuple):
    """An item as it is now: a box that was opened has become what it held."""

    kind: int
    colour: int


class AgentView(NamedTuple):
    """One agent. ``forced`` is the index of its forced next action, or ``NOTHING``."""

    cell: int
    direction: int
    terminated: bool
    paused: bool
    forced: int
    carrying: VisibleItem | None


class FixedView(NamedTuple):
    """An object that stays in its cell; ``word`` is ``NOTHING`` where it has no state."""

    kind: int
    colour: int
    target: int
    side: int
    word: int


class Scene(NamedTuple):
    """One state row, decoded.

    Attributes:
        agents: In index order.
        loose: The item that lies in a cell, by cell.
        fixed: The object that stays in a cell, by cell.
    """

    agents: tuple[AgentView, ...]
    loose: dict[int, VisibleItem]
    fixed: dict[int, FixedView]


class ControlView(NamedTuple):
    """The word of a control button, taken apart.

    Attributes:
        enabled: Whether toggling it does anything.
        awaiting: Whether it waits for the programmed agent's next action.
        agent: Who is programmed, or ``NOTHING``.
        action: The recorded action's index, or ``NOTHING``.
    """

    enabled: bool
    awaiting: bool
    agent: int
    action: int


def scene(layout: Layout, row: Ints) -> Scene:
    """Everything that a state row says about a world."""
    loose: dict[int, VisibleItem] = {}
    carried: dict[int, VisibleItem] = {}
    for item in range(layout.num_items):
        place = int(row[layout.first_item_word + item])
        if place == codes.GONE:
            continue
        thing = VisibleItem(int(layout.item_kind[item]), int(layout.item_colour[item]))
        if place >= layout.opened:
            place -= layout.opened
            thing = VisibleItem(
                int(layout.item_content_kind[item]), int(layout.item_content_colour[item])
            )
        if place < layout.num_cells:
            loose[place] = thing
        else:
            carried[place - layout.num_cells] = thing
    words = [codes.NOTHING if word < 0 else int(row[word]) for word in layout.fixed_word.tolist()]
    looks = (layout.fixed_kind, layout.fixed_colour, layout.fixed_target, layout.fixed_side)
    views = map(FixedView, *(look.tolist() for look in looks), words)
    return Scene(
        tuple(_agent(row, i, carried.get(i)) for i in range(layout.num_agents)),
        loose,
        dict(zip(layout.fixed_cell.tolist(), views, strict=True)),
    )


def control(word: int) -> ControlView:
    """Fields of a control button's word."""
    return ControlView(bool(word & 1), bool(word & 2), (word >> 2 & 63) - 1, (word >> 8) - 1)


def _agent(row: Ints, agent: int, carrying: VisibleItem | None) -> AgentView:
    words = row[codes.AGENT_WORDS * agent : codes.AGENT_WORDS * (agent + 1)].tolist()
    flags = words[codes.FLAGS]
    return AgentView(
        cell=words[codes.CELL],
        direction=words[codes.DIRECTION],
        terminated=bool(flags & codes.TERMINATED),
        paused=bool(flags & codes.PAUSED),
        forced=words[codes.FORCED] - 1,
        carrying=carrying,
    )
