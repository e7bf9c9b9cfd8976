"""The next step of a human who wants something, compiled.

The human takes the nearest of what it needs next, around the robot where there is a way around.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int8, Int16, Int64

from empo_benchmarks.overcooked.goals import AT, FILL, HOLD, READY, KitchenGoal
from empo_benchmarks.overcooked.kernel import (
    COOK_TIME,
    FIRST_COUNTER,
    FIRST_POT,
    SERVED,
    SOUP_ONIONS,
    States,
)
from empo_benchmarks.overcooked.kitchen import (
    COOK_WORDS,
    COUNTER,
    DISH,
    DISHES,
    FACING,
    FAR,
    HELD,
    INTERACT,
    NOTHING,
    ONION,
    ONIONS,
    PLACE,
    POT,
    WINDOW,
    Kitchen,
    Rules,
    Tables,
)
from empo_worlds.compilation import compiled, nested

Distances = Int16[np.ndarray, "place place place"]
Pairs = Int64[np.ndarray, "goal 2"]
STAY, GET, PUT_DOWN, ADD, LIGHT, TAKE, AWAIT, SERVE_IT, STAND = range(9)
"""What the human does next; ``GET`` and ``STAND`` are about an item or a kind of station."""


@nested
def has_pot(rules: Rules, states: States, state: int, kind: int) -> bool:
    """Whether there is a pot to add to, to light, to take from, or to wait for."""
    for word in range(rules[FIRST_POT], rules[SERVED], 2):
        if suits(rules, states[state, word], states[state, word + 1], kind):
            return True
    return False


@nested
def suits(rules: Rules, onions: int, cooked: int, kind: int) -> bool:
    """Whether a pot with so many onions is one to add to, to light, to take from, to wait for."""
    fits = cooked > 0 and cooked < rules[COOK_TIME]
    if kind == ADD:
        fits = cooked == 0 and onions < rules[SOUP_ONIONS]
    elif kind == LIGHT:
        fits = cooked == 0 and onions == rules[SOUP_ONIONS]
    elif kind == TAKE:
        fits = cooked == rules[COOK_TIME]
    return fits


@nested
def on_counter(rules: Rules, states: States, state: int, item: int) -> bool:
    """Whether an item lies on a counter."""
    for word in range(rules[FIRST_COUNTER], rules[FIRST_POT]):
        if states[state, word] == item:
            return True
    return False


@nested
def fetched(item: int, held: int) -> tuple[int, int]:
    """The step towards holding an item; puts down what is held instead."""
    if held == item:
        return STAY, 0
    if held == NOTHING:
        return GET, item
    return (SERVE_IT if held > DISH else PUT_DOWN), 0


@nested
def soup_step(rules: Rules, states: States, state: int, held: int) -> tuple[int, int]:
    """The step towards holding a soup that counts; others are served to be rid of them."""
    soup = DISH + rules[SOUP_ONIONS]
    if held == soup:
        return STAY, 0
    if held > DISH:
        return SERVE_IT, 0
    if held == NOTHING and on_counter(rules, states, state, soup):
        return GET, soup
    if has_pot(rules, states, state, TAKE):
        return (TAKE, 0) if held == DISH else fetched(DISH, held)
    if has_pot(rules, states, state, LIGHT):
        return (LIGHT, 0) if held == NOTHING else (PUT_DOWN, 0)
    if has_pot(rules, states, state, AWAIT) and held != ONION:
        return (AWAIT, 0) if held == DISH else (GET, DISH)
    if has_pot(rules, states, state, ADD):
        return (ADD, 0) if held == ONION else fetched(ONION, held)
    return fetched(DISH, held)


@nested
def next_step(rules: Rules, states: States, state: int, kind: int, about: int) -> tuple[int, int]:
    """What the human does next for a goal that it has not achieved."""
    held = states[state, COOK_WORDS + HELD]
    soup = DISH + rules[SOUP_ONIONS]
    if kind == AT:
        return STAND, about
    if kind == HOLD:
        return soup_step(rules, states, state, held) if about > DISH else fetched(about, held)
    if kind in (FILL, READY):
        can_add = has_pot(rules, states, state, ADD)
        if kind == READY and has_pot(rules, states, state, LIGHT):
            return (LIGHT, 0) if held == NOTHING else fetched(NOTHING, held)
        if kind == READY and has_pot(rules, states, state, AWAIT) and not can_add:
            return STAND, POT
        if can_add:
            return (ADD, 0) if held == ONION else fetched(ONION, held)
    if held == soup:
        return SERVE_IT, 0
    return soup_step(rules, states, state, held)


@nested
def is_aim(tables: Tables, states: States, state: int, cell: int, step: int, about: int) -> bool:
    """Whether a step is taken at a cell."""
    _, tile, word, _, rules = tables
    kind, first, is_here = tile[cell], word[cell], False
    if step == STAND:
        is_here = kind == about
    elif step == SERVE_IT:
        is_here = kind == WINDOW
    elif step == PUT_DOWN:
        is_here = kind == COUNTER and states[state, first] == NOTHING
    elif step == GET and kind == COUNTER:
        is_here = states[state, first] == about
    elif step == GET:
        is_here = about == (ONION if kind == ONIONS else DISH if kind == DISHES else NOTHING)
    elif kind == POT:
        is_here = suits(rules, states[state, first], states[state, first + 1], step)
    return is_here


@nested
def way(
    tables: Tables, distances: Distances, states: States, state: int, step: int, about: int
) -> int:
    """The action that leads to the nearest cell where a step is taken, and takes it there."""
    neighbour, _, _, place, _ = tables
    here, facing = states[state, COOK_WORDS + PLACE], states[state, COOK_WORDS + FACING]
    robot = states[state, PLACE]
    nearest, goal, turn = FAR, -1, 0
    for spot in range(len(neighbour)):
        # Where the robot stands in the only way, the human walks up to it.
        far = min(distances[robot, here, spot], FAR // 2 + distances[here, here, spot])
        for direction in range(neighbour.shape[1]):
            if far >= nearest or not is_aim(
                tables, states, state, neighbour[spot, direction], step, about
            ):
                continue
            cost = far + (0 if spot == here and direction == facing else 1)
            if cost < nearest:
                nearest, goal, turn = cost, spot, direction
    if goal < 0:
        return 0
    if goal == here:
        if turn != facing:
            return 1 + turn
        return 0 if step in (STAND, AWAIT) else INTERACT
    blocked = robot if distances[robot, here, goal] < FAR // 2 else here
    for direction in range(neighbour.shape[1]):
        there = place[neighbour[here, direction]]
        is_free = there >= 0 and there != blocked
        if is_free and distances[blocked, there, goal] < distances[blocked, here, goal]:
            return 1 + direction
    return 0


@compiled
def write_actions(
    tables: Tables,
    distances: Distances,
    goals: Pairs,
    states: States,
    actions: Int8[np.ndarray, "state goal"],
) -> None:
    """Write what the human does in each state for each goal that it has not achieved."""
    for state in range(len(states)):
        for goal in range(len(goals)):
            step, about = next_step(tables[4], states, state, goals[goal, 0], goals[goal, 1])
            action = 0
            if step != STAY:
                action = way(tables, distances, states, state, step, about)
            actions[state, goal] = action


def chosen_actions(
    kitchen: Kitchen, goals: Sequence[KitchenGoal], states: States
) -> Int8[np.ndarray, "state goal"]:
    """What the human does in each state for each goal that it has not achieved."""
    goal_codes = np.array([(goal.kind, goal.about) for goal in goals], np.int64)
    actions = np.empty((len(states), len(goals)), np.int8)
    write_actions(kitchen.tables, kitchen.distances, goal_codes, states, actions)
    return actions
