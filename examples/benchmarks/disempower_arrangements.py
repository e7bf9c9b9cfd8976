"""All states of a layout whose assistant has a body, by where the assistant and the boxes are.

An *arrangement* is the cells of assistant and boxes. Humans move within an arrangement, and then
the assistant leads from one to another. So states are numbered arrangement by arrangement, the
start's first, and tables of what the assistant does are small: one row per arrangement.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int16, Int32

from empo_benchmarks.disempower.board import ASSISTANT, BYSTANDER, HUMAN_ACTIONS, USER, Board, Rules
from empo_benchmarks.disempower.kernel import (
    NOWHERE,
    assistance,
    destination,
    in_each_others_way,
)
from empo_worlds.compilation import compiled, inlined

CHOICES = len(HUMAN_ACTIONS)


class Moves(NamedTuple):
    """Who can go where.

    Attributes:
        rules: The rules of the board.
        rows: The states, those of an arrangement together [state word].
        arrangement: That of each state [state].
        number: State of an arrangement and of the humans' cells, the user's slowest; -1 where
            there is none [arrangement pair].
        leads: The arrangement to which each of the assistant's actions leads [arrangement action].
        conflict: The cell in which a human keeps it from that; ``NOWHERE`` where the action does
            nothing anyway [arrangement action].
        cells: Number of cells.
    """

    rules: Rules
    rows: Int16[np.ndarray, "state word"]
    arrangement: Int32[np.ndarray, " state"]
    number: Int32[np.ndarray, "arrangement pair"]
    leads: Int32[np.ndarray, "arrangement action"]
    conflict: Int32[np.ndarray, "arrangement action"]
    cells: int


@compiled
def list_actions(
    rules: Rules,
    rows: Int16[np.ndarray, "arrangement word"],
    masks: Int32[np.ndarray, " arrangement"],
    by_mask: Int32[np.ndarray, "mask cell"],
    leads: Int32[np.ndarray, "arrangement action"],
    conflict: Int32[np.ndarray, "arrangement action"],
) -> None:
    """Fill in where the assistant's actions lead; arrangements are found by bits of their boxes."""
    for arrangement in range(len(rows)):
        for action in range(leads.shape[1]):
            box, target, cell, in_the_way = assistance(rules, rows, arrangement, action)
            mask = masks[arrangement]
            if box > 0:
                mask += (1 << target) - (1 << rows[arrangement, box])
            leads[arrangement, action] = by_mask[mask, cell]
            conflict[arrangement, action] = in_the_way


@inlined
def moved_pair(moves: Moves, state: int, user_action: int, bystander_action: int) -> int:
    """The cells of both humans after their move, as one number."""
    user, bystander = moves.rows[state, USER], moves.rows[state, BYSTANDER]
    user_to = destination(moves.rules, moves.rows, state, user, user_action)
    bystander_to = destination(moves.rules, moves.rows, state, bystander, bystander_action)
    if in_each_others_way(moves.rules, moves.rows, state, user_to, bystander_to):
        return np.int64(user) * moves.cells + bystander
    return np.int64(user_to) * moves.cells + bystander_to


@inlined
def is_hindered(conflict: int, user: int, bystander: int) -> bool:
    """True if an action does nothing because of where humans are now."""
    return conflict == NOWHERE or conflict in (user, bystander)


@inlined
def arrangement_after(moves: Moves, arrangement: int, action: int, pair: int) -> int:
    """The arrangement to which an action leads after both humans have moved."""
    user, bystander = pair // moves.cells, pair % moves.cells
    if is_hindered(moves.conflict[arrangement, action], user, bystander):
        return np.int32(arrangement)
    return moves.leads[arrangement, action]


