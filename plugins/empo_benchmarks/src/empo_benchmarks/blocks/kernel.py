"""Successors of batches of states, compiled.

The human moves first, then the robot pushes: neither hinders the other, since both see the boxes
as they were. So each robot action's boxes are worked out once for all actions of the human.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int16, Int64

from empo_benchmarks.blocks.board import HUMAN_MOVES, STAY, Board
from empo_benchmarks.boxes import Rows, States, holds_box, write_boxes
from empo_worlds.compilation import compiled, inlined

Moves = Int16[np.ndarray, "cell direction"]
HUMAN_CHOICES = len(HUMAN_MOVES)


@inlined
def destination(neighbour: Moves, states: States, state: int, cell: int, direction: int) -> int:
    """The cell that something moves to: its own, where the border or a box blocks it."""
    target = neighbour[cell, direction]
    return cell if target < 0 or holds_box(states, state, 1, states.shape[1], target) else target


@inlined
def pushed_box(states: States, state: int, action: int, by_cell: bool) -> int:
    """The word of the box that a robot action is about; 0 for none."""
    if not by_cell:
        return (action + STAY - 1) // STAY
    for word in range(1, states.shape[1]):
        if states[state, word] == action // (STAY + 1):
            return word
    return 0


@inlined
def write_successor(
    neighbour: Moves, by_cell: bool, states: States, state: int,
    human_action: int, robot_action: int, rows: Rows, row: int,
) -> None:  # fmt: skip
    """Write what follows a joint action; a crushed human and its boxes stay for ever."""
    human = states[state, 0]
    box, target = 0, 0
    if not holds_box(states, state, 1, states.shape[1], human):
        box = pushed_box(states, state, robot_action, by_cell)
        if box > 0:
            turn = robot_action % (STAY + 1) if by_cell else (robot_action - 1) % STAY
            target = destination(neighbour, states, state, states[state, box], turn)
        # Action 0 is to stay, the others are the directions from 0 on.
        turn = STAY if human_action == 0 else human_action - 1
        if turn != STAY:
            human = destination(neighbour, states, state, human, turn)
    rows[row, 0] = human
    write_boxes(states, state, 1, states.shape[1], box, target, rows, row)


@compiled
def write_chosen(
    neighbour: Moves,
    by_cell: bool,
    states: States,
    actions: Int64[np.ndarray, "state 2"],
    rows: Rows,
) -> None:
    """Write the successor of each state under its joint action."""
    for state in range(len(states)):
        human_action, robot_action = actions[state, 0], actions[state, 1]
        write_successor(neighbour, by_cell, states, state, human_action, robot_action, rows, state)


@compiled
def write_all(neighbour: Moves, by_cell: bool, choices: int, states: States, rows: Rows) -> None:
    """Write the successors of every joint action of each state, the human's fastest."""
    row = 0
    for state in range(len(states)):
        for action in range(choices):
            first = row
            write_successor(neighbour, by_cell, states, state, 0, action, rows, row)
            is_crushed = holds_box(states, state, 1, states.shape[1], states[state, 0])
            for human_action in range(1, HUMAN_CHOICES):
                row += 1
                for word in range(1, states.shape[1]):
                    rows[row, word] = rows[first, word]
                human = states[state, 0]
                if not is_crushed:
                    human = destination(neighbour, states, state, human, human_action - 1)
                rows[row, 0] = human
            row += 1


@compiled
def first_wrong(states: States, cells: int) -> int:
    """The first row that is no state; -1 where all are."""
    for state in range(len(states)):
        if states[state, 0] < 0 or states[state, 0] >= cells:
            return state
        last = -1
        for word in range(1, states.shape[1]):
            if states[state, word] <= last or states[state, word] >= cells:
                return state
            last = states[state, word]
    return -1


def successors(board: Board, states: States, actions: Int64[np.ndarray, "state 2"] | None) -> Rows:
    """One successor per state and joint action, of every joint action where none is given."""
    by_cell = board.robot_actions == "cells"
    if actions is not None:
        rows = np.empty_like(states)
        write_chosen(board.neighbour, by_cell, states, actions, rows)
        return rows
    choices = len(board.robot_action_names)
    rows = np.empty((len(states) * choices * HUMAN_CHOICES, states.shape[1]), np.int16)
    write_all(board.neighbour, by_cell, choices, states, rows)
    return rows
