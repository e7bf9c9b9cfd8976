"""A human among boxes on a board, written by three roads: for benchmarks, and for tests of them.

A state is the human's cell and the boxes' cells, ascending. The robot pushes any box by a step,
also onto the human, who is then stuck; boxes do not share cells, and the human enters none.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from empo_core.types import AgentSpec
from empo_worlds.compiled import CompiledWorld, compiled_world

MOVES = ((0, 0), (0, -1), (1, 0), (0, 1), (-1, 0))


class Blocks:
    """The plain road: one state and one joint action at a time."""

    name = "blocks"

    def __init__(self, size: int = 5, boxes: int = 2, horizon: int | None = 50) -> None:
        self.size, self.boxes, self.horizon = size, boxes, horizon
        pushes = tuple(f"box {box} {way}" for box in range(boxes) for way in "lduR")
        self.agents = (
            AgentSpec(name="human", role="human", actions=("stay", "left", "down", "right", "up")),
            AgentSpec(name="robot", role="robot", actions=("still", *pushes)),
        )
        cells = range(size * size)
        self.goals = {0: [(f"cell {cell}", partial(_is_at, cell)) for cell in cells]}
        self.moved = [[self._moved(cell, *move) for move in MOVES] for cell in cells]

    def _moved(self, cell: int, down: int, right: int) -> int:
        row, column = cell // self.size + down, cell % self.size + right
        inside = 0 <= row < self.size and 0 <= column < self.size
        return row * self.size + column if inside else cell

    def initial_state(self) -> Hashable:
        return (0, 1, *(self.size * row for row in range(1, self.boxes)))

    def transition_probabilities(
        self, state: Any, actions: tuple[int, ...]
    ) -> list[tuple[float, Hashable]]:
        human, boxes = state[0], state[1:]
        if human in boxes:
            return [(1.0, state)]
        there = self.moved[human][actions[0]]
        if there not in boxes:
            human = there
        if actions[1]:
            box, way = divmod(actions[1] - 1, 4)
            there = self.moved[boxes[box]][way + 1]
            if there not in boxes:
                boxes = tuple(sorted((*boxes[:box], there, *boxes[box + 1 :])))
        return [(1.0, (human, *boxes))]


def _is_at(cell: int, state: Any) -> bool:
    return bool(state[0] == cell)


class BlocksInBatches(Blocks):
    """The road by arrays: all joint actions of many states at once."""

    def transitions_batch(self, states: Int[np.ndarray, "state word"]) -> tuple[Any, ...]:
        human, boxes = states[:, 0], states[:, 1:]
        moved = np.array(self.moved)
        stuck = (human[:, None] == boxes).any(1)
        there = moved[human]  # [state, move]
        blocked = (there[:, :, None] == boxes[:, None]).any(2) | stuck[:, None]
        humans = np.where(blocked, human[:, None], there)
        plans = np.repeat(boxes[:, None], 1 + 4 * self.boxes, 1)  # [state, push, box]
        for push, (box, way) in enumerate(itertools.product(range(self.boxes), range(4)), 1):
            there = moved[boxes[:, box], way + 1]
            blocked = (there[:, None] == boxes).any(1) | stuck
            plans[:, push, box] = np.where(blocked, boxes[:, box], there)
        plans.sort(axis=2)
        joint = np.empty((len(states), plans.shape[1], 5, states.shape[1]), dtype=np.int64)
        joint[..., 0] = humans[:, None]
        joint[..., 1:] = plans[:, :, None]
        counts = np.ones(joint.shape[:3], dtype=np.int64)
        return counts, joint.reshape(-1, states.shape[1]), np.ones(counts.size)


def compiled_blocks(size: int = 5, boxes: int = 2, horizon: int | None = 50) -> CompiledWorld:
    """The compiled road: a function from one state and joint action."""
    plain = Blocks(size, boxes, horizon)
    moved = np.array(plain.moved)

    @compiled_world(
        agents=plain.agents,
        values=(size * size,) * (1 + boxes),
        initial_state=plain.initial_state(),
        goals={
            0: [(name, partial(_are_at, cell)) for cell, (name, _) in enumerate(plain.goals[0])]
        },
        horizon=horizon,
    )
    def blocks(state: Any, actions: Any, successors: Any, prob: Any) -> int:
        after = successors[0]
        if state[0] in state[1:]:
            return 1
        if moved[state[0], actions[0]] not in state[1:]:
            after[0] = moved[state[0], actions[0]]
        if actions[1] > 0:
            box = 1 + (actions[1] - 1) // 4
            there = moved[state[box], 1 + (actions[1] - 1) % 4]
            if there not in state[1:]:
                after[box] = there
                after[1:].sort()
        return 1

    return blocks


def _are_at(cell: int, states: Int[np.ndarray, "state word"]) -> Bool[np.ndarray, " state"]:
    return states[:, 0] == cell
