"""Humans that step to where they are nearest to their goal: the benchmark's rule."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, UInt8
from torch import Tensor

from empo_benchmarks.blocks.board import DIRECTIONS, HUMAN_MOVES, STAY, Board
from empo_benchmarks.blocks.params import GreedyDistanceParams
from empo_benchmarks.blocks.world import BlocksWorld
from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel

CERTAIN = 1 << len(DIRECTIONS)
"""Stands for staying without noise, behind all sets of directions."""


class GreedyDistance:
    """Each human minimises the Euclidean distance to its goal after one step.

    A blocked move ends where it began. In an achieved goal, and under a box, humans stay.

    Attributes:
        is_stationary: It never depends on how many steps are left.
    """

    is_stationary = True

    def __init__(self, params: GreedyDistanceParams, world: WorldModel) -> None:
        """Tabulate the best directions of every cell, whatever is blocked.

        Raises:
            ConfigError: if the world is not a blocks world.
        """
        if not isinstance(world, BlocksWorld):
            raise ConfigError(
                f"human_prior 'greedy-distance' needs world_model 'blocks', not "
                f"{type(world).__name__} ({world.spec.name!r}); choose another prior"
            )
        self._world = world
        self._best = torch.from_numpy(best_directions(world.board, params))
        self._policy = torch.from_numpy(_policies(params.noise))

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human; the same at any time."""
        board = self._world.board
        human, boxes = states[:, 0].long(), states[:, 1:].long()
        target = torch.from_numpy(board.neighbour[:, :STAY]).long()[human]
        blocked = (target[:, :, None] == boxes[:, None, :]).any(-1)
        best = self._best[human, (blocked << torch.arange(STAY)).sum(-1)].long()
        stays = self._world.achieved(states) | (boxes == human[:, None]).any(1)[:, None]
        return self._policy[torch.where(stays, CERTAIN, best)]


def best_directions(
    board: Board, params: GreedyDistanceParams
) -> UInt8[np.ndarray, "cell 16 goal"]:
    """The best directions as bits, for each set of directions that boxes block."""
    x, y = np.arange(board.cells) % board.size, np.arange(board.cells) // board.size
    # Not hypot: roots of equal integers are equal, so that ties are ties.
    distance = np.sqrt((x[:, None] - x) ** 2 + (y[:, None] - y) ** 2)
    own_cell = np.arange(board.cells)[:, None]
    directions = np.empty((board.cells, 1 << STAY, board.cells), np.uint8)
    bits = 1 << np.arange(len(DIRECTIONS))[:, None]
    for blocked in range(1 << STAY):
        is_free = (board.neighbour >= 0) & (blocked >> np.arange(len(DIRECTIONS)) & 1 == 0)
        left = distance[np.where(is_free, board.neighbour, own_cell)]
        left[:, STAY] -= params.stay_bonus
        is_best: Bool[np.ndarray, "cell direction goal"] = left == left.min(1, keepdims=True)
        if params.ties == "first":
            is_best &= is_best.cumsum(1) == 1
        directions[:, blocked] = (is_best * bits).sum(1)
    return directions


def _policies(noise: float) -> Float64[np.ndarray, "item action"]:
    """Action probabilities of each set of best directions, and of staying for certain."""
    sets = np.arange(CERTAIN + 1)
    is_best = (sets[:, None] >> np.arange(len(DIRECTIONS)) & 1).astype(np.float64)
    # No set is empty; the first line is never looked up.
    shares = is_best / is_best.sum(1, keepdims=True).clip(1)
    policy = noise / len(DIRECTIONS) + (1 - noise) * shares
    policy[CERTAIN] = np.arange(len(DIRECTIONS)) == STAY
    by_action: Float64[np.ndarray, "item action"] = policy[:, HUMAN_MOVES]
    return by_action
