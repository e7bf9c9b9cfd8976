# mypy: disable-error-code="no-any-return"
"""Random outcomes of one joint action, with their probabilities; compiled.

Conflict winners and individual luck are independent (section C.5 of the transition law); every
combination is played out on a scene, and equal successors are merged.
"""

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
    move_agent,
    move_forward,
    perform,
    record,
    vacant,
)
from empo_multigrid.law.intents import (
    BUSH_ENTERER,
    IDLE,
    NORMAL,
    STUMBLER,
    WALL_ENTERER,
    Intents,
    load,
    unload,
)
from empo_multigrid.layout import Floats, Ints, Longs
from empo_worlds.compilation import nested

# What an individual outcome lets the agent do.
WALK, SUCCEED, FAIL, SOLIDIFIED = range(4)
MAX_OUTCOMES = 5


class RandomEvents(NamedTuple):
    """Random events of one joint action.

    Attributes:
        action: The executed action of each agent [agent].
        category: [agent].
        block: First member of each normal agent's conflict block [agent].
        size: How many alternatives each source of randomness has: individual luck of each
            agent, then the winners of the blocks that start at each agent [2 agent].
        digit: The alternative at hand of each source [2 agent].
        chance: Probability of each individual outcome [agent outcome].
        turn: Turn taken before it [agent outcome].
        effect: ``WALK`` ... ``SOLIDIFIED`` [agent outcome].
        cell: Scratch [agent].
    """

    action: Ints
    category: Ints
    block: Ints
    size: Ints
    digit: Ints
    chance: Floats
    turn: Ints
    effect: Ints
    cell: Ints


class Workspace(NamedTuple):
    """Scratch for expanding or drawing one state at a time.

    Attributes:
        scene: The state being worked on.
        intents: Intended effect of each agent's actions in it.
        events: Random events of the joint action being worked on.
        chosen: That joint action [agent].
    """

    scene: Scene
    intents: Intents
    events: RandomEvents
    chosen: Ints


class Listing(NamedTuple):
    """Successors in CSR form, filled from the front; see ``empo_core.types.Expansion``.

    Attributes:
        offsets: Start of each pair's items; right up to the last pair listed [pair + 1].
        outcome: The outcome of each item [item].
        rows: [outcome word].
        probs: [outcome].
        used: How many outcomes the states listed so far have [1].
    """

    offsets: Longs
    outcome: Longs
    rows: Ints
    probs: Floats
    used: Longs


def empty_events(agents: int) -> RandomEvents:
    """Scratch for a world with this many agents."""
    action, category, block, cell = np.zeros((4, agents), np.int16)
    size, digit = np.zeros((2, 2 * agents), np.int16)
    turn, effect = np.zeros((2, agents, MAX_OUTCOMES), np.int16)
    chance = np.zeros((agents, MAX_OUTCOMES))
    return RandomEvents(action, category, block, size, digit, chance, turn, effect, cell)


@nested
def interact(t: Tables, p: Intents, events: RandomEvents, i: int, j: int) -> bool:
    """True if the order of two normal agents' actions may matter to the law."""
    a, b = events.action[i], events.action[j]
    if p.contest[i, a] >= 0 and p.contest[i, a] == p.contest[j, b]:
        return True
    if p.stops[i, a] >= 0 and p.stops[i, a] == t.agent[j, columns.COLOUR]:
        return True
    if p.stops[j, b] >= 0 and p.stops[j, b] == t.agent[i, columns.COLOUR]:
        return True
    if t.size[columns.REFERENCE]:
        return False
    if p.disables[i, a] >= 0 and (
        p.disables[i, a] == p.uses[j, b] or p.disables[i, a] == p.disables[j, b]
    ):
        return True
    return p.disables[j, b] >= 0 and p.disables[j, b] == p.uses[i, a]


@nested
def is_sequential(t: Tables, s: Scene, events: RandomEvents) -> bool:
    """True if the reference's shortcut applies: everybody acts in index order."""
    active, busy, lucky, only_any_side = 0, 0, 0, True
    for agent in range(t.size[columns.AGENTS]):
        if events.category[agent] == IDLE:
            continue
        active += 1
        code = t.action[events.action[agent]]
        busy += code != codes.LEFT and code != codes.RIGHT
        if events.category[agent] > NORMAL:
            lucky += 1
            tries = events.category[agent] == WALL_ENTERER
            fixed = t.cell[front_cell(t, s, agent), columns.FIXED] if tries else -1
            if fixed < 0 or t.fixed[fixed, columns.SIDE] != codes.ANY_SIDE:
                only_any_side = False
    # The shortcut for a lone agent overlooks magic walls that can be entered from any side.
    if active <= 1 and (lucky == 0 or only_any_side):
        return True
    return busy < 2 and lucky == 0


