"""From the params of kind ``world`` to its environments."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from empo_core.experiment import build
from empo_core.plugins.registry import Registry
from empo_core.protocols import HumanPrior, WorldModel
from empo_rollout.empowerment.observation import WorldObservation
from empo_rollout.empowerment.reward import Power, power_reward
from empo_rollout.empowerment.world_vector import WorldVectorEnv, check_learners
from empo_rollout.environments import PowerReward, WorldParams


class Worlds:
    """Makes vectors of copies of a world; what they pay and how humans act is made once."""

    def __init__(
        self,
        params: WorldParams,
        world: WorldModel,
        directory: Path,
        *,
        seed: int = 0,
        registry: Registry | None = None,
    ) -> None:
        """Check that somebody is there to learn; nothing is solved yet.

        Args:
            params: What is asked for.
            world: The run's world.
            directory: Where an algorithm leaves its files that must solve the world first.
            seed: Seeds that algorithm.
            registry: Where names are looked up; default: the installed plugins.

        Raises:
            ConfigError: The world and the params do not fit together.
        """
        check_learners(world.spec, params.learners)
        self._params, self._world, self._directory = params, world, directory
        self._seed, self._registry = seed, registry

    @property
    def agents(self) -> int:
        """How many agents of each copy learn."""
        return len(WorldObservation(self._world.spec, self._params.learners).agents)

    def vector(self, copies: int, *, blocks: int = 1, desync: bool = False) -> WorldVectorEnv:
        """So many copies.

        Raises:
            ConfigError: The source of the reward does not fit; see ``power_reward``.
            SolveError: It cannot solve the world, or a human has no goal.
        """
        return WorldVectorEnv(
            self._world,
            copies=copies,
            learners=self._params.learners,
            reward=self._reward,
            prior=self._prior,
            goal_resample_prob=self._params.goal_resample_prob,
            blocks=blocks,
            desync=desync,
        )

    @cached_property
    def _reward(self) -> Power | None:
        reward = self._params.reward
        if not isinstance(reward, PowerReward):
            return None
        return power_reward(
            reward, self._world, self._directory, seed=self._seed, registry=self._registry
        )

    @cached_property
    def _prior(self) -> HumanPrior | None:
        reference = self._params.human_prior
        if reference is None:
            return None
        prior: HumanPrior = build(reference, self._world, registry=self._registry)
        return prior
