"""Environment ``world``: copies of the run's world model."""

from __future__ import annotations

from functools import cached_property

from empo_core.components import build
from empo_core.errors import ConfigError
from empo_core.plugins.registry import Registry
from empo_core.protocols import Environment, HumanPrior
from empo_core.protocols.environments import EnvironmentContext, EnvSpec, VectorLayout
from empo_world_environments.observation import WorldObservation
from empo_world_environments.params import GoalReward, PowerReward, WorldParams
from empo_world_environments.reward import Power, power_reward
from empo_world_environments.vector import WorldVectorEnv, check_learners, world_spec


class WorldEnvironment(Environment):
    """Copies of the run's world; implements kind ``environment``.

    The reward and the human prior are built once, when copies are first made.
    """

    uses_world = True

    def __init__(
        self, params: WorldParams, context: EnvironmentContext, registry: Registry | None = None
    ) -> None:
        """Check the roles of the world's agents; nothing is solved yet.

        Args:
            params: The agents that learn, their reward, and the behaviour of the others.
            context: Has the world; its directory receives the results of an algorithm that
                solves the world for the reward, which its seed seeds.
            registry: Where names are looked up; default: the installed plugins.

        Raises:
            ConfigError: if there is no world, or it does not fit the params.
        """
        if context.world is None:
            raise ConfigError(
                "'world' needs a world: add 'world_model' to the config, e.g. "
                "'world_model: multigrid/trivial' (see: empo worlds)"
            )
        check_learners(
            context.world.spec,
            params.learners,
            pays_goals=isinstance(params.reward, GoalReward),
        )
        self.name = context.world.spec.name
        self._params, self._world, self._context = params, context.world, context
        self._registry = registry

    def spec(self) -> EnvSpec:
        """Constants of one copy; builds nothing."""
        return world_spec(
            WorldObservation(self._world.spec, self._params.learners),
            1,
            pays_goals=isinstance(self._params.reward, GoalReward),
        )

    def vector(self, num_envs: int, layout: VectorLayout, *, joint: bool = False) -> WorldVectorEnv:
        """Copies, of which all of a block step in one call.

        Args:
            num_envs: How many.
            layout: Their layout.
            joint: Whether all robots of a copy are one agent; see ``WorldVectorEnv``.

        Raises:
            ConfigError: if the source of the reward does not fit; see ``power_reward``.
            SolveError: if the algorithm cannot solve the world, or a human has no goal.
        """
        return WorldVectorEnv(
            self._world,
            copies=num_envs,
            learners=self._params.learners,
            reward=self._reward,
            prior=self._prior,
            goal_resample_prob=self._params.goal_resample_prob,
            steps_per_episode=self._params.steps_per_episode,
            blocks=layout.blocks,
            desync=layout.desync,
            terminal_observations=layout.terminal_observations,
            first=layout.first,
            joint=joint,
        )

    @cached_property
    def _reward(self) -> Power | None:
        reward = self._params.reward
        if not isinstance(reward, PowerReward):
            return None
        return power_reward(
            reward,
            self._world,
            self._context.directory,
            seed=self._context.seed,
            registry=self._registry,
        )

    @cached_property
    def _prior(self) -> HumanPrior | None:
        reference = self._params.human_prior
        if reference is None:
            return None
        prior: HumanPrior = build(reference, self._world, registry=self._registry)
        return prior