@nested
def add_outcome(events: RandomEvents, agent: int, prob: float, turn: int, effect: int) -> None:
    """Append an individual outcome, unless it is impossible."""
    if prob > 0:
        k = events.size[agent]
        events.chance[agent, k] = prob
        events.turn[agent, k] = turn
        events.effect[agent, k] = effect
        events.size[agent] = k + 1


@nested
def list_outcomes(t: Tables, s: Scene, events: RandomEvents, agent: int) -> None:
    """The individual outcomes of an agent whose move depends on luck."""
    events.size[agent] = 0
    base = codes.AGENT_WORDS * agent
    if events.category[agent] == STUMBLER:
        stumble = t.stumble[s.row[base + codes.CELL]]
        add_outcome(events, agent, 1 - stumble, 0, WALK)
        for turn in (3, 1):
            direction = (s.row[base + codes.DIRECTION] + turn) % 4
            target = t.cell[s.row[base + codes.CELL], columns.NEIGHBOUR + direction]
            fixed = t.cell[target, columns.FIXED] if target >= 0 else -1
            if (
                fixed >= 0
                and not t.size[columns.REFERENCE]
                and t.fixed[fixed, columns.FIXED_KIND] == codes.BUSH
                and not t.agent[agent, columns.TRAMPLES]
                and s.row[t.fixed[fixed, columns.WORD]] == 0
                and t.chance[fixed, columns.ENTER] < 1
            ):
                enter = t.chance[fixed, columns.ENTER]
                add_outcome(events, agent, stumble / 2 * enter, turn, SUCCEED)
                add_outcome(events, agent, stumble / 2 * (1 - enter), turn, FAIL)
            else:
                add_outcome(events, agent, stumble / 2, turn, WALK)
        return
    fixed = t.cell[front_cell(t, s, agent), columns.FIXED]
    enter, solidify = t.chance[fixed, columns.ENTER], t.chance[fixed, columns.SOLIDIFY]
    if events.category[agent] == BUSH_ENTERER:
        solidify = 0.0
    add_outcome(events, agent, enter, 0, SUCCEED)
    add_outcome(events, agent, (1 - enter) * (1 - solidify), 0, FAIL)
    add_outcome(events, agent, (1 - enter) * solidify, 0, SOLIDIFIED)


@nested
def form_blocks(t: Tables, p: Intents, events: RandomEvents) -> bool:
    """Group normal agents whose actions interact; whether anything is left to chance."""
    number = t.size[columns.AGENTS]
    random = False
    for agent in range(number):
        events.block[agent] = agent
        events.size[number + agent] = 1
        if events.category[agent] > NORMAL:
            random = True
        if events.category[agent] != NORMAL:
            continue
        for other in range(agent):
            old, new = events.block[agent], events.block[other]
            if events.category[other] != NORMAL or old == new:
                continue
            if interact(t, p, events, agent, other):
                random = True
                low, high = min(old, new), max(old, new)
                for member in range(agent + 1):
                    if events.block[member] == high:
                        events.block[member] = low
    if random:
        for agent in range(number):
            events.size[number + agent] = 0
        for agent in range(number):
            if events.category[agent] == NORMAL:
                events.size[number + events.block[agent]] += 1
        for agent in range(number):
            events.size[number + agent] = max(events.size[number + agent], 1)
    return random


@nested
def act_normally(t: Tables, s: Scene, events: RandomEvents) -> None:
    """The winner of each block acts, block by block; then everybody else by index."""
    number = t.size[columns.AGENTS]
    for agent in range(number):
        events.cell[agent] = 0  # 1 once it has acted
    for first in range(number):
        if events.category[first] != NORMAL or events.block[first] != first:
            continue
        rank = events.digit[number + first]
        for agent in range(first, number):
            if events.category[agent] == NORMAL and events.block[agent] == first:
                if rank == 0:
                    perform(t, s, agent, events.action[agent])
                    events.cell[agent] = 1
                    break
                rank -= 1
    for agent in range(number):
        if events.category[agent] == NORMAL and not events.cell[agent]:
            perform(t, s, agent, events.action[agent])


@nested
def act_in_turn(t: Tables, s: Scene, events: RandomEvents, released: bool) -> None:
    """All agents act by index; ``released`` are also those that stop being paused on the way."""
    for agent in range(t.size[columns.AGENTS]):
        if events.category[agent] != IDLE or (
            released and t.action[events.action[agent]] != codes.STILL
        ):
            perform(t, s, agent, events.action[agent])