@compiled
def explore(
    moves: Moves, is_reached: Bool[np.ndarray, " code"], stack: Int32[np.ndarray, " code"]
) -> None:
    """Mark all states within reach of the one that is on the stack.

    The code of a state is its arrangement times the number of pairs, plus the pair. ``moves`` has
    one row per arrangement here, and humans' cells are written into it.
    """
    pairs, left = moves.cells * moves.cells, 1
    while left > 0:
        left -= 1
        arrangement, pair = stack[left] // pairs, stack[left] % pairs
        moves.rows[arrangement, USER] = pair // moves.cells
        moves.rows[arrangement, BYSTANDER] = pair % moves.cells
        for profile in range(CHOICES * CHOICES):
            after = moved_pair(moves, arrangement, profile % CHOICES, profile // CHOICES)
            for action in range(moves.leads.shape[1]):
                target = arrangement_after(moves, arrangement, action, after)
                code = np.int64(target) * pairs + after
                if not is_reached[code]:
                    is_reached[code] = True
                    stack[left] = code
                    left += 1


@compiled
def follow(
    moves: Moves,
    states: Int32[np.ndarray, " item"],
    actions: Int32[np.ndarray, "agent item"],
    after: Int32[np.ndarray, " item"],
) -> None:
    """Fill in the state to which user, bystander and assistant lead."""
    for item in range(len(states)):
        state = states[item]
        pair = moved_pair(moves, state, actions[USER, item], actions[BYSTANDER, item])
        before, action = moves.arrangement[state], actions[ASSISTANT, item]
        after[item] = moves.number[arrangement_after(moves, before, action, pair), pair]


@compiled
def idle_successors(
    moves: Moves, first: int, successor: Int32[np.ndarray, "state profile"]
) -> None:
    """Fill in where humans lead while the assistant does nothing, the user's action fastest.

    Args:
        moves: Who can go where.
        first: The first state, with which an arrangement begins.
        successor: The successors of that and the next states, counted from the first.
    """
    for item in range(successor.shape[0]):
        for profile in range(CHOICES * CHOICES):
            pair = moved_pair(moves, first + item, profile % CHOICES, profile // CHOICES)
            after = moves.number[moves.arrangement[first + item], pair]
            successor[item, profile] = after - first


@compiled
def list_next(
    moves: Moves,
    states: Int32[np.ndarray, " item"],
    is_listed: Bool[np.ndarray, " state"],
    following: Int32[np.ndarray, " state"],
) -> int:
    """List the states that follow some states and are not marked yet, and mark them; how many."""
    count = 0
    for state in states:
        arrangement = moves.arrangement[state]
        for profile in range(CHOICES * CHOICES):
            pair = moved_pair(moves, state, profile % CHOICES, profile // CHOICES)
            for action in range(moves.leads.shape[1]):
                after = moves.number[arrangement_after(moves, arrangement, action, pair), pair]
                if not is_listed[after]:
                    is_listed[after] = True
                    following[count] = after
                    count += 1
    return count


def reachable_moves(board: Board) -> Moves:
    """Tables of all states within reach, whose first ones are those of the start's arrangement.

    The start is the state ``number[arrangement[0], pair]`` of its humans' cells.
    """
    start, cells, first_box = board.start_row(), board.cells, board.first_box
    boxes = np.array(list(combinations(range(cells), board.boxes)), np.int16)
    rows = np.zeros((len(boxes), cells, board.words), np.int16)
    rows[:, :, ASSISTANT] = np.arange(cells)
    rows[:, :, first_box:] = boxes[:, None]
    masks = np.repeat((1 << boxes.astype(np.int32)).sum(1, dtype=np.int32), cells)
    rows = rows.reshape(-1, board.words)
    is_free = (rows[:, first_box:] != rows[:, ASSISTANT, None]).all(1)
    is_first = (rows[is_free][:, ASSISTANT:] == start[ASSISTANT:]).all(1)
    order = np.flatnonzero(is_free)[np.argsort(~is_first, kind="stable")]
    rows, masks = rows[order], masks[order]
    by_mask = np.full((1 << cells, cells), -1, np.int32)
    by_mask[masks, rows[:, ASSISTANT]] = np.arange(len(rows))
    shape = len(rows), len(board.assistant_actions)
    leads, conflict = np.empty(shape, np.int32), np.empty(shape, np.int32)
    list_actions(board.rules, rows, masks, by_mask, leads, conflict)
    none = np.empty((0, 0), np.int32)
    of_arrangements = Moves(board.rules, rows, none[0:0].ravel(), none, leads, conflict, cells)
    pairs = cells * cells
    is_reached = np.zeros(len(rows) * pairs, np.bool_)
    stack = np.empty(len(is_reached), np.int32)
    stack[0] = start[USER] * cells + start[BYSTANDER]
    is_reached[stack[0]] = True
    explore(of_arrangements, is_reached, stack)
    codes = np.flatnonzero(is_reached)
    number = np.full(len(is_reached), -1, np.int32)
    number[codes] = np.arange(len(codes))
    arrangement, pair = np.divmod(codes, pairs)
    states = rows[arrangement]
    states[:, USER], states[:, BYSTANDER] = np.divmod(pair, cells)
    return Moves(
        board.rules, states, arrangement.astype(np.int32), number.reshape(-1, pairs), leads,
        conflict, cells,
    )  # fmt: skip
