"""The fast path: joint actions whose parts cannot get in each other's way; compiled.

Most joint actions are a set of actions that have nothing to do with one another. Each agent's
action is then played out once per state, alone, and what it changes is kept as a *delta*; a
joint action whose parts touch different cells follows by applying the deltas, and its chances
multiply. Everything else goes the long way (``outcomes.play_out``). Both ways must agree, and
the tests compare them with a plain reference.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_core.compilation import nested
from empo_multigrid import effects as columns
from empo_multigrid import layout as codes
from empo_multigrid.effects import Scene, Tables, is_pushable, perform
from empo_multigrid.intents import (
    IDLE,
    NORMAL,
    STUMBLER,
    WALL_ENTERER,
    Intents,
    advance,
    executed,
    is_available,
    load,
    unload,
)
from empo_multigrid.layout import Bools, Floats, Ints
from empo_multigrid.outcomes import (
    MAX_OUTCOMES,
    Listing,
    RandomEvents,
    Workspace,
    enter,
    list_outcomes,
    sort_items,
    stumble,
)

Indices = NDArray[np.uint16]

MAX_DELTA = 8
MAX_TOUCHED = 8


class IndependentEffects(NamedTuple):
    """Effect of each agent's action where no other agent interferes.

    Attributes:
        outcomes: How many ways it can turn out; 0 where the fast path must not be used
            [agent action].
        chance: Probability of each way [agent action outcome].
        length: How many words it changes [agent action outcome].
        word: Which words [agent action outcome change].
        value: Their new values [agent action outcome change].
        moves_item: Whether it moves an item, which may unsort the row [agent action].
        touched: Cells it reads or changes [agent action touched].
        touches: How many those are [agent action].
        clash: Whether two agents' actions touch a common cell [agent action agent action].
        action: Scratch [agent].
        way: Scratch [agent].
    """

    outcomes: Ints
    chance: Floats
    length: Ints
    word: Indices
    value: Ints
    moves_item: Bools
    touched: Ints
    touches: Ints
    clash: Bools
    action: Indices
    way: Indices


def empty_effects(agents: int, actions: int) -> IndependentEffects:
    """Scratch for a world of this size."""
    shape = (agents, actions)
    ways = (*shape, MAX_OUTCOMES)
    outcomes, touches = np.zeros((2, *shape), np.int16)
    # Unsigned, so that compiled code need not ask whether an index counts from the end.
    action, way = np.zeros((2, agents), np.uint16)
    return IndependentEffects(
        outcomes=outcomes,
        chance=np.zeros(ways),
        length=np.zeros(ways, np.int16),
        word=np.zeros((*ways, MAX_DELTA), np.uint16),
        value=np.zeros((*ways, MAX_DELTA), np.int16),
        moves_item=np.zeros(shape, np.bool_),
        touched=np.zeros((*shape, MAX_TOUCHED), np.int16),
        touches=touches,
        clash=np.zeros((*shape, *shape), np.bool_),
        action=action,
        way=way,
    )


@nested
def touch(solo: IndependentEffects, agent: int, action: int, cell: int) -> None:
    """Note a cell; too many of them rule the fast path out."""
    number = solo.touches[agent, action]
    if number < MAX_TOUCHED:
        solo.touched[agent, action, number] = cell
    solo.touches[agent, action] = number + 1


@nested
def touch_path(
    t: Tables, s: Scene, solo: IndependentEffects, agent: int, action: int, direction: int
) -> None:
    """Note what moving in a direction may touch: its target, what it pushes, its own cell."""
    cell = t.cell[s.row[codes.AGENT_WORDS * agent + codes.CELL], columns.NEIGHBOUR + direction]
    # An agent in front blocks the way whatever it does: none may follow into its cell.
    if cell < 0 or s.agent_at[cell] >= 0:
        return
    while cell >= 0 and s.item_at[cell] >= 0 and is_pushable(t, s.item_at[cell]):
        touch(solo, agent, action, cell)
        cell = t.cell[cell, columns.NEIGHBOUR + direction]
    if cell >= 0:
        touch(solo, agent, action, cell)
    touch(solo, agent, action, s.row[codes.AGENT_WORDS * agent + codes.CELL])


@nested
def is_recorded(t: Tables, s: Scene, agent: int) -> bool:
    """True if some control button waits for this agent's action."""
    if t.size[columns.CONTROLS]:
        for fixed in range(t.size[columns.FIXTURES]):
            if t.fixed[fixed, columns.FIXED_KIND] == codes.CONTROL_BUTTON:
                state = s.row[t.fixed[fixed, columns.WORD]]
                if (
                    state & columns.AWAITING
                    and (state & columns.PROGRAMMED_MASK) >> codes.PROGRAMMED_SHIFT == agent + 1
                ):
                    return True
    return False


