"""Successors of batches of states, compiled.

Humans move on the board as it was, then the assistant acts. A human can hinder an action of the
assistant in one cell only, so that each action is worked out once for all moves of the humans.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from empo_benchmarks.boxes import Rows, States, holds_box, write_boxes
from empo_benchmarks.disempower.board import ASSISTANT, BYSTANDER, HUMAN_ACTIONS, USER, Board, Rules
from empo_worlds.compilation import compiled, inlined, nested

CHOICES = len(HUMAN_ACTIONS)
TURNS = 4
NOWHERE = -1
"""Stands for a cell that no human can be on."""


@inlined
def destination(rules: Rules, states: States, state: int, cell: int, action: int) -> int:
    """Where a human's action leads past walls, boxes and the assistant, but not the other human."""
    if action == 0 or rules.is_trap[cell]:
        return cell
    target: int = rules.neighbour[cell, action - 1]
    if target < 0 or holds_box(states, state, rules.first_box, rules.key_word, target):
        return cell
    if rules.is_embodied and states[state, ASSISTANT] == target:
        return cell
    return target


@inlined
def in_each_others_way(
    rules: Rules, states: States, state: int, user_to: int, bystander_to: int
) -> bool:
    """True if neither human moves: they would meet or swap, and not on the goal of both."""
    meet = user_to == bystander_to
    swap = user_to == states[state, BYSTANDER] and bystander_to == states[state, USER]
    share = meet and user_to == rules.shared_goal
    return (meet or swap) and not share


@inlined
def box_may_enter(rules: Rules, states: States, state: int, cell: int) -> bool:
    """True if a box can be put on a cell, unless a human is there."""
    return (
        cell >= 0
        and not rules.is_barred[cell]
        and not holds_box(states, state, rules.first_box, rules.key_word, cell)
    )


@nested
def assistance(rules: Rules, states: States, state: int, action: int) -> tuple[int, int, int, int]:
    """What an action does unless a human is in the way.

    Returns:
        The word of the box that moves (0 for none) and its new cell, the assistant's new cell, and
        the cell that must be free of humans; the last is ``NOWHERE`` where nothing happens.
    """
    if not rules.is_embodied:
        if action == 0 or action > TURNS * rules.boxes:
            return 0, 0, 0, NOWHERE
        box = rules.first_box + (action - 1) // TURNS
        target = rules.neighbour[states[state, box], (action - 1) % TURNS]
        if not box_may_enter(rules, states, state, target):
            return 0, 0, 0, NOWHERE
        return box, target, 0, target
    here = states[state, ASSISTANT]
    kind = (action - 1) // TURNS
    if action == 0 or kind > (2 if rules.has_pull else 1):
        return 0, 0, here, NOWHERE
    turn = (action - 1) % TURNS
    if kind == 2:
        turn = (turn + 2) % TURNS
    front = rules.neighbour[here, turn]
    if front < 0:
        return 0, 0, here, NOWHERE
    if kind == 0:
        if holds_box(states, state, rules.first_box, rules.key_word, front):
            return 0, 0, here, NOWHERE
        return 0, 0, front, front
    origin = front if kind == 1 else rules.neighbour[here, (turn + 2) % TURNS]
    target = rules.neighbour[front, turn] if kind == 1 else here
    box = 0
    for word in range(rules.first_box, rules.key_word):
        if origin >= 0 and states[state, word] == origin:
            box = word
    if box == 0 or not box_may_enter(rules, states, state, target):
        return 0, 0, here, NOWHERE
    if kind == 2 and holds_box(states, state, rules.first_box, rules.key_word, front):
        return 0, 0, here, NOWHERE
    return box, target, front, target if kind == 1 else front


@inlined
def write_rest(
    rules: Rules, states: States, state: int, freezes: bool, rows: Rows, row: int
) -> None:
    """Write keys and timer, once the humans' new cells are written."""
    if rules.timer_word > rules.key_word:
        for human in range(2):
            word = rules.key_word + human
            has_key = states[state, word] == 1 or rows[row, human] == rules.key[human]
            rows[row, word] = 1 if has_key else 0
    if rules.freeze_steps > 0:
        timer = rules.freeze_steps if freezes else states[state, rules.timer_word]
        rows[row, rules.timer_word] = timer - 1 if timer > 0 else 0


@inlined
def is_freeze(rules: Rules, action: int) -> bool:
    """True of the action that freezes the bystander."""
    if rules.freeze_steps == 0:
        return False
    if rules.is_embodied:
        return action == 1 + TURNS * (3 if rules.has_pull else 2)
    return action == 1 + TURNS * rules.boxes


