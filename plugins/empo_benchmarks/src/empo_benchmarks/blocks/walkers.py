"""Softmax-rational humans of a blocks world: they walk to their goal around boxes that stay."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from empo_benchmarks.blocks.board import HUMAN_MOVES, STAY, Board
from empo_benchmarks.blocks.params import SoftmaxDistanceParams
from empo_benchmarks.blocks.world import BlocksWorld
from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel

Places = Bool[np.ndarray, "item cell"]


class SoftmaxDistance:
    """Each human takes an action with probability proportional to exp(-beta d).

    d is the number of steps from the cell where the action ends to the goal, around the boxes as
    they stand; where boxes cut the goal off, d is the number of cells of the board, more than any
    way is long. In an achieved goal, and under a box, humans stay.

    Attributes:
        is_stationary: It never depends on how many steps are left.
    """

    is_stationary = True

    def __init__(self, params: SoftmaxDistanceParams, world: WorldModel) -> None:
        """Keep the world's board.

        Raises:
            ConfigError: if the world is not a blocks world.
        """
        if not isinstance(world, BlocksWorld):
            raise ConfigError(
                f"human_prior 'softmax-distance' needs world_model 'blocks', not "
                f"{type(world).__name__} ({world.spec.name!r}); choose another prior"
            )
        self._world, self._beta = world, params.beta

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human; the same at any time."""
        board, rows = self._world.board, states.numpy().astype(np.int64)
        human = rows[:, 0]
        # Many states differ in the human's cell only.
        boxes, arrangement = np.unique(rows[:, 1:], axis=0, return_inverse=True)
        has_box = np.zeros((len(boxes), board.cells), bool)
        np.put_along_axis(has_box, boxes, True, 1)
        target = targets(board, has_box)
        distance = walking_distances(has_box, target)
        arrangement = arrangement.ravel()
        ends = target[arrangement, human]  # [state, direction]
        left = distance[arrangement[:, None], ends][:, HUMAN_MOVES]  # [state, action, goal]
        policy = torch.softmax(torch.from_numpy(-self._beta * left.astype(np.float64)), 1)
        stays = torch.from_numpy(human[:, None] == np.arange(board.cells))
        stays = stays | self._world.is_crushed(states)[:, None]
        first = torch.eye(len(HUMAN_MOVES), dtype=torch.float64)[HUMAN_MOVES.index(STAY)]
        return torch.where(stays[:, :, None], first, policy.transpose(1, 2))


def targets(board: Board, has_box: Places) -> Int64[np.ndarray, "item cell direction"]:
    """The cell where a human ends that goes in each direction: its own, where it is blocked."""
    cell = np.arange(board.cells)[:, None]
    to = np.where(board.neighbour < 0, cell, board.neighbour)
    return np.where(has_box[:, to], cell, to)


def walking_distances(
    has_box: Places, target: Int64[np.ndarray, "item cell direction"]
) -> Int64[np.ndarray, "item cell goal"]:
    """Steps from each cell to each goal around boxes; as many as there are cells for no way."""
    items, cells = has_box.shape
    distance = np.where(np.eye(cells, dtype=bool), 0, np.full((items, cells, cells), cells))
    item = np.arange(items)[:, None]
    while True:
        shorter = distance
        for direction in range(STAY):
            shorter = np.minimum(shorter, 1 + distance[item, target[:, :, direction]])
        if np.array_equal(shorter, distance):
            return distance
        distance = shorter
