"""Drawing one successor per state, without listing what cannot happen; compiled.

Most joint actions leave nothing to chance, and are played out once, straight into the answer.
Where chance decides, all successors of the one joint action are listed as ``kernel`` lists them,
and one is picked. The answers are those of picking from ``kernel.transitions``.
"""

from __future__ import annotations

from empo_multigrid.law.effects import AGENTS, MASKED, REFERENCE, Tables
from empo_multigrid.law.intents import (
    NORMAL,
    begin,
    executed,
    forget,
    intend_action,
    is_available,
    unload,
)
from empo_multigrid.law.outcomes import (
    Workspace,
    act_in_turn,
    form_blocks,
    is_sequential,
    list_outcomes,
    play_out,
    sort_items,
)
from empo_multigrid.layout import AGENT_WORDS, FORCED, Floats, Ints, Longs
from empo_worlds.compilation import compiled, nested


@nested
def pick(rows: Ints, probs: Floats, count: int, uniform: float, out: Ints, at: int) -> None:
    """Copy one of the first ``count`` rows, as a number in [0, 1) says."""
    item = 0
    remainder = uniform - probs[0]
    while remainder >= 0 and item < count - 1:
        item += 1
        remainder -= probs[item]
    for word in range(out.shape[1]):
        out[at, word] = rows[item, word]


@nested
def draw_state(
    t: Tables, work: Workspace, uniform: float, rows: Ints, probs: Floats, out: Ints, at: int
) -> bool:
    """Replace ``out[at]`` by a successor of the scene's state; False where ``rows`` is too short.

    Where an action is not available, nothing follows, and ``out`` stays as it is.
    """
    s, p, events, chosen = work.scene, work.intents, work.events, work.chosen
    if t.size[MASKED] and not is_available(t, s, chosen):
        return True
    number = t.size[AGENTS]
    begin(t, s, p)
    for agent in range(number):
        action = executed(t, s, agent, chosen[agent])
        intend_action(t, s, p, agent, action)
        events.action[agent] = action
        events.category[agent] = p.category[agent, action]
    fits = True
    sequential = t.size[REFERENCE] > 0 and is_sequential(t, s, events)
    if sequential or not form_blocks(t, p, events):
        # The scene shows the state already; all that differs are actions no longer forced.
        for agent in range(number):
            s.row[AGENT_WORDS * agent + FORCED] = p.start[AGENT_WORDS * agent + FORCED]
        act_in_turn(t, s, events, sequential)
        for word in range(len(s.row)):
            out[at, word] = s.row[word]
        sort_items(t, out, at)
    else:
        for agent in range(number):
            events.size[agent] = 1
            if events.category[agent] > NORMAL:
                list_outcomes(t, s, events, agent)
        unload(t, s)
        count = play_out(t, s, p, events, rows, probs, 0)
        fits = count >= 0
        if fits:
            pick(rows, probs, count, uniform, out, at)
    forget(t, s)
    return fits


@compiled
def draw(
    t: Tables,
    work: Workspace,
    states: Ints,
    actions: Longs,
    uniform: Floats,
    first: int,
    rows: Ints,
    probs: Floats,
    out: Ints,
) -> int:
    """Draw a successor of each state from ``first`` on; the first with too many, or how many."""
    for state in range(first, len(states)):
        for word in range(len(work.scene.state)):
            work.scene.state[word] = states[state, word]
        for agent in range(t.size[AGENTS]):
            work.chosen[agent] = actions[state, agent]
        if not draw_state(t, work, uniform[state], rows, probs, out, state):
            return state
    return len(states)
