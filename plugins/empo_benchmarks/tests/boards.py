"""States of a world as the simulator has them, and random ones."""

from __future__ import annotations

import numpy as np
import simulator
import torch
from torch import Tensor

from empo_benchmarks.blocks.ranks import Ranks
from empo_benchmarks.blocks.world import BlocksWorld

NAMES = ("left", "down", "right", "up", "stay")
"""Of the simulator's directions."""


def random_states(world: BlocksWorld, count: int, rng: np.random.Generator) -> Tensor:
    """Rows drawn evenly from all, reachable or not."""
    ranks = Ranks(world.board.cells, world.board.boxes)
    return torch.from_numpy(ranks.unrank(rng.integers(ranks.count, size=count)))


def as_grid(world: BlocksWorld, states: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Human and boxes as the simulator wants them."""
    rows, size = states.long().numpy(), world.board.size
    grid = np.zeros((len(rows), size * size), dtype=bool)
    np.put_along_axis(grid, rows[:, 1:], True, 1)
    return rows[:, 0], grid.reshape(-1, size, size)


def as_rows(human: np.ndarray, boxes: np.ndarray) -> Tensor:
    """Rows of a world."""
    cells = np.nonzero(boxes.reshape(len(boxes), -1))[1].reshape(len(boxes), -1)
    return torch.from_numpy(np.concatenate([human[:, None], cells], 1).astype(np.int16))


def pushes(world: BlocksWorld, states: Tensor, actions: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Cell and direction of the robot's actions, read from their names."""
    cells, directions = [], []
    for row, action in zip(states.tolist(), actions.tolist(), strict=True):
        first, *others = world.spec.agents[1].actions[action].split()
        if first == "box":
            cells.append(row[int(others[0])])
        elif first == "still":
            cells.append(0)
        else:
            x, y = map(int, first.strip("()").split(","))
            cells.append(y * world.board.size + x)
        directions.append(NAMES.index(others[-1]) if others else simulator.STAY)
    return np.array(cells), np.array(directions)


def stepped(world: BlocksWorld, states: Tensor, actions: Tensor) -> Tensor:
    """Successors by the simulator."""
    human, boxes = as_grid(world, states)
    moves = [NAMES.index(world.spec.agents[0].actions[action]) for action in actions[:, 0].tolist()]
    human = simulator.moved_human(human, np.array(moves), boxes)
    crushed = simulator.holds_box(human, boxes)
    after = simulator.moved_boxes(boxes, *pushes(world, states, actions[:, 1]))
    return as_rows(human, np.where(crushed[:, None, None], boxes, after))
