# mypy: disable-error-code="no-any-return"
"""Intended effect of each agent's actions in one state, before other agents count; compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from empo_multigrid import layout as codes
from empo_multigrid.law import effects as columns
from empo_multigrid.law.effects import (
    Scene,
    Tables,
    contested_cell,
    front_cell,
    is_acting,
    is_pushable,
)
from empo_multigrid.layout import Ints
from empo_worlds.compilation import inlined, nested

# How an agent's action is resolved.
IDLE, NORMAL, STUMBLER, WALL_ENTERER, BUSH_ENTERER = range(5)


class Intents(NamedTuple):
    """Intended effect of each agent's actions in one state, before other agents count.

    Attributes:
        category: ``IDLE`` ... ``BUSH_ENTERER`` [agent action].
        contest: The cell that the action needs for itself, or -1 [agent action].
        stops: The colour of agents that it kills or (un)pauses, or -1 [agent action].
        disables: The kind of object that it disables, or -1 [agent action].
        uses: The kind of button or switch that it uses, or -1 [agent action].
        start: The row when the step begins, forced actions taken out of it [word].
    """

    category: Ints
    contest: Ints
    stops: Ints
    disables: Ints
    uses: Ints
    start: Ints


def empty_intents(agents: int, actions: int, words: int) -> Intents:
    """Scratch for a world of this size."""
    category, contest, stops, disables, uses = np.zeros((5, agents, actions), np.int16)
    return Intents(category, contest, stops, disables, uses, np.zeros(words, np.int16))


@nested
def load(t: Tables, s: Scene, row: Ints) -> None:
    """Make the scene show a row."""
    for word in range(len(row)):
        s.row[word] = row[word]
    first_item = codes.AGENT_WORDS * t.size[columns.AGENTS]
    for agent in range(t.size[columns.AGENTS]):
        s.agent_at[row[codes.AGENT_WORDS * agent + codes.CELL]] = agent
    opened = t.size[columns.CELLS] + t.size[columns.AGENTS]
    for item in range(t.size[columns.ITEMS]):
        place = row[first_item + item]
        if place >= opened:
            place -= opened
        if 0 <= place < t.size[columns.CELLS]:
            s.item_at[place] = item


@nested
def unload(t: Tables, s: Scene) -> None:
    """Take everything off the scene's cells."""
    first_item = codes.AGENT_WORDS * t.size[columns.AGENTS]
    for agent in range(t.size[columns.AGENTS]):
        s.agent_at[s.row[codes.AGENT_WORDS * agent + codes.CELL]] = -1
    opened = t.size[columns.CELLS] + t.size[columns.AGENTS]
    for item in range(t.size[columns.ITEMS]):
        place = s.row[first_item + item]
        if place >= opened:
            place -= opened
        if 0 <= place < t.size[columns.CELLS]:
            s.item_at[place] = -1


@nested
def forward_category(t: Tables, s: Scene, agent: int) -> int:
    """Category by which a forward move is resolved."""
    base = codes.AGENT_WORDS * agent
    target = front_cell(t, s, agent)
    fixed = t.cell[target, columns.FIXED] if target >= 0 else -1
    if fixed >= 0:
        kind = t.fixed[fixed, columns.FIXED_KIND]
        if (
            kind == codes.MAGIC_WALL
            and t.agent[agent, columns.ENTERS_MAGIC]
            and s.row[t.fixed[fixed, columns.WORD]]
        ):
            side = t.fixed[fixed, columns.SIDE]
            if side == codes.ANY_SIDE or side == (s.row[base + codes.DIRECTION] + 2) % 4:
                return WALL_ENTERER
        if (
            kind == codes.BUSH
            and not t.agent[agent, columns.TRAMPLES]
            and s.row[t.fixed[fixed, columns.WORD]] == 0
            and t.chance[fixed, columns.ENTER] < 1
        ):
            return BUSH_ENTERER
    cell = s.row[base + codes.CELL]
    if t.cell[cell, columns.TERRAIN] == codes.UNSTEADY and (
        t.stumble[cell] > 0 or t.size[columns.REFERENCE]
    ):
        return STUMBLER
    return NORMAL


