# mypy: disable-error-code="no-any-return"
"""Effect of one agent's action on a scene, as the transition law defines it; compiled.

A *scene* is a state being worked on: its row, and what stands in each cell. All functions
here change the scene in place and allocate nothing. ``reference_transition.py`` of the tests says
the same in plain Python; the two are tested against each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_multigrid import layout as codes
from empo_multigrid.layout import Bools, Floats, Ints
from empo_worlds.compilation import nested

# Columns of the tables.
TERRAIN, FIXED, NEIGHBOUR = range(3)  # four neighbours follow, one per direction
COLOUR, PUSHES_ROCKS, ENTERS_MAGIC, TRAMPLES = range(4)
KIND, ITEM_COLOUR, CONTENT_KIND, CONTENT_COLOUR, GROUP = range(5)
FIXED_KIND, WORD, ACTOR_COLOUR, TARGET, SIDE = range(5)
ENTER, SOLIDIFY = range(2)
CELLS, AGENTS, ITEMS, FIXTURES, REFERENCE, MASKED, CONTROLS = range(7)

# The word of a control button, see ``layout``.
ENABLED = 1
AWAITING = 2
PROGRAMMED_MASK = (1 << codes.RECORDED_SHIFT) - (1 << codes.PROGRAMMED_SHIFT)
RECORDED_MASK = -(1 << codes.RECORDED_SHIFT)
SWITCHED_ON = 1
SWITCH_ENABLED = 2


class Tables(NamedTuple):
    """A layout, packed into few arrays; columns are named above."""

    cell: Ints
    stumble: Floats
    agent: Ints
    item: Ints
    fixed: Ints
    chance: Floats
    action: Ints
    mask: Bools
    size: NDArray[np.int64]


class Scene(NamedTuple):
    """A state being worked on.

    Attributes:
        state: The row of the state that the step began in.
        row: The row as it is now, not canonical in between.
        agent_at: The agent in each cell, or -1.
        item_at: The item in each cell, or -1.
        start_at: The non-terminated agent in each cell when the step began, or -1.
    """

    state: Ints
    row: Ints
    agent_at: Ints
    item_at: Ints
    start_at: Ints


def empty_scene(words: int, cells: int) -> Scene:
    """Scratch for a world of this size."""
    return Scene(*np.zeros((2, words), np.int16), *np.full((3, cells), -1, np.int16))


@nested
def passable(t: Tables, s: Scene, cell: int) -> bool:
    """True if terrain and fixed objects let things into a cell."""
    if t.cell[cell, TERRAIN] == codes.WALL:
        return False
    fixed = t.cell[cell, FIXED]
    if fixed < 0:
        return True
    kind = t.fixed[fixed, FIXED_KIND]
    if kind == codes.DOOR:
        return s.row[t.fixed[fixed, WORD]] == codes.DOOR_OPEN
    return kind == codes.BUSH and s.row[t.fixed[fixed, WORD]] == 1


@nested
def vacant(s: Scene, agent: int, cell: int) -> bool:
    """True if nothing movable is in a cell, and no other agent was when the step began."""
    return (
        s.agent_at[cell] < 0
        and s.item_at[cell] < 0
        and (s.start_at[cell] < 0 or s.start_at[cell] == agent)
    )


@nested
def is_pushable(t: Tables, item: int) -> bool:
    """True if an item is a block or a rock."""
    return t.item[item, KIND] == codes.BLOCK or t.item[item, KIND] == codes.ROCK


@nested
def landing_cell(t: Tables, s: Scene, agent: int, cell: int, direction: int) -> int:
    """Cell in which the last of the pushables from ``cell`` onwards would land; -1 if it cannot."""
    while s.item_at[cell] >= 0:
        item = s.item_at[cell]
        if not is_pushable(t, item):
            return -1
        if t.item[item, KIND] == codes.ROCK and not t.agent[agent, PUSHES_ROCKS]:
            return -1
        cell = t.cell[cell, NEIGHBOUR + direction]
        if cell < 0:
            return -1
    return cell if vacant(s, agent, cell) and passable(t, s, cell) else -1


@nested
def front_cell(t: Tables, s: Scene, agent: int) -> int:
    """The cell an agent faces; -1 outside the grid."""
    base = codes.AGENT_WORDS * agent
    return t.cell[s.row[base + codes.CELL], NEIGHBOUR + s.row[base + codes.DIRECTION]]


@nested
def contested_cell(t: Tables, s: Scene, agent: int) -> int:
    """The cell that moving forward needs: its target, or where a pushed object lands."""
    target = front_cell(t, s, agent)
    if target >= 0 and s.item_at[target] >= 0 and is_pushable(t, s.item_at[target]):
        return landing_cell(t, s, agent, target, s.row[codes.AGENT_WORDS * agent + codes.DIRECTION])
    return target


@nested
def move_agent(t: Tables, s: Scene, agent: int, cell: int) -> None:
    """Put an agent into a cell; lava terminates it."""
    base = codes.AGENT_WORDS * agent
    s.agent_at[s.row[base + codes.CELL]] = -1
    s.agent_at[cell] = agent
    s.row[base + codes.CELL] = cell
    if t.cell[cell, TERRAIN] == codes.LAVA:
        s.row[base + codes.FLAGS] |= codes.TERMINATED


@nested
def move_forward(t: Tables, s: Scene, agent: int) -> None:
    """Walk, push or trample, where nothing is in the way."""
    target = front_cell(t, s, agent)
    if target < 0:
        return
    if s.item_at[target] >= 0:
        direction = s.row[codes.AGENT_WORDS * agent + codes.DIRECTION]
        hole = landing_cell(t, s, agent, target, direction)
        if hole < 0:
            return
        first_item = codes.AGENT_WORDS * t.size[AGENTS]
        while hole != target:
            behind = t.cell[hole, NEIGHBOUR + (direction + 2) % 4]
            item = s.item_at[behind]
            s.item_at[hole] = item
            s.row[first_item + item] = hole
            hole = behind
        s.item_at[target] = -1
        move_agent(t, s, agent, target)
        return
    if not vacant(s, agent, target):
        return
    if not passable(t, s, target):
        fixed = t.cell[target, FIXED]
        if fixed < 0 or t.fixed[fixed, FIXED_KIND] != codes.BUSH:
            return
        if t.agent[agent, TRAMPLES]:
            s.row[t.fixed[fixed, WORD]] = 1
    move_agent(t, s, agent, target)


@nested
def carried_item(t: Tables, s: Scene, agent: int) -> int:
    """The item an agent carries, or -1."""
    first_item = codes.AGENT_WORDS * t.size[AGENTS]
    hand = t.size[CELLS] + agent
    opened = t.size[CELLS] + t.size[AGENTS]
    for item in range(t.size[ITEMS]):
        place = s.row[first_item + item]
        if place == hand or place == hand + opened:
            return item
    return -1


@nested
def pick_up(t: Tables, s: Scene, agent: int) -> None:
    """Take the key, ball or box in front into empty hands."""
    target = front_cell(t, s, agent)
    if target < 0 or s.agent_at[target] >= 0 or s.item_at[target] < 0:
        return
    item = s.item_at[target]
    if is_pushable(t, item) or carried_item(t, s, agent) >= 0:
        return
    s.item_at[target] = -1
    s.row[codes.AGENT_WORDS * t.size[AGENTS] + item] += t.size[CELLS] + agent - target


@nested
def put_down(t: Tables, s: Scene, agent: int) -> None:
    """Drop what is carried onto the cell in front, if it is empty."""
    target = front_cell(t, s, agent)
    if target < 0 or s.agent_at[target] >= 0 or s.item_at[target] >= 0:
        return
    if not passable(t, s, target):
        return
    if not t.size[REFERENCE]:
        fixed = t.cell[target, FIXED]
        if not vacant(s, agent, target) or (
            fixed >= 0 and t.fixed[fixed, FIXED_KIND] == codes.DOOR
        ):
            return
    item = carried_item(t, s, agent)
    if item >= 0:
        s.item_at[target] = item
        s.row[codes.AGENT_WORDS * t.size[AGENTS] + item] += target - t.size[CELLS] - agent


@nested
def holds_key(t: Tables, s: Scene, agent: int, colour: int) -> bool:
    """True if an agent carries a key of a colour, be it out of an opened box."""
    item = carried_item(t, s, agent)
    if item < 0:
        return False
    opened = t.size[CELLS] + t.size[AGENTS]
    if s.row[codes.AGENT_WORDS * t.size[AGENTS] + item] >= opened:
        return t.item[item, CONTENT_KIND] == codes.KEY and t.item[item, CONTENT_COLOUR] == colour
    return t.item[item, KIND] == codes.KEY and t.item[item, ITEM_COLOUR] == colour


@nested
def set_flag(t: Tables, s: Scene, colour: int, flag: int, value: bool) -> None:
    """Set or clear a flag of all agents of a colour."""
    for agent in range(t.size[AGENTS]):
        if t.agent[agent, COLOUR] == colour:
            if value:
                s.row[codes.AGENT_WORDS * agent + codes.FLAGS] |= flag
            else:
                s.row[codes.AGENT_WORDS * agent + codes.FLAGS] &= ~flag


@nested
def toggle_box(t: Tables, s: Scene, item: int, cell: int) -> None:
    """Open a closed box: it becomes what it holds, or vanishes."""
    word = codes.AGENT_WORDS * t.size[AGENTS] + item
    opened = t.size[CELLS] + t.size[AGENTS]
    if t.item[item, KIND] != codes.BOX or s.row[word] >= opened:
        return
    if t.item[item, CONTENT_KIND] < 0:
        s.row[word] = codes.GONE
        s.item_at[cell] = -1
    else:
        s.row[word] += opened


@nested
def disable(t: Tables, s: Scene, kind: int) -> None:
    """Flip whether each object of a kind is enabled."""
    for fixed in range(t.size[FIXTURES]):
        if t.fixed[fixed, FIXED_KIND] != kind:
            continue
        word = t.fixed[fixed, WORD]
        if kind != codes.PAUSE_SWITCH:
            s.row[word] ^= ENABLED
            continue
        s.row[word] ^= SWITCH_ENABLED
        if not s.row[word] & SWITCH_ENABLED and s.row[word] & SWITCHED_ON:
            s.row[word] ^= SWITCHED_ON
            set_flag(t, s, t.fixed[fixed, TARGET], codes.PAUSED, False)


@nested
def toggle_control(t: Tables, s: Scene, agent: int, fixed: int) -> bool:
    """Start programming a control button, or trigger it; whether programming started."""
    word = t.fixed[fixed, WORD]
    state = s.row[word]
    if not state & ENABLED:
        return False
    colour = t.agent[agent, COLOUR]
    if colour == t.fixed[fixed, TARGET]:
        begun = ENABLED | AWAITING | ((agent + 1) << codes.PROGRAMMED_SHIFT)
        if t.size[REFERENCE]:
            if state & (AWAITING | PROGRAMMED_MASK) == begun & ~ENABLED:
                return False  # This toggle is the action that is waited for.
            begun |= state & RECORDED_MASK
        s.row[word] = begun
        return True
    if colour == t.fixed[fixed, ACTOR_COLOUR]:
        programmed = ((state & PROGRAMMED_MASK) >> codes.PROGRAMMED_SHIFT) - 1
        recorded = state >> codes.RECORDED_SHIFT
        if programmed >= 0 and recorded > 0:
            s.row[codes.AGENT_WORDS * programmed + codes.FORCED] = recorded
    return False


@nested
def toggle(t: Tables, s: Scene, agent: int) -> int:
    """Use the topmost thing in front; the control button whose programming began, or -1."""
    target = front_cell(t, s, agent)
    if target < 0 or s.agent_at[target] >= 0:
        return -1
    if s.item_at[target] >= 0:
        toggle_box(t, s, s.item_at[target], target)
        return -1
    fixed = t.cell[target, FIXED]
    if fixed < 0:
        return -1
    kind, word = t.fixed[fixed, FIXED_KIND], t.fixed[fixed, WORD]
    if kind == codes.DOOR:
        if s.row[word] == codes.DOOR_OPEN:
            s.row[word] = codes.DOOR_CLOSED
        elif s.row[word] == codes.DOOR_CLOSED or holds_key(
            t, s, agent, t.fixed[fixed, ACTOR_COLOUR]
        ):
            s.row[word] = codes.DOOR_OPEN
    elif kind == codes.CONTROL_BUTTON:
        if toggle_control(t, s, agent, fixed):
            return fixed
    elif t.agent[agent, COLOUR] == t.fixed[fixed, ACTOR_COLOUR]:
        if kind == codes.KILL_BUTTON and s.row[word] & ENABLED:
            set_flag(t, s, t.fixed[fixed, TARGET], codes.TERMINATED, True)
        elif kind == codes.PAUSE_SWITCH and s.row[word] & SWITCH_ENABLED:
            s.row[word] ^= SWITCHED_ON
            on = s.row[word] & SWITCHED_ON == SWITCHED_ON
            set_flag(t, s, t.fixed[fixed, TARGET], codes.PAUSED, on)
        elif kind == codes.DISABLING_SWITCH:
            disable(t, s, t.fixed[fixed, TARGET])
    return -1


@nested
def record(t: Tables, s: Scene, agent: int, action: int, begun: int) -> None:
    """Let control buttons that wait for this agent's action remember it."""
    if not t.size[CONTROLS]:
        return
    for fixed in range(t.size[FIXTURES]):
        if t.fixed[fixed, FIXED_KIND] != codes.CONTROL_BUTTON or fixed == begun:
            continue
        word = t.fixed[fixed, WORD]
        state = s.row[word]
        if state & AWAITING and (state & PROGRAMMED_MASK) >> codes.PROGRAMMED_SHIFT == agent + 1:
            flags = state & (ENABLED | PROGRAMMED_MASK)
            s.row[word] = flags | ((action + 1) << codes.RECORDED_SHIFT)


@nested
def is_acting(s: Scene, agent: int) -> bool:
    """True if an agent is neither terminated nor paused."""
    return s.row[codes.AGENT_WORDS * agent + codes.FLAGS] & (codes.TERMINATED | codes.PAUSED) == 0


@nested
def perform(t: Tables, s: Scene, agent: int, action: int) -> None:
    """One agent acts, unless it was stopped earlier in the step."""
    if not is_acting(s, agent):
        return
    code = t.action[action]
    begun = -1
    if code == codes.FORWARD:
        move_forward(t, s, agent)
    elif code == codes.LEFT:
        s.row[codes.AGENT_WORDS * agent + codes.DIRECTION] = (
            s.row[codes.AGENT_WORDS * agent + codes.DIRECTION] + 3
        ) % 4
    elif code == codes.RIGHT:
        s.row[codes.AGENT_WORDS * agent + codes.DIRECTION] = (
            s.row[codes.AGENT_WORDS * agent + codes.DIRECTION] + 1
        ) % 4
    elif code == codes.PICKUP:
        pick_up(t, s, agent)
    elif code == codes.DROP:
        put_down(t, s, agent)
    elif code == codes.TOGGLE:
        begun = toggle(t, s, agent)
    record(t, s, agent, action, begun)
