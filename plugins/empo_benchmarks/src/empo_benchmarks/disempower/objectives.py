"""What assistants of arXiv 2511.04177 are paid for, in expectation: where humans get at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int16, Int32, Int64

from empo_benchmarks.boxes import States
from empo_benchmarks.disempower.board import BYSTANDER, HUMANS, USER, Board, Rules
from empo_benchmarks.disempower.kernel import CHOICES, write_humans
from empo_worlds.compilation import compiled

STEPS = 3
"""Steps of each human, the first one included."""
ROLLOUTS = 20
"""Rollouts in which ``discrete`` counts different cells."""
PAIRS = CHOICES**2

Ends = Float64[np.ndarray, "state human action cell"]


class Scratch(NamedTuple):
    """Working memory of ``write_ends``.

    Attributes:
        board: A state with the humans elsewhere.
        target_cells: Where both humans get.
        place: The position of each pair of cells in the lists below; -1: it is in none.
        pairs: Pairs of cells that both humans may be in, before a step and after it.
        chance: The chance of each pair by the user's first action, then by the bystander's.
    """

    board: Int16[np.ndarray, "1 word"]
    target_cells: Int16[np.ndarray, "1 2"]
    place: Int32[np.ndarray, " pair"]
    pairs: Int32[np.ndarray, "2 pair"]
    chance: Float64[np.ndarray, "2 pair action"]

    @classmethod
    def of(cls, words: int, cells: int) -> Scratch:
        """For rows of so many words and boards of so many cells."""
        pairs = cells * cells
        return cls(
            np.empty((1, words), np.int16),
            np.empty((1, HUMANS), np.int16),
            np.full(pairs, -1, np.int32),
            np.empty((2, pairs), np.int32),
            np.empty((2, pairs, HUMANS * CHOICES)),
        )


@compiled
def write_ends(
    rules: Rules, states: States, steps: int, cells: int, s: Scratch, ends: Ends
) -> None:
    """Write the chances of each human's cell after some steps, by its first action.

    Both humans act evenly at random, and the assistant does nothing: no box moves.

    Args:
        rules: The rules.
        states: The states.
        steps: How many steps.
        cells: Number of cells.
        s: Working memory.
        ends: Receives the chances.
    """
    for state in range(len(states)):
        for word in range(states.shape[1]):
            s.board[0, word] = states[state, word]
        s.pairs[0, 0] = states[state, USER] * cells + states[state, BYSTANDER]
        for choice in range(2 * CHOICES):
            s.chance[0, 0, choice] = 1.0
        count = 1
        for step in range(steps):
            now, later, num_later = step % 2, 1 - step % 2, 0
            is_frozen = rules.freeze_steps > 0 and states[state, rules.timer_word] > step
            share = 1.0 / (PAIRS if step > 0 else CHOICES)
            for position in range(count):
                s.board[0, USER] = s.pairs[now, position] // cells
                s.board[0, BYSTANDER] = s.pairs[now, position] % cells
                for pair in range(PAIRS):
                    first, second = pair % CHOICES, pair // CHOICES
                    write_humans(
                        rules, s.board, 0, first, 0 if is_frozen else second, s.target_cells, 0
                    )
                    target = s.target_cells[0, USER] * cells + s.target_cells[0, BYSTANDER]
                    if s.place[target] < 0:
                        s.place[target] = num_later
                        s.pairs[later, num_later] = target
                        for choice in range(2 * CHOICES):
                            s.chance[later, num_later, choice] = 0.0
                        num_later += 1
                    index = s.place[target]
                    for choice in range(2 * CHOICES):
                        # In the first step a human takes the action by which chances are told.
                        if step > 0 or choice == first or choice == CHOICES + second:
                            s.chance[later, index, choice] += (
                                share * s.chance[now, position, choice]
                            )
            for position in range(num_later):
                s.place[s.pairs[later, position]] = -1
            count = num_later
        last = steps % 2
        for human in range(2):
            for choice in range(CHOICES):
                for cell in range(cells):
                    ends[state, human, choice, cell] = 0.0
        for position in range(count):
            user, bystander = s.pairs[last, position] // cells, s.pairs[last, position] % cells
            for choice in range(CHOICES):
                ends[state, USER, choice, user] += s.chance[last, position, choice]
                ends[state, BYSTANDER, choice, bystander] += s.chance[
                    last, position, CHOICES + choice
                ]


def ends_of(board: Board, states: States) -> Ends:
    """Chances of each human's cell after three steps, by its first action."""
    ends = np.empty((len(states), HUMANS, CHOICES, board.cells))
    scratch = Scratch.of(states.shape[1], board.cells)
    write_ends(board.rules, states, STEPS, board.cells, scratch, ends)
    return ends


def empowerment(ends: Ends) -> Float64[np.ndarray, "state human"]:
    """Bits between the first action, drawn evenly, and the cell: ``mc_emp``."""
    even = ends.mean(2, keepdims=True)
    ratio = np.where(ends > 0, ends, 1) / np.where(even > 0, even, 1)
    bits: Float64[np.ndarray, "state human"] = (ends * np.log2(ratio)).sum(3).mean(2)
    return bits


def objective(name: str, board: Board, states: States) -> Float32[np.ndarray, " state"]:
    """What an assistant is paid for each state.

    Args:
        name: ``ave``, ``mc_emp``, ``discrete``, ``entropic`` or ``joint``.
        board: The board.
        states: Rows of the world.
    """
    ends = ends_of(board, states)
    if name in ("mc_emp", "joint"):
        bits = empowerment(ends)
        return (bits[:, USER] if name == "mc_emp" else bits.sum(1)).astype(np.float32)
    chance = ends[:, USER].mean(1)
    of_cells: dict[str, Callable[[], Float64[np.ndarray, " state"]]] = {
        "ave": lambda: _variance(chance, np.array(board.places)),
        "discrete": lambda: (1 - (1 - chance) ** ROLLOUTS).sum(1),
        "entropic": lambda: -(chance * np.log2(np.where(chance > 0, chance, 1))).sum(1),
    }
    return of_cells[name]().astype(np.float32)


def _variance(
    chance: Float64[np.ndarray, "state cell"], places: Int64[np.ndarray, "cell 2"]
) -> Float64[np.ndarray, " state"]:
    """Of column and row together."""
    spread: Float64[np.ndarray, " state"] = (chance @ places**2 - (chance @ places) ** 2).sum(1)
    return spread