@nested
def stumble(t: Tables, s: Scene, events: RandomEvents) -> None:
    """Stumblers turn, then move where no other stumbler wants to go."""
    number = t.size[columns.AGENTS]
    for agent in range(number):
        if events.category[agent] == STUMBLER and is_acting(s, agent):
            base, k = codes.AGENT_WORDS * agent, events.digit[agent]
            s.row[base + codes.DIRECTION] = (
                s.row[base + codes.DIRECTION] + events.turn[agent, k]
            ) % 4
    for agent in range(number):
        events.cell[agent] = -1
        if events.category[agent] == STUMBLER and is_acting(s, agent):
            effect = events.effect[agent, events.digit[agent]]
            if effect == WALK:
                events.cell[agent] = contested_cell(t, s, agent)
            elif effect == SUCCEED:
                events.cell[agent] = front_cell(t, s, agent)
    for agent in range(number):
        if events.category[agent] != STUMBLER or not is_acting(s, agent):
            continue
        alone = events.cell[agent] >= 0
        for other in range(number):
            if other != agent and events.cell[other] == events.cell[agent]:
                alone = False
        if alone:
            if events.effect[agent, events.digit[agent]] == WALK:
                move_forward(t, s, agent)
            elif vacant(s, agent, events.cell[agent]):
                move_agent(t, s, agent, events.cell[agent])
        record(t, s, agent, events.action[agent], -1)


@nested
def enter(t: Tables, s: Scene, events: RandomEvents, category: int) -> None:
    """Agents that try to enter a magic wall or a bush do, or do not."""
    for agent in range(t.size[columns.AGENTS]):
        if events.category[agent] != category or not is_acting(s, agent):
            continue
        target = front_cell(t, s, agent)
        effect = events.effect[agent, events.digit[agent]]
        if effect == SUCCEED and vacant(s, agent, target):
            move_agent(t, s, agent, target)
        elif effect == SOLIDIFIED:
            s.row[t.fixed[t.cell[target, columns.FIXED], columns.WORD]] = 0
        record(t, s, agent, events.action[agent], -1)


@nested
def sort_items(t: Tables, rows: Ints, count: int) -> None:
    """Make a row canonical: items that cannot be told apart are listed in order of place."""
    start = codes.AGENT_WORDS * t.size[columns.AGENTS]
    for i in range(1, t.size[columns.ITEMS]):
        place, group = rows[count, start + i], t.item[i, columns.GROUP]
        j = i
        while (
            j > 0 and t.item[j - 1, columns.GROUP] == group and rows[count, start + j - 1] > place
        ):
            rows[count, start + j] = rows[count, start + j - 1]
            j -= 1
        rows[count, start + j] = place


@nested
def emit(
    t: Tables, s: Scene, prob: float, rows: Ints, probs: Floats, first: int, count: int
) -> int:
    """Append the scene's canonical row to the pair's successors, merging equal ones."""
    for word in range(len(s.row)):
        rows[count, word] = s.row[word]
    sort_items(t, rows, count)
    for earlier in range(first, count):
        same = True
        for word in range(len(s.row)):
            if rows[earlier, word] != rows[count, word]:
                same = False
                break
        if same:
            probs[earlier] += prob
            return count
    probs[count] = prob
    return count + 1


@nested
def play_out(
    t: Tables, s: Scene, p: Intents, events: RandomEvents, rows: Ints, probs: Floats, count: int
) -> int:
    """Append every successor that chance allows; -1 where ``rows`` is too short."""
    number = t.size[columns.AGENTS]
    first = count
    for source in range(2 * number):
        events.digit[source] = 0
    while True:
        if count >= len(rows):
            return -1
        prob = 1.0
        for agent in range(number):
            if events.category[agent] > NORMAL:
                prob *= events.chance[agent, events.digit[agent]]
            elif events.category[agent] == NORMAL and events.block[agent] == agent:
                prob /= events.size[number + agent]
        load(t, s, p.start)
        act_normally(t, s, events)
        stumble(t, s, events)
        enter(t, s, events, WALL_ENTERER)
        enter(t, s, events, BUSH_ENTERER)
        count = emit(t, s, prob, rows, probs, first, count)
        unload(t, s)
        source = 0
        while source < 2 * number:
            events.digit[source] += 1
            if events.digit[source] < events.size[source]:
                break
            events.digit[source] = 0
            source += 1
        if source == 2 * number:
            return count