@inlined
def write_humans(
    rules: Rules, states: States, state: int, user_action: int, bystander_action: int,
    rows: Rows, row: int,
) -> None:  # fmt: skip
    """Write where both humans are after their move."""
    user = destination(rules, states, state, states[state, USER], user_action)
    bystander = destination(rules, states, state, states[state, BYSTANDER], bystander_action)
    if in_each_others_way(rules, states, state, user, bystander):
        user, bystander = states[state, USER], states[state, BYSTANDER]
    rows[row, USER] = user
    rows[row, BYSTANDER] = bystander


@compiled
def write_chosen(
    rules: Rules, states: States, actions: Int64[np.ndarray, "state 3"], rows: Rows
) -> None:
    """Write the successor of each state under its joint action."""
    for state in range(len(states)):
        action = actions[state, ASSISTANT]
        freezes = is_freeze(rules, action)
        is_frozen = freezes or (rules.freeze_steps > 0 and states[state, rules.timer_word] > 0)
        bystander_action = 0 if is_frozen else actions[state, BYSTANDER]
        write_humans(rules, states, state, actions[state, USER], bystander_action, rows, state)
        box, target, assistant, conflict = assistance(rules, states, state, action)
        user, bystander = rows[state, USER], rows[state, BYSTANDER]
        is_hindered = conflict == NOWHERE or user == conflict or bystander == conflict
        write_boxes(
            states,
            state,
            rules.first_box,
            rules.key_word,
            0 if is_hindered else box,
            target,
            rows,
            state,
        )
        if rules.is_embodied:
            rows[state, ASSISTANT] = states[state, ASSISTANT] if is_hindered else assistant
        write_rest(rules, states, state, freezes, rows, state)


@compiled
def write_all(rules: Rules, choices: int, states: States, scratch: Rows, rows: Rows) -> None:
    """Write the successors of every joint action of each state, the user's fastest.

    Args:
        rules: The rules.
        choices: Number of the assistant's actions.
        states: The states.
        scratch: Humans after each pair of their actions, then the board that one action leads to.
        rows: The successors.
    """
    row = 0
    pairs = CHOICES * CHOICES
    for state in range(len(states)):
        for pair in range(pairs):
            write_humans(rules, states, state, pair % CHOICES, pair // CHOICES, scratch, pair)
        is_frozen = rules.freeze_steps > 0 and states[state, rules.timer_word] > 0
        for action in range(choices):
            freezes = is_freeze(rules, action)
            box, target, assistant, conflict = assistance(rules, states, state, action)
            write_boxes(states, state, rules.first_box, rules.key_word, box, target, scratch, pairs)
            if rules.is_embodied:
                scratch[pairs, ASSISTANT] = assistant
            for pair in range(pairs):
                # A frozen bystander stays, whatever its action.
                outcome = pair % CHOICES if is_frozen or freezes else pair
                user, bystander = scratch[outcome, USER], scratch[outcome, BYSTANDER]
                rows[row, USER] = user
                rows[row, BYSTANDER] = bystander
                if conflict == NOWHERE or user == conflict or bystander == conflict:
                    for word in range(ASSISTANT, rules.key_word):
                        rows[row, word] = states[state, word]
                else:
                    for word in range(ASSISTANT, rules.key_word):
                        rows[row, word] = scratch[pairs, word]
                write_rest(rules, states, state, freezes, rows, row)
                row += 1


@compiled
def first_wrong(rules: Rules, values: Int64[np.ndarray, " word"], states: States) -> int:
    """The first row that is no state; -1 where all are."""
    for state in range(len(states)):
        for word in range(len(values)):
            if states[state, word] < 0 or states[state, word] >= values[word]:
                return state
        for word in range(rules.first_box + 1, rules.key_word):
            if states[state, word] <= states[state, word - 1]:
                return state
        user, bystander = states[state, USER], states[state, BYSTANDER]
        if user == bystander and user != rules.shared_goal:
            return state
        for agent in range(rules.first_box):
            if holds_box(states, state, rules.first_box, rules.key_word, states[state, agent]):
                return state
        if rules.is_embodied and (
            states[state, ASSISTANT] == user or states[state, ASSISTANT] == bystander
        ):
            return state
    return -1


def successors(board: Board, states: States, actions: Int64[np.ndarray, "state 3"] | None) -> Rows:
    """One successor per state and joint action, of every joint action where none is given."""
    if actions is not None:
        rows = np.empty_like(states)
        write_chosen(board.rules, states, actions, rows)
        return rows
    choices = len(board.assistant_actions)
    rows = np.empty((len(states) * choices * CHOICES**2, states.shape[1]), np.int16)
    scratch = np.empty((CHOICES**2 + 1, states.shape[1]), np.int16)
    write_all(board.rules, choices, states, scratch, rows)
    return rows
