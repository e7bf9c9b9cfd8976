"""A human prior per goal slot, cached by state and steps left."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.protocols import HumanPrior, WorldModel
from empo_learning.state_cache import StateCache
from empo_phase2.goal_index import goal_index_of
from empo_worlds.ensemble import EnsembleWorld, layouts_of
from empo_worlds.policy_checks import checked_human_policy


class CachedPrior:
    """Policies of each goal slot's human, ``[state slot action]``; float32, 0 for missing goals.

    Actors meet the same states again and again, and priors are slow: they plan.
    """

    def __init__(self, prior: HumanPrior, world: WorldModel, *, max_bytes: int = 2**26) -> None:
        """Wrap a prior; once policies take more than ``max_bytes`` of memory, all are dropped."""
        self._prior, self._world, self._goals = prior, world, goal_index_of(world)
        # The prior of an ensemble checks those of its worlds: the goals of others have no policy.
        self._is_whole = not isinstance(world, EnsembleWorld)
        dtype = torch.promote_types(world.spec.state_dtype, torch.int32)
        self._cache = StateCache(
            self._policy, world.spec.state_words, dtype=dtype, max_bytes=max_bytes
        )

    def __call__(
        self, rows: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state slot action"]:
        """Policy of each slot's human, pursuing the slot's goal, in each state."""
        return self._cache(rows, steps_left)

    def _policy(self, rows: Tensor, steps_left: Tensor) -> Tensor:
        policy = self._prior.policy(rows, steps_left)
        if self._is_whole:
            policy = checked_human_policy(self._world, rows, policy)
        goal = self._goals.goal[layouts_of(self._world, rows)]
        by_slot = policy[torch.arange(len(rows))[:, None], goal.clamp(min=0)]
        return torch.where(goal[..., None] >= 0, by_slot, 0.0).float()
