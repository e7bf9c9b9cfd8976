"""Batched exact transitions, compiled: who acts first, what chance decides, what follows.

For each (state, joint action) pair the kernel enumerates every combination of conflict
winners and individual luck (section C.5 of the transition law), plays each out on a scene
(``effects.py``), and merges equal successors. What depends on one agent's own action only is
worked out once per state, since all joint actions of the state share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from empo_multigrid import layout as codes
from empo_multigrid.law.effects import AGENTS, MASKED, REFERENCE, Scene, Tables, empty_scene
from empo_multigrid.law.independent import (
    IndependentEffects,
    empty_effects,
    expand_independent,
    find_independent_effects,
)
from empo_multigrid.law.intents import (
    NORMAL,
    Intents,
    advance,
    empty_intents,
    executed,
    find_intents,
    forget,
    is_available,
    load,
    unload,
)
from empo_multigrid.law.outcomes import (
    Listing,
    RandomEvents,
    Workspace,
    act_in_turn,
    emit,
    empty_events,
    form_blocks,
    is_sequential,
    list_outcomes,
    play_out,
)
from empo_multigrid.law.sampler import draw
from empo_multigrid.layout import Floats, Ints, Layout, Longs
from empo_worlds.compilation import compiled, nested


@nested
def expand_pair(
    t: Tables,
    s: Scene,
    p: Intents,
    events: RandomEvents,
    chosen: Ints,
    rows: Ints,
    probs: Floats,
    count: int,
) -> int:
    """Append the successors of one joint action; -1 where ``rows`` is too short.

    The scene shows the state, before and after.
    """
    if count >= len(rows):
        return -1
    number = t.size[AGENTS]
    if t.size[MASKED] and not is_available(t, s, chosen):
        return count
    for agent in range(number):
        events.action[agent] = executed(t, s, agent, chosen[agent])
        events.category[agent] = p.category[agent, events.action[agent]]
    sequential = t.size[REFERENCE] > 0 and is_sequential(t, s, events)
    if not sequential and form_blocks(t, p, events):
        for agent in range(number):
            events.size[agent] = 1
            if events.category[agent] > NORMAL:
                list_outcomes(t, s, events, agent)
        unload(t, s)
        count = play_out(t, s, p, events, rows, probs, count)
    else:
        unload(t, s)
        load(t, s, p.start)
        act_in_turn(t, s, events, sequential)
        count = emit(t, s, 1.0, rows, probs, count, count)
        unload(t, s)
    load(t, s, s.state)
    return count


@nested
def expand_state(
    t: Tables, work: Workspace, solo: IndependentEffects, first: int, joint: int, listing: Listing
) -> bool:
    """Append the successors of ``joint`` joint actions; False if there is no room for them.

    ``work.chosen`` is the joint action to begin with, ``first`` the position of its pair.
    """
    s, p, events, chosen = work.scene, work.intents, work.events, work.chosen
    offsets, index, rows, probs = listing.offsets, listing.outcome, listing.rows, listing.probs
    # Playing each action alone pays only where many joint actions share it.
    fast = joint > t.size[AGENTS] * len(t.action)
    find_intents(t, s, p)
    if fast:
        find_independent_effects(t, s, p, solo, events)
    pair, count = 0, listing.used[0]
    while pair < joint:
        if fast:
            done, count = expand_independent(t, work, solo, first + pair, count, listing)
            pair += done
            if pair == joint:
                break
        last = expand_pair(t, s, p, events, chosen, rows, probs, count)
        item = offsets[first + pair]
        if last < 0 or item + last - count > len(index):
            return False
        while count < last:
            index[item] = count
            item += 1
            count += 1
        pair += 1
        offsets[first + pair] = item
        advance(chosen, len(t.action))
    listing.used[0] = count
    return True


@compiled
def expand(
    t: Tables,
    work: Workspace,
    solo: IndependentEffects,
    states: Ints,
    actions: Longs,
    first: int,
    listing: Listing,
) -> int:
    """List the successors of the states from ``first`` on, as many as fit.

    An empty ``actions`` asks for every joint action. Returns the first state that did not
    fit; ``listing.offsets`` is right up to its first pair.
    """
    s, chosen = work.scene, work.chosen
    number = t.size[AGENTS]
    joint = 1
    if not len(actions):
        for _ in range(number):
            joint *= len(t.action)
    for state in range(first, len(states)):
        for word in range(len(s.state)):
            s.state[word] = states[state, word]
        for agent in range(number):
            chosen[agent] = actions[state, agent] if len(actions) else 0
        fits = expand_state(t, work, solo, state * joint, joint, listing)
        forget(t, s)
        if not fits:
            return state
    return len(states)


def pack(layout: Layout) -> Tables:
    """The layout as the compiled code wants it."""
    neighbours = _neighbours(layout.width, layout.height)
    columns = (
        (layout.terrain, layout.fixed_at, *neighbours),
        (layout.agent_colour, layout.can_push_rocks, layout.can_enter_magic, layout.tramples),
        (
            layout.item_kind,
            layout.item_colour,
            layout.item_content_kind,
            layout.item_content_colour,
            layout.item_group,
        ),
        (
            layout.fixed_kind,
            layout.fixed_word,
            layout.fixed_colour,
            layout.fixed_target,
            layout.fixed_side,
        ),
    )
    cell, agent, item, fixed = (
        np.ascontiguousarray(np.stack(part, -1).astype(np.int16)) for part in columns
    )
    size = [
        layout.num_cells,
        layout.num_agents,
        layout.num_items,
        len(layout.fixed_kind),
        layout.reference,
        not layout.action_mask.all(),
        (layout.fixed_kind == codes.CONTROL_BUTTON).any(),
    ]
    chance = np.stack([layout.fixed_enter, layout.fixed_solidify], -1).astype(np.float64)
    return Tables(
        cell,
        np.ascontiguousarray(layout.stumble, np.float64),
        agent,
        item,
        fixed,
        np.ascontiguousarray(chance),
        np.ascontiguousarray(layout.actions, np.int16),
        np.ascontiguousarray(layout.action_mask, np.bool_),
        np.array(size, np.int64),
    )


@lru_cache(maxsize=64)
def _neighbours(width: int, height: int) -> tuple[Ints, ...]:
    y, x = np.divmod(np.arange(width * height), width)
    neighbours = []
    for dx, dy in zip(codes.DX, codes.DY, strict=True):
        inside = (x + dx >= 0) & (x + dx < width) & (y + dy >= 0) & (y + dy < height)
        neighbours.append(np.where(inside, (y + dy) * width + x + dx, -1).astype(np.int16))
    return tuple(neighbours)


def expansion(
    layout: Layout | Tables, states: Ints, actions: Longs | None
) -> tuple[Longs, Longs, Ints, Floats]:
    """All successors, equal ones of a state listed once; see ``empo_core.types.Expansion``.

    Args:
        layout: The world; packed tables save packing it again.
        states: State rows [state word].
        actions: A joint action per state [state agent]; None asks for all of every state.

    Returns:
        Offsets [pair + 1], outcome of each item [item], rows [outcome word], probabilities
        [outcome].
    """
    tables = pack(layout) if isinstance(layout, Layout) else layout
    number, words, choices = int(tables.size[AGENTS]), states.shape[1], len(tables.action)
    work = _workspace(tables, words)
    joint = 1 if actions is not None else choices**number
    pairs = len(states) * joint
    joint_actions = np.empty((0, number), np.int64) if actions is None else actions
    items, outcomes, done = pairs + pairs // 8 + 256, pairs - pairs // 4 + 256, 0
    listing = Listing(
        np.zeros(pairs + 1, np.int64),
        np.empty(items, np.int64),
        np.empty((outcomes, words), np.int16),
        np.empty(outcomes),
        np.zeros(1, np.int64),
    )
    while True:
        solos = empty_effects(number, choices, words, joint)
        done = expand(tables, work, solos, states, joint_actions, done, listing)
        item, outcome = int(listing.offsets[done * joint]), int(listing.used[0])
        if done == len(states):
            index, rows, probs = listing.outcome[:item], listing.rows[:outcome], listing.probs
            return listing.offsets, index, rows, probs[:outcome]
        items, outcomes = 2 * items, 2 * outcomes
        listing = listing._replace(
            outcome=_grown(listing.outcome, item, items),
            rows=_grown(listing.rows, outcome, outcomes),
            probs=_grown(listing.probs, outcome, outcomes),
        )


def transitions(
    layout: Layout | Tables, states: Ints, actions: Longs | None
) -> tuple[Longs, Ints, Floats]:
    """All successors, in CSR form; see ``empo_core.types.Successors``.

    Args:
        layout: The world; packed tables save packing it again.
        states: State rows [state word].
        actions: A joint action per state [state agent]; None asks for all of every state.

    Returns:
        Offsets [pair + 1], successor rows [item word], probabilities [item].
    """
    offsets, index, rows, probs = expansion(layout, states, actions)
    if len(index) == len(rows):  # Every outcome is listed once, in order.
        return offsets, rows, probs
    return offsets, rows[index], probs[index]


def step(layout: Layout | Tables, states: Ints, actions: Longs, uniform: Floats) -> Ints:
    """One successor per state, chosen by a number in [0, 1) per state."""
    tables = pack(layout) if isinstance(layout, Layout) else layout
    work, out = _workspace(tables, states.shape[1]), states.copy()
    capacity, done = 64, 0
    while done < len(states):
        rows, probs = np.empty((capacity, states.shape[1]), np.int16), np.empty(capacity)
        done = draw(tables, work, states, actions, uniform, done, rows, probs, out)
        capacity *= 2
    return out


class SingleStep:
    """One successor of one state at a time, in room that is made once; not for several threads."""

    def __init__(self, tables: Tables, words: int) -> None:
        """Make room for rows of so many words."""
        self._tables, self._work = tables, _workspace(tables, words)
        self._states = np.empty((1, words), np.int16)
        self._actions = np.empty((1, int(tables.size[AGENTS])), np.int64)
        self._uniform = np.empty(1)
        self._grow(64)

    def __call__(self, row: Ints, actions: Sequence[int], uniform: float) -> Ints:
        """The successor that a number in [0, 1) chooses, as ``step`` would."""
        self._states[0], self._actions[0], self._uniform[0] = row, actions, uniform
        out = self._states.copy()
        while not draw(
            self._tables, self._work, self._states, self._actions, self._uniform, 0,
            self._rows, self._probs, out,
        ):  # fmt: skip
            self._grow(2 * len(self._rows))
        successor: Ints = out[0]
        return successor

    def _grow(self, capacity: int) -> None:
        self._rows = np.empty((capacity, self._states.shape[1]), np.int16)
        self._probs = np.empty(capacity)


def _workspace(tables: Tables, words: int) -> Workspace:
    """Room to work in."""
    number = int(tables.size[AGENTS])
    scene = empty_scene(words, len(tables.cell))
    intents = empty_intents(number, len(tables.action), words)
    return Workspace(scene, intents, empty_events(number), np.zeros(number, np.int16))


def _grown(array: np.ndarray, used: int, capacity: int) -> np.ndarray:
    larger = np.empty((capacity, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger
