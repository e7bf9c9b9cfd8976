"""State rows, decoded for reading and written back, and what a step settles before it moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from empo_multigrid.layout import (
    AGENT_WORDS,
    BUSH,
    CONTROL_BUTTON,
    DOOR,
    DOOR_OPEN,
    DX,
    DY,
    GONE,
    NOTHING,
    PAUSED,
    TERMINATED,
    WALL,
    Layout,
)


@dataclass
class Agent:
    """An agent's part of the row; ``forced`` is an action index."""

    cell: int
    direction: int
    terminated: bool
    paused: bool
    forced: int | None

    @property
    def able(self) -> bool:
        """True if the agent can act."""
        return not (self.terminated or self.paused)


@dataclass
class Item:
    """An item as it is now: an opened box has the kind and colour of its content."""

    kind: int
    colour: int
    cell: int | None
    carrier: int | None
    opened: bool


@dataclass
class Control:
    """The word of a control button; ``recorded`` is an action index."""

    enabled: bool
    awaiting: bool
    programmed: int | None
    recorded: int | None


@dataclass
class Scene:
    """A state row, decoded. Objects that stay in their cell are known by their index."""

    layout: Layout
    agents: list[Agent]
    items: list[Item]
    words: dict[int, int]
    controls: dict[int, Control]

    @classmethod
    def decode(cls, layout: Layout, row: Sequence[int]) -> Scene:
        """The scene that a row stands for."""
        numbers = [int(word) for word in row]
        agents = []
        for i in range(layout.num_agents):
            cell, direction, flags, forced = numbers[AGENT_WORDS * i : AGENT_WORDS * (i + 1)]
            terminated, paused = bool(flags & TERMINATED), bool(flags & PAUSED)
            agents.append(Agent(cell, direction, terminated, paused, optional(forced)))
        places = numbers[layout.first_item_word :]
        items = [decode_item(layout, i, places[i]) for i in range(layout.num_items)]
        words, controls = {}, {}
        for f, position in enumerate(layout.fixed_word):
            word = numbers[position] if position != NOTHING else NOTHING
            if layout.fixed_kind[f] == CONTROL_BUTTON:
                programmed, recorded = optional(word >> 2 & 63), optional(word >> 8)
                controls[f] = Control(bool(word & 1), bool(word & 2), programmed, recorded)
            elif position != NOTHING:
                words[f] = word
        return cls(layout, agents, items, words, controls)

    def encode(self) -> tuple[int, ...]:
        """The canonical row of this scene."""
        row = [0] * self.layout.state_words
        for i, agent in enumerate(self.agents):
            flags = TERMINATED * agent.terminated | PAUSED * agent.paused
            words = [agent.cell, agent.direction, flags, number(agent.forced)]
            row[AGENT_WORDS * i : AGENT_WORDS * (i + 1)] = words
        groups = [int(group) for group in self.layout.item_group]
        places = [encode_place(self.layout, item) for item in self.items]
        first = self.layout.first_item_word
        row[first : first + len(places)] = [p for _, p in sorted(zip(groups, places, strict=True))]
        for f, word in self.words.items():
            row[self.layout.fixed_word[f]] = word
        for f, c in self.controls.items():
            word = c.enabled | c.awaiting << 1 | number(c.programmed) << 2 | number(c.recorded) << 8
            row[self.layout.fixed_word[f]] = word
        return tuple(row)

    def copy(self) -> Scene:
        """An independent scene, equal to this one."""
        agents = [replace(agent) for agent in self.agents]
        items = [replace(item) for item in self.items]
        controls = {f: replace(control) for f, control in self.controls.items()}
        return Scene(self.layout, agents, items, dict(self.words), controls)

    def ahead(self, cell: int | None, direction: int) -> int | None:
        """The next cell in a direction, None outside the grid or if there is no first cell."""
        if cell is None:
            return None
        x, y = cell % self.layout.width + DX[direction], cell // self.layout.width + DY[direction]
        inside = 0 <= x < self.layout.width and 0 <= y < self.layout.height
        return y * self.layout.width + x if inside else None

    def faced(self, i: int) -> int | None:
        """The cell in front of an agent."""
        return self.ahead(self.agents[i].cell, self.agents[i].direction)

    def agent_at(self, cell: int | None) -> int | None:
        """The agent in a cell, terminated ones included."""
        return next((i for i, agent in enumerate(self.agents) if agent.cell == cell), None)

    def item_at(self, cell: int | None) -> Item | None:
        """The item that lies in a cell."""
        return next((it for it in self.items if cell is not None and it.cell == cell), None)

    def fixed_at(self, cell: int | None) -> tuple[int | None, int]:
        """The index and kind of what is fixed in a cell, None and ``NOTHING`` if nothing is."""
        f = NOTHING if cell is None else int(self.layout.fixed_at[cell])
        return (None, NOTHING) if f == NOTHING else (f, int(self.layout.fixed_kind[f]))

    def carried(self, i: int) -> Item | None:
        """The item that an agent carries, None if it carries nothing."""
        return next((item for item in self.items if item.carrier == i), None)

    def coloured(self, colour: int) -> set[int]:
        """The agents of a colour."""
        return {i for i, c in enumerate(self.layout.agent_colour) if c == colour}

    def untrampled_bush(self, cell: int | None) -> int | None:
        """The index of the bush in a cell, None if there is none or it was trampled."""
        f, kind = self.fixed_at(cell)
        return f if f is not None and kind == BUSH and not self.words[f] else None

    def open_ground(self, cell: int) -> bool:
        """True if neither terrain nor a fixed object keeps things out of a cell."""
        f, kind = self.fixed_at(cell)
        if f is None:
            return bool(self.layout.terrain[cell] != WALL)
        return self.words.get(f) == {DOOR: DOOR_OPEN, BUSH: 1}.get(kind, NOTHING)


def optional(word: int) -> int | None:
    """The value of a word that is 0 for "none" and otherwise the value plus 1."""
    return word - 1 if word else None


def number(value: int | None) -> int:
    """The inverse of ``optional``."""
    return 0 if value is None else value + 1


def decode_item(layout: Layout, index: int, place: int) -> Item:
    """An item from its word."""
    opened = place >= layout.opened
    if opened:
        place -= layout.opened
        kind, colour = layout.item_content_kind[index], layout.item_content_colour[index]
    else:
        kind, colour = layout.item_kind[index], layout.item_colour[index]
    cell = place if 0 <= place < layout.num_cells else None
    carrier = place - layout.num_cells if place >= layout.num_cells else None
    return Item(int(kind), int(colour), cell, carrier, opened)


def encode_place(layout: Layout, item: Item) -> int:
    """The word of an item."""
    if item.cell is None and item.carrier is None:
        return GONE
    place = item.cell if item.cell is not None else layout.num_cells + (item.carrier or 0)
    return place + layout.opened * item.opened


@dataclass(frozen=True)
class Plan:
    """State and actions of a step, fixed before anything moves.

    Attributes:
        start: The scene, forced actions already taken out.
        action: The action index of each agent that is not to be still, paused or not.
        occupied: The cells that living agents stand in; nothing may enter them in this step.
    """

    start: Scene
    action: dict[int, int]
    occupied: frozenset[int]

    @property
    def active(self) -> list[int]:
        """The agents that have something to do and are neither terminated nor paused."""
        return [i for i in self.action if self.start.agents[i].able]

    def verb(self, i: int) -> int:
        """The verb that an agent is to execute, e.g. ``FORWARD``."""
        return int(self.start.layout.actions[self.action[i]])
