"""Mirrors and rotations of a board."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int, Int16, Int64
from torch import Tensor

from empo_benchmarks.blocks.board import DIRECTIONS, HUMAN_MOVES, MOVES, STAY, Board
from empo_core.world_structure import Symmetry
from empo_worlds.compilation import compiled


@compiled
def write_images(
    states: Int16[np.ndarray, "state word"],
    cell: Int16[np.ndarray, " cell"],
    images: Int16[np.ndarray, "state word"],
) -> None:
    """Write each state with every cell replaced, and the boxes in ascending order again."""
    for state in range(states.shape[0]):
        images[state, 0] = cell[states[state, 0]]
        for word in range(1, states.shape[1]):
            image_cell, place = cell[states[state, word]], word
            while place > 1 and images[state, place - 1] > image_cell:
                images[state, place] = images[state, place - 1]
                place -= 1
            images[state, place] = image_cell


def board_symmetries(board: Board) -> list[Symmetry]:
    """A mirror and a rotation, from which all eight symmetries of the square follow."""
    y, x = np.divmod(np.arange(board.cells), board.size)
    last = board.size - 1
    turned = [MOVES.index((-dy, dx)) for dx, dy in MOVES]
    mirrored = [MOVES.index((-dx, dy)) for dx, dy in MOVES]
    return [
        _symmetry(board, "mirror left and right", y * board.size + last - x, mirrored),
        _symmetry(board, "rotate by a quarter turn", x * board.size + last - y, turned),
    ]


def _symmetry(
    board: Board, name: str, cell: Int64[np.ndarray, " cell"], direction: list[int]
) -> Symmetry:
    """The symmetry that moves each cell to ``cell`` and so turns each direction."""
    cell_map, turned = torch.from_numpy(cell).to(torch.int16), torch.tensor(direction)
    human = torch.tensor([HUMAN_MOVES.index(direction[move]) for move in HUMAN_MOVES])
    width = max(len(HUMAN_MOVES), len(board.robot_action_names))

    def rows(states: Int[Tensor, "state word"]) -> Int[Tensor, "state word"]:
        images = torch.empty_like(states)
        write_images(states.contiguous().numpy(), cell_map.numpy(), images.numpy())
        return images

    def actions(states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent action"]:
        action_map = torch.zeros((len(states), 2, width), dtype=torch.int64)
        action_map[:, 0, : len(human)] = human
        if board.robot_actions == "cells":
            robot = len(DIRECTIONS) * torch.from_numpy(cell)[:, None] + turned
            action_map[:, 1] = robot.flatten()
            return action_map
        # A box is called by its rank among the cells of all, which the image changes.
        rank = cell_map[states[:, 1:].long()].argsort(1).argsort(1)
        action_map[:, 1, 1:] = (1 + STAY * rank[:, :, None] + turned[:STAY]).flatten(1)
        return action_map

    return Symmetry(
        name=name, rows=rows, agents=(0, 1), actions=actions, goals=tuple(cell.tolist())
    )
