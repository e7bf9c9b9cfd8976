"""Humans who know what to do next for what they want."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_benchmarks.overcooked.kitchen import ACTIONS
from empo_benchmarks.overcooked.params import KitchenPlannerParams
from empo_benchmarks.overcooked.world import OvercookedWorld
from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel


class KitchenPlanner:
    """Each human takes the nearest of what its goal needs next; in achieved goals it stays."""

    def __init__(self, params: KitchenPlannerParams, world: WorldModel) -> None:
        """Keep what is needed.

        Raises:
            ConfigError: if the world is not a kitchen.
        """
        if not isinstance(world, OvercookedWorld):
            raise ConfigError(
                f"human_prior 'kitchen-planner' needs world_model 'overcooked', not "
                f"{type(world).__name__} ({world.spec.name!r}); choose another prior"
            )
        self._world, self._noise = world, params.noise

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human; the same at any time."""
        noise = (~self._world.achieved(states)).double() * self._noise
        is_chosen = self._world.goal_actions(states)[..., None] == torch.arange(len(ACTIONS))
        return noise[..., None] / len(ACTIONS) + (1 - noise[..., None]) * is_chosen
