"""Assistance via empowerment (Du et al. 2020) without learning noise: the human gets room to move.

The reward of a state is the logarithm of the variance of where a human ends that takes some random
steps among boxes that do not move; the variance is exact where the original draws 20 rollouts.
Value iteration replaces Q-learning. The human is the benchmark's, with a goal drawn evenly in each
step: the robot cannot see it.
"""

from __future__ import annotations

import numpy as np
import torch
from esr_robots import ranks_of
from simulator import MOVES

from empo_benchmarks.blocks.params import GreedyDistanceParams
from empo_benchmarks.blocks.prior import GreedyDistance
from empo_benchmarks.blocks.world import BlocksWorld

FLOOR = 1e-3
"""Added to variances: that of a locked human is 0."""
AT_ONCE = 4096


def best_actions(
    world: BlocksWorld, kind: str, *, steps: int, discount: float, sweeps: int
) -> np.ndarray:
    """The robot's best action in each state [state]."""
    ranks = ranks_of(world)
    rows = torch.from_numpy(ranks.unrank(np.arange(ranks.count)))
    robots, humans = world.spec.num_robot_actions, world.spec.num_human_actions
    prior = GreedyDistance(GreedyDistanceParams(), world)
    chance = np.empty((ranks.count, 1, humans))
    after = np.empty((ranks.count, robots, humans), np.int32)
    for first in range(0, ranks.count, AT_ONCE):
        part = slice(first, first + AT_ONCE)
        chance[part, 0] = (
            prior.policy(rows[part], torch.full((len(rows[part]),), 1)).mean(1).numpy()
        )
        found = world.transitions(rows[part]).states.numpy()
        after[part] = ranks.rank(found).reshape(-1, robots, humans)
    reward = rewards(world, rows.numpy(), kind, steps)
    value = np.zeros(ranks.count)
    best = np.zeros(ranks.count, np.int64)
    for _ in range(sweeps):
        worth, value = reward + discount * value, np.empty(ranks.count)
        for first in range(0, ranks.count, AT_ONCE):
            part = slice(first, first + AT_ONCE)
            q = (chance[part] * worth[after[part]]).sum(2)
            best[part], value[part] = q.argmax(1), q.max(1)
    return best


def rewards(world: BlocksWorld, rows: np.ndarray, kind: str, steps: int) -> np.ndarray:
    """Log variance of the human's place after so many random steps [state]."""
    cells, boxes = world.board.cells, rows[: len(rows) // world.board.cells, 1:]
    own, y, x = np.arange(cells), *np.divmod(np.arange(cells), world.board.size)
    moments = np.empty((len(boxes), cells, 4))
    for number, where in enumerate(boxes.tolist()):
        step = np.zeros((cells, cells))
        for down, right in MOVES:
            row, column = y + down, x + right
            target = row * world.board.size + column
            inside = (row >= 0) & (row < world.board.size)
            inside &= (column >= 0) & (column < world.board.size) & ~np.isin(target, where)
            np.add.at(step, (own, np.where(inside, target, own)), 1 / len(MOVES))
        step[where] = np.eye(cells)[where]  # A crushed human does not move.
        reached = np.linalg.matrix_power(step, steps)
        moments[number] = reached @ np.stack([y, x, y**2, x**2], 1)
    mean, square = moments[..., :2], moments[..., 2:]
    if kind == "smart":
        variance = (square - mean**2).mean(-1)
    else:  # Of all rows and columns in one heap.
        variance = square.mean(-1) - mean.mean(-1) ** 2
    # States are numbered human by human, each with the boxes in the same order.
    return np.log(variance.T.ravel().clip(0) + FLOOR)