@nested
def find_touched(
    t: Tables, s: Scene, p: Intents, solo: IndependentEffects, agent: int, action: int
) -> None:
    """Note every cell that decides what an action does, or that it changes."""
    base = codes.AGENT_WORDS * agent
    code = t.action[action]
    direction = s.row[base + codes.DIRECTION]
    solo.touches[agent, action] = 0
    if code == codes.FORWARD:
        touch_path(t, s, solo, agent, action, direction)
        if p.category[agent, action] == STUMBLER:
            touch_path(t, s, solo, agent, action, (direction + 1) % 4)
            touch_path(t, s, solo, agent, action, (direction + 3) % 4)
    elif code in (codes.PICKUP, codes.DROP, codes.TOGGLE):
        cell = t.cell[s.row[base + codes.CELL], columns.NEIGHBOUR + direction]
        if cell >= 0:
            touch(solo, agent, action, cell)


@nested
def keep_delta(
    t: Tables, s: Scene, p: Intents, solo: IndependentEffects, events: RandomEvents, agent: int
) -> bool:
    """Keep what the scene shows as one outcome of the agent's action; False if too long."""
    action, ways = events.action[agent], solo.outcomes[agent, events.action[agent]]
    first_item = codes.AGENT_WORDS * t.size[columns.AGENTS]
    length = 0
    for word in range(len(p.start)):
        if s.row[word] != p.start[word]:
            if length == MAX_DELTA:
                return False
            solo.word[agent, action, ways, length] = word
            solo.value[agent, action, ways, length] = s.row[word]
            length += 1
            if first_item <= word < first_item + t.size[columns.ITEMS]:
                solo.moves_item[agent, action] = True
    chance = 1.0
    if events.category[agent] > NORMAL:
        chance = events.chance[agent, events.digit[agent]]
    for way in range(ways):
        same = solo.length[agent, action, way] == length
        for i in range(length):
            if not same:
                break
            same = (
                solo.word[agent, action, way, i] == solo.word[agent, action, ways, i]
                and solo.value[agent, action, way, i] == solo.value[agent, action, ways, i]
            )
        if same:
            solo.chance[agent, action, way] += chance
            return True
    solo.length[agent, action, ways] = length
    solo.chance[agent, action, ways] = chance
    solo.outcomes[agent, action] = ways + 1
    return True


@nested
def turns(t: Tables, p: Intents, solo: IndependentEffects, agent: int, action: int) -> bool:
    """Keep the outcome of doing nothing or turning, if that is what the action is."""
    code = t.action[action]
    if p.category[agent, action] != IDLE and code != codes.LEFT and code != codes.RIGHT:
        return False
    solo.outcomes[agent, action] = 1
    solo.chance[agent, action, 0] = 1.0
    solo.length[agent, action, 0] = 0
    if p.category[agent, action] != IDLE:
        word = codes.AGENT_WORDS * agent + codes.DIRECTION
        solo.length[agent, action, 0] = 1
        solo.word[agent, action, 0, 0] = word
        solo.value[agent, action, 0, 0] = (p.start[word] + (3 if code == codes.LEFT else 1)) % 4
    return True