@nested
def intend_toggle(t: Tables, s: Scene, p: Intents, agent: int, action: int, target: int) -> None:
    """Intent of toggling ``target``: cells contested, and what it stops, disables and uses."""
    if s.agent_at[target] >= 0:
        return
    item = s.item_at[target]
    if item >= 0:
        opened = (
            s.row[codes.AGENT_WORDS * t.size[columns.AGENTS] + item]
            >= t.size[columns.CELLS] + t.size[columns.AGENTS]
        )
        if not t.size[columns.REFERENCE] and t.item[item, columns.KIND] == codes.BOX and not opened:
            p.contest[agent, action] = target
        return
    fixed = t.cell[target, columns.FIXED]
    if fixed < 0:
        return
    kind = t.fixed[fixed, columns.FIXED_KIND]
    if kind == codes.DOOR and not t.size[columns.REFERENCE]:
        p.contest[agent, action] = target
    if kind >= codes.KILL_BUTTON:
        p.uses[agent, action] = kind
    if t.agent[agent, columns.COLOUR] != t.fixed[fixed, columns.ACTOR_COLOUR]:
        return
    if kind == codes.DISABLING_SWITCH:
        p.disables[agent, action] = t.fixed[fixed, columns.TARGET]
    elif (kind == codes.KILL_BUTTON and s.row[t.fixed[fixed, columns.WORD]] & columns.ENABLED) or (
        kind == codes.PAUSE_SWITCH and s.row[t.fixed[fixed, columns.WORD]] & columns.SWITCH_ENABLED
    ):
        p.stops[agent, action] = t.fixed[fixed, columns.TARGET]


@inlined
def intend_action(t: Tables, s: Scene, p: Intents, agent: int, action: int) -> None:
    """Work out what one agent's action comes to; the scene shows the state."""
    code = t.action[action]
    acting = is_acting(s, agent)
    p.category[agent, action] = NORMAL if acting and code != codes.STILL else IDLE
    p.contest[agent, action] = -1
    p.stops[agent, action] = -1
    p.disables[agent, action] = -1
    p.uses[agent, action] = -1
    if not acting:
        return
    target = front_cell(t, s, agent)
    if code == codes.FORWARD:
        p.category[agent, action] = forward_category(t, s, agent)
        p.contest[agent, action] = contested_cell(t, s, agent)
    elif target < 0:
        return
    elif code == codes.PICKUP:
        if s.item_at[target] >= 0 and not is_pushable(t, s.item_at[target]):
            p.contest[agent, action] = target
    elif code == codes.DROP:
        if s.agent_at[target] >= 0 or not t.size[columns.REFERENCE]:
            p.contest[agent, action] = target
    elif code == codes.TOGGLE:
        intend_toggle(t, s, p, agent, action, target)


@nested
def begin(t: Tables, s: Scene, p: Intents) -> None:
    """Load the scene with the state, and remember who stood where and how the step begins."""
    load(t, s, s.state)
    for word in range(len(s.state)):
        p.start[word] = s.state[word]
    for agent in range(t.size[columns.AGENTS]):
        base = codes.AGENT_WORDS * agent
        if t.size[columns.REFERENCE] or is_acting(s, agent):
            p.start[base + codes.FORCED] = 0
        if s.row[base + codes.FLAGS] & codes.TERMINATED == 0:
            s.start_at[s.state[base + codes.CELL]] = agent


@nested
def find_intents(t: Tables, s: Scene, p: Intents) -> None:
    """Work out what each agent's actions come to; leaves the scene loaded with the state."""
    begin(t, s, p)
    for agent in range(t.size[columns.AGENTS]):
        for action in range(len(t.action)):
            intend_action(t, s, p, agent, action)


@nested
def executed(t: Tables, s: Scene, agent: int, action: int) -> int:
    """The action that an agent executes: the chosen one, unless another is forced on it."""
    base = codes.AGENT_WORDS * agent
    able = (
        t.size[columns.REFERENCE]
        or s.state[base + codes.FLAGS] & (codes.TERMINATED | codes.PAUSED) == 0
    )
    return s.state[base + codes.FORCED] - 1 if able and s.state[base + codes.FORCED] > 0 else action


@nested
def is_available(t: Tables, s: Scene, chosen: Ints) -> bool:
    """True if every agent has its chosen action in the cell where it stands."""
    for agent in range(t.size[columns.AGENTS]):
        if not t.mask[agent, s.state[codes.AGENT_WORDS * agent + codes.CELL], chosen[agent]]:
            return False
    return True


@nested
def advance(chosen: Ints, choices: int) -> bool:
    """Go on to the next joint action; agent 0 counts fastest. True if that is the first again."""
    for agent in range(len(chosen)):
        chosen[agent] += 1
        if chosen[agent] < choices:
            return False
        chosen[agent] = 0
    return True


@nested
def forget(t: Tables, s: Scene) -> None:
    """Leave the scene empty for the next state."""
    unload(t, s)
    for agent in range(t.size[columns.AGENTS]):
        s.start_at[s.state[codes.AGENT_WORDS * agent + codes.CELL]] = -1
