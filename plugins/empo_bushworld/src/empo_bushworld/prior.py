"""Humans that walk straight towards their goals."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_bushworld.layout import MOVES
from empo_bushworld.plugin import ShortestPathParams
from empo_bushworld.world import BushWorld
from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel
from empo_worlds.grid.world import neighbours, positions


class ShortestPath:
    """Each human minimises the distance to its goal, blind to bushes and to other agents.

    An action counts by the cell it would lead to if nothing were in the way: a move off the
    grid stays where it is, like passing. With ``beta = inf`` all actions that leave the
    shortest distance are equally likely; otherwise they are proportional to
    exp(-beta * distance left).
    """

    def __init__(self, params: ShortestPathParams, world: WorldModel) -> None:
        """Tabulate the policy of every cell.

        Raises:
            ConfigError: if the world is not a bushworld.
        """
        if not isinstance(world, BushWorld):
            raise ConfigError(
                f"human_prior 'shortest-path' needs world_model 'bushworld', not "
                f"{type(world).__name__} ({world.spec.name!r}); choose another prior"
            )
        self._first = len(world.spec.robots)
        self._humans = len(world.spec.humans)
        beta = float("inf") if params.beta == "inf" else float(params.beta)
        left = distance_left(world)
        if beta == float("inf"):
            best = (left == left.amin(2, keepdim=True)).double()
            self._table = best / best.sum(2, keepdim=True)
        else:
            self._table = torch.softmax(-beta * left, 2)

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human; the same at any time."""
        cells = states[:, self._first : self._first + self._humans].long()
        # Every human has the same goals, and the goal axis lists them human by human.
        return self._table[cells].flatten(1, 2)


def distance_left(world: BushWorld) -> Float[Tensor, "cell goal action"]:
    """Steps from each goal after each action in each cell, on an empty grid."""
    layout = world.layout
    cell = torch.from_numpy(neighbours(layout.width, layout.height, MOVES))
    cell = torch.where(cell < 0, torch.arange(len(cell))[:, None], cell)
    x, y = positions(cell, layout.width)[:, None].unbind(-1)
    x1, y1, x2, y2 = torch.tensor(layout.goals).T[:, :, None]
    across = (x1 - x).clamp(min=0) + (x - x2).clamp(min=0)
    down = (y1 - y).clamp(min=0) + (y - y2).clamp(min=0)
    left: Tensor = (across + down).double()
    return left
