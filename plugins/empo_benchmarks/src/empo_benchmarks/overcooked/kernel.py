"""The rules, compiled: first the robot interacts, then the human, then both move, then pots cook.

What the rules say was found by watching the package ``overcooked`` 0.2.1, which tests compare
with them step by step.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int8, Int16, Int64

from empo_benchmarks.overcooked.kitchen import (
    ACTIONS,
    COOK_WORDS,
    COUNTER,
    DISH,
    DISHES,
    FACING,
    HELD,
    INTERACT,
    NOTHING,
    ONION,
    ONIONS,
    PLACE,
    POT,
    WINDOW,
    Kitchen,
    Moves,
    Rules,
    Table,
    Tables,
)
from empo_worlds.compilation import compiled, inlined, nested

Rows = Int16[np.ndarray, "item word"]
States = Int16[np.ndarray, "state word"]
Actions = Int64[np.ndarray, "state 2"]
Events = Int8[np.ndarray, "item 2"]
SOUP_ONIONS, COOK_TIME, COUNTER_ITEMS, SOUPS, FIRST_COUNTER, FIRST_POT, SERVED = range(7)
"""Positions in ``Kitchen.rules``."""
NO_EVENT, POTTED, USEFUL_DISH, SOUP_TAKEN, SOUP_SERVED = range(5)
"""What an interaction was, as far as it is paid for."""
COOKS = 2
CHOICES = len(ACTIONS)


@inlined
def items_on_counters(rules: Rules, rows: Rows, row: int, item: int) -> int:
    """How many counters bear an item; with ``NOTHING``, how many bear anything."""
    count = 0
    for word in range(rules[FIRST_COUNTER], rules[FIRST_POT]):
        here = rows[row, word]
        if here != NOTHING and (item == NOTHING or here == item):
            count += 1
    return count


@inlined
def pots_in_use(rules: Rules, states: States, state: int) -> int:
    """Pots with a soup that cooks or is ready, or with some onions but not all."""
    count = 0
    for word in range(rules[FIRST_POT], rules[SERVED], 2):
        onions, cooked = states[state, word], states[state, word + 1]
        if cooked > 0 or (onions > 0 and onions < rules[SOUP_ONIONS]):
            count += 1
    return count


@inlined
def dish_is_useful(rules: Rules, states: States, state: int, rows: Rows, row: int) -> bool:
    """Whether taking a dish is paid for: pots as the step began, the rest as it is."""
    dishes = 0
    for cook in range(COOKS):
        if rows[row, COOK_WORDS * cook + HELD] == DISH:
            dishes += 1
    return items_on_counters(rules, rows, row, DISH) == 0 and dishes < pots_in_use(
        rules, states, state
    )


@inlined
def use_pot(rules: Rules, rows: Rows, row: int, held: int, pot: int) -> int:
    """Add an onion, light the fire, or fill a dish; returns the event."""
    item, onions, cooked = rows[row, held], rows[row, pot], rows[row, pot + 1]
    if item == NOTHING and onions > 0 and cooked == 0:
        # Not 1 before the end of the step, when it would become 2; nor 0, which takes onions.
        rows[row, pot + 1] = -1
    elif item == ONION and cooked == 0 and onions < rules[SOUP_ONIONS]:
        rows[row, held] = NOTHING
        rows[row, pot] = onions + 1
        return POTTED
    elif item == DISH and cooked == rules[COOK_TIME]:
        rows[row, held] = DISH + onions
        rows[row, pot] = 0
        rows[row, pot + 1] = 0
        return SOUP_TAKEN
    return NO_EVENT


@inlined
def use_counter(rules: Rules, rows: Rows, row: int, held: int, counter: int) -> None:
    """Put down what is held, or take what is there."""
    item, there = rows[row, held], rows[row, counter]
    if (item == NOTHING) != (there == NOTHING):
        is_full = items_on_counters(rules, rows, row, NOTHING) >= rules[COUNTER_ITEMS]
        if item == NOTHING or not is_full:
            rows[row, held], rows[row, counter] = there, item


@nested
def interact(
    neighbour: Moves, tile: Table, word: Table, rules: Rules,
    states: States, state: int, rows: Rows, row: int, cook: int,
) -> int:  # fmt: skip
    """Let a cook interact with what it faces; returns the event."""
    first = COOK_WORDS * cook
    held = first + HELD
    cell = neighbour[rows[row, first + PLACE], rows[row, first + FACING]]
    kind, item = tile[cell], rows[row, held]
    if kind == COUNTER:
        use_counter(rules, rows, row, held, word[cell])
    elif kind == POT:
        return use_pot(rules, rows, row, held, word[cell])
    elif kind == ONIONS and item == NOTHING:
        rows[row, held] = ONION
    elif kind == DISHES and item == NOTHING:
        is_useful = dish_is_useful(rules, states, state, rows, row)
        rows[row, held] = DISH
        return USEFUL_DISH if is_useful else NO_EVENT
    elif kind == WINDOW and item > DISH:
        rows[row, held] = NOTHING
        if item - DISH == rules[SOUP_ONIONS]:
            rows[row, rules[SERVED]] = min(rows[row, rules[SERVED]] + 1, rules[SOUPS])
            return SOUP_SERVED
    return NO_EVENT


@inlined
def target(neighbour: Moves, place: Table, origin: int, action: int) -> int:
    """Where an action leads a cook whom nothing but walls hinders."""
    if action == 0 or action == INTERACT:
        return origin
    there = place[neighbour[origin, action - 1]]
    return origin if there < 0 else there


@inlined
def move(
    neighbour: Moves, place: Table, rows: Rows, row: int, robot_action: int, human_action: int
) -> None:
    """Turn both cooks and let both walk; neither does where they would meet or swap."""
    robot, human = rows[row, PLACE], rows[row, COOK_WORDS + PLACE]
    robot_there = target(neighbour, place, robot, robot_action)
    human_there = target(neighbour, place, human, human_action)
    meet = robot_there == human_there
    swap = robot_there == human and human_there == robot
    if not meet and not swap:
        rows[row, PLACE] = robot_there
        rows[row, COOK_WORDS + PLACE] = human_there
    if robot_action != 0 and robot_action != INTERACT:
        rows[row, FACING] = robot_action - 1
    if human_action != 0 and human_action != INTERACT:
        rows[row, COOK_WORDS + FACING] = human_action - 1


@inlined
def cook_soups(rules: Rules, rows: Rows, row: int) -> None:
    """Let all pots cook that were lit."""
    for word in range(rules[FIRST_POT], rules[SERVED], 2):
        cooked = rows[row, word + 1]
        if cooked < 0:
            rows[row, word + 1] = 1
        elif cooked > 0 and cooked < rules[COOK_TIME]:
            rows[row, word + 1] = cooked + 1


@nested
def write_successor(
    tables: Tables, states: States, state: int,
    robot_action: int, human_action: int, rows: Rows, row: int, events: Events,
) -> None:  # fmt: skip
    """Write what follows a joint action, and the events of both cooks."""
    neighbour, tile, word, place, rules = tables
    for at in range(states.shape[1]):
        rows[row, at] = states[state, at]
    events[row, 0] = events[row, 1] = NO_EVENT
    if robot_action == INTERACT:
        events[row, 0] = interact(neighbour, tile, word, rules, states, state, rows, row, 0)
    if human_action == INTERACT:
        events[row, 1] = interact(neighbour, tile, word, rules, states, state, rows, row, 1)
    move(neighbour, place, rows, row, robot_action, human_action)
    cook_soups(rules, rows, row)


@compiled
def write_chosen(
    tables: Tables,
    states: States,
    actions: Actions,
    rows: Rows,
    events: Events,
) -> None:
    """Write the successor of each state under its joint action."""
    for state in range(len(states)):
        robot_action, human_action = actions[state, 0], actions[state, 1]
        write_successor(tables, states, state, robot_action, human_action, rows, state, events)


@compiled
def write_all(tables: Tables, states: States, rows: Rows, events: Events) -> None:
    """Write the successors of every joint action of each state, the robot's fastest."""
    row = 0
    for state in range(len(states)):
        for human_action in range(CHOICES):
            for robot_action in range(CHOICES):
                write_successor(
                    tables, states, state, robot_action, human_action, rows, row, events
                )
                row += 1


@compiled
def first_wrong(values: Int64[np.ndarray, " word"], rules: Rules, states: States) -> int:
    """The first row that is no state; -1 where all are."""
    for state in range(len(states)):
        for word in range(len(values)):
            if states[state, word] < 0 or states[state, word] >= values[word]:
                return state
        if states[state, PLACE] == states[state, COOK_WORDS + PLACE]:
            return state
        for word in range(rules[FIRST_POT], rules[SERVED], 2):
            if states[state, word] == 0 and states[state, word + 1] > 0:
                return state
        if items_on_counters(rules, states, state, NOTHING) > rules[COUNTER_ITEMS]:
            return state
    return -1


def successors(kitchen: Kitchen, states: States, actions: Actions | None) -> tuple[Rows, Events]:
    """One successor per state and joint action, of every joint action where none is given.

    Returns:
        The successors, and the events of robot and human that led there.
    """
    number = len(states) * (CHOICES**COOKS if actions is None else 1)
    rows = np.empty((number, states.shape[1]), np.int16)
    events = np.empty((number, COOKS), np.int8)
    if actions is None:
        write_all(kitchen.tables, states, rows, events)
    else:
        write_chosen(kitchen.tables, states, actions, rows, events)
    return rows, events