@nested
def play_alone(
    t: Tables,
    s: Scene,
    p: Intents,
    solo: IndependentEffects,
    events: RandomEvents,
    agent: int,
    action: int,
) -> None:
    """Find every outcome of one agent's action while all others do nothing."""
    solo.outcomes[agent, action] = 0
    solo.moves_item[agent, action] = False
    if (
        solo.touches[agent, action] > MAX_TOUCHED
        or p.uses[agent, action] >= 0
        or is_recorded(t, s, agent)
        # Whether the reference tries a wall at all depends on who else acts.
        or (t.size[columns.REFERENCE] and p.category[agent, action] == WALL_ENTERER)
        or turns(t, p, solo, agent, action)
    ):
        return
    for other in range(t.size[columns.AGENTS]):
        events.category[other] = IDLE
    events.category[agent] = p.category[agent, action]
    events.action[agent] = action
    events.digit[agent] = 0
    events.size[agent] = 1
    if events.category[agent] > NORMAL:
        list_outcomes(t, s, events, agent)
    ways = events.size[agent]
    unload(t, s)
    for way in range(ways):
        events.digit[agent] = way
        load(t, s, p.start)
        if events.category[agent] == NORMAL:
            perform(t, s, agent, action)
        elif events.category[agent] == STUMBLER:
            stumble(t, s, events)
        else:
            enter(t, s, events, events.category[agent])
        kept = keep_delta(t, s, p, solo, events, agent)
        unload(t, s)
        if not kept:
            solo.outcomes[agent, action] = 0
            break
    load(t, s, p.start)


@nested
def clashes(solo: IndependentEffects, i: int, a: int, j: int, b: int) -> bool:
    """True if two actions touch a common cell."""
    for x in range(solo.touches[i, a]):
        for y in range(solo.touches[j, b]):
            if solo.touched[i, a, x] == solo.touched[j, b, y]:
                return True
    return False


@nested
def find_independent_effects(
    t: Tables, s: Scene, p: Intents, solo: IndependentEffects, events: RandomEvents
) -> None:
    """Play every agent's every action alone; the scene shows the state, before and after."""
    number, actions = t.size[columns.AGENTS], len(t.action)
    for agent in range(number):
        for action in range(actions):
            find_touched(t, s, p, solo, agent, action)
            play_alone(t, s, p, solo, events, agent, action)
    for i in range(number):
        for j in range(i):
            for a in range(actions):
                for b in range(actions):
                    clash = (
                        solo.outcomes[i, a] == 0
                        or solo.outcomes[j, b] == 0
                        or clashes(solo, i, a, j, b)
                    )
                    solo.clash[i, a, j, b] = clash


@nested
def expand_independent(
    t: Tables, work: Workspace, solo: IndependentEffects, first: int, listing: Listing
) -> int:
    """Append the successors of a state's joint actions while these are independent.

    ``work.chosen`` is the joint action to begin with, ``first`` the position of its pair.
    Returns how many pairs were done; it stops before one that is not independent, and before
    one that might not fit. ``work.chosen`` is then that pair's joint action.
    """
    s, p, chosen = work.scene, work.intents, work.chosen
    offsets, rows, probs = listing.offsets, listing.rows, listing.probs
    number, choices, words = t.size[columns.AGENTS], len(t.action), len(p.start)
    joint = 1
    for _ in range(number):
        joint *= choices
    pair = 0
    for agent in range(number - 1, -1, -1):
        pair = pair * choices + chosen[agent]
    done = 0
    count = offsets[first]
    while pair < joint:
        ways = 1
        for agent in range(number):
            action = np.uint16(executed(t, s, agent, chosen[agent]))
            solo.action[agent] = action
            solo.way[agent] = 0
            ways *= solo.outcomes[agent, action]
            for other in range(agent):
                if solo.clash[agent, action, other, solo.action[other]]:
                    ways = 0
        if ways == 0 or count + ways > len(rows):
            break
        if t.size[columns.MASKED] and not is_available(t, s, chosen):
            ways = 0
        for _ in range(ways):
            at = np.uint64(count)
            for word in range(words):
                rows[at, word] = p.start[word]
            prob = 1.0
            unsorted = False
            for agent in range(number):
                action, way = solo.action[agent], solo.way[agent]
                prob *= solo.chance[agent, action, way]
                for i in range(solo.length[agent, action, way]):
                    rows[at, solo.word[agent, action, way, i]] = solo.value[agent, action, way, i]
                unsorted |= solo.moves_item[agent, action]
            if unsorted:
                sort_items(t, rows, count)
            probs[at] = prob
            count += 1
            if ways == 1:
                break
            for agent in range(number):
                solo.way[agent] += 1
                if solo.way[agent] < solo.outcomes[agent, solo.action[agent]]:
                    break
                solo.way[agent] = 0
        done += 1
        pair += 1
        offsets[first + done] = count
        advance(chosen, choices)
    return done
