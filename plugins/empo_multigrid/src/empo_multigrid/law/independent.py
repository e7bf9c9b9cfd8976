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

from empo_multigrid import layout as codes
from empo_multigrid.law import effects as columns
from empo_multigrid.law.effects import Scene, Tables, is_pushable, perform
from empo_multigrid.law.intents import (
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
from empo_multigrid.law.outcomes import (
    MAX_OUTCOMES,
    Listing,
    RandomEvents,
    Workspace,
    enter,
    list_outcomes,
    sort_items,
    stumble,
)
from empo_multigrid.layout import Bools, Floats, Ints, Longs
from empo_worlds.compilation import inlined, nested

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
        sorts: Whether an action may unsort the row, because it moves an item [1].
        touched: Cells it reads or changes [agent action touched].
        touches: How many those are [agent action].
        clash: Actions of an agent before that touch a common cell, by bits [agent action agent].
        executed: The action that an agent executes for each that it may choose [agent action].
        like: The first action that has the same one effect [agent action].
        listed: The outcome of each joint action whose actions are the first of their effects; older
            than the state's other outcomes where it is not known [joint action].
        row: The state with the effects of all agents but the first [word].
        action: Scratch [agent].
        way: Scratch [agent].
    """

    outcomes: Ints
    chance: Floats
    length: Ints
    word: Indices
    value: Ints
    sorts: Bools
    touched: Ints
    touches: Ints
    clash: Longs
    executed: Indices
    like: Longs
    listed: Longs
    row: Ints
    action: Indices
    way: Indices


def empty_effects(agents: int, actions: int, words: int, joint: int) -> IndependentEffects:
    """Scratch for a world of this size, and for so many joint actions of a state."""
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
        sorts=np.zeros(1, np.bool_),
        touched=np.zeros((*shape, MAX_TOUCHED), np.int16),
        touches=touches,
        clash=np.zeros((*shape, agents), np.int64),
        executed=np.zeros(shape, np.uint16),
        like=np.zeros(shape, np.int64),
        listed=np.full(joint, -1),
        row=np.zeros(words, np.int16),
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


@inlined
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


@inlined
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
                solo.sorts[0] = True
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


@inlined
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


@inlined
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
    # Everything is where it was when the step began; only forced actions are no longer there.
    for word in range(len(p.start)):
        s.row[word] = p.start[word]
    for way in range(events.size[agent]):
        events.digit[agent] = way
        if events.category[agent] == NORMAL:
            perform(t, s, agent, action)
        elif events.category[agent] == STUMBLER:
            stumble(t, s, events)
        else:
            enter(t, s, events, events.category[agent])
        is_stored = keep_delta(t, s, p, solo, events, agent)
        unload(t, s)
        load(t, s, p.start)
        if not is_stored:
            solo.outcomes[agent, action] = 0
            break


@inlined
def note_like(solo: IndependentEffects, agent: int, action: int) -> None:
    """Note the first action with the same one effect, if chance has no part in it."""
    solo.like[agent, action] = action
    length = solo.length[agent, action, 0]
    for earlier in range(action):
        same = (
            solo.outcomes[agent, action] == 1
            and solo.outcomes[agent, earlier] == 1
            and solo.length[agent, earlier, 0] == length
        )
        for i in range(length):
            same = (
                same
                and solo.word[agent, earlier, 0, i] == solo.word[agent, action, 0, i]
                and solo.value[agent, earlier, 0, i] == solo.value[agent, action, 0, i]
            )
        if same:
            solo.like[agent, action] = earlier
            break


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
    solo.sorts[0] = False
    for agent in range(number):
        for action in range(actions):
            solo.executed[agent, action] = executed(t, s, agent, action)
            find_touched(t, s, p, solo, agent, action)
            play_alone(t, s, p, solo, events, agent, action)
            note_like(solo, agent, action)
    for i in range(number):
        for j in range(i):
            for a in range(actions):
                solo.clash[i, a, j] = 0
                for b in range(actions):
                    if clashes(solo, i, a, j, b):
                        solo.clash[i, a, j] |= 1 << b


@inlined
def combine(t: Tables, p: Intents, solo: IndependentEffects, chosen: Ints) -> tuple[int, int, int]:
    """How the actions of all agents but the first go together; ``solo.row`` shows their effects.

    Returns in how many ways they may act, 0 where they may get in each other's way; the joint
    action of the first of their effects; which actions of the first agent may interfere, by bits.
    """
    ways, joint, blocked = 1, 0, 0
    stride = len(t.action)
    for word in range(len(p.start)):
        solo.row[word] = p.start[word]
    for agent in range(1, t.size[columns.AGENTS]):
        action = solo.executed[agent, np.uint16(chosen[agent])]
        solo.action[agent] = action
        ways *= solo.outcomes[agent, action]
        for other in range(1, agent):
            if solo.clash[agent, action, other] >> solo.action[other] & 1:
                ways = 0
        blocked |= solo.clash[agent, action, 0]
        joint += solo.like[agent, action] * stride
        stride *= len(t.action)
        for i in range(solo.length[agent, action, 0]):
            solo.row[solo.word[agent, action, 0, i]] = solo.value[agent, action, 0, i]
    return ways, joint, blocked


@inlined
def append_certain(
    t: Tables, solo: IndependentEffects, listing: Listing, action: int, count: int
) -> None:
    """List what follows where chance has no part, and the first agent takes an action."""
    rows, at = listing.rows, np.uint64(count)
    for word in range(len(solo.row)):
        rows[at, word] = solo.row[word]
    for i in range(solo.length[0, action, 0]):
        rows[at, solo.word[0, action, 0, i]] = solo.value[0, action, 0, i]
    if solo.sorts[0]:
        sort_items(t, rows, count)
    listing.probs[at] = 1.0


@nested
def append_all(
    t: Tables, p: Intents, solo: IndependentEffects, listing: Listing, ways: int, count: int
) -> None:
    """List what follows in every combination of the agents' ways."""
    rows, number = listing.rows, t.size[columns.AGENTS]
    for agent in range(number):
        solo.way[agent] = 0
    for at in range(count, count + ways):
        for word in range(len(p.start)):
            rows[at, word] = p.start[word]
        prob = 1.0
        for agent in range(number):
            action, way = solo.action[agent], solo.way[agent]
            prob *= solo.chance[agent, action, way]
            for i in range(solo.length[agent, action, way]):
                rows[at, solo.word[agent, action, way, i]] = solo.value[agent, action, way, i]
        if solo.sorts[0]:
            sort_items(t, rows, at)
        listing.probs[at] = prob
        for agent in range(number):
            solo.way[agent] += 1
            if solo.way[agent] < solo.outcomes[agent, solo.action[agent]]:
                break
            solo.way[agent] = 0


@nested
def expand_independent(
    t: Tables, work: Workspace, solo: IndependentEffects, first: int, count: int, listing: Listing
) -> tuple[int, int]:
    """Append the successors of a state's joint actions while these are independent.

    ``work.chosen`` is the joint action to begin with, ``first`` the position of its pair, ``count``
    the number of outcomes so far. Returns how many pairs were done, and that number afterwards; it
    stops before a pair that is not independent, and before one that might not fit. ``work.chosen``
    is then that pair's joint action.
    """
    s, p, chosen = work.scene, work.intents, work.chosen
    offsets, outcome, oldest = listing.offsets, listing.outcome, listing.used[0]
    choices = len(t.action)
    pair, item = first, offsets[first]
    while True:
        others, base, blocked = combine(t, p, solo, chosen)
        while chosen[0] < choices:
            action = solo.executed[0, np.uint16(chosen[0])]
            solo.action[0] = action
            ways = 0 if blocked >> action & 1 else others * solo.outcomes[0, action]
            if ways == 0 or item + ways > len(outcome) or count + ways > len(listing.rows):
                return pair - first, count
            if t.size[columns.MASKED] and not is_available(t, s, chosen):
                ways = 0
            elif ways == 1:
                joint = base + solo.like[0, action]
                position = solo.listed[joint]
                if position < oldest:
                    append_certain(t, solo, listing, action, count)
                    solo.listed[joint] = position = count
                    count += 1
                outcome[item] = position
            else:
                append_all(t, p, solo, listing, ways, count)
                for way in range(ways):
                    outcome[item + way] = count + way
                count += ways
            item += ways
            pair += 1
            offsets[pair] = item
            chosen[0] += 1
        chosen[0] = choices - 1
        if advance(chosen, choices):
            return pair - first, count
