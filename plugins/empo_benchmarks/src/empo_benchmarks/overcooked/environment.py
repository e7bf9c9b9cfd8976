"""Environment ``overcooked``: copies of the run's kitchen, paid for soups."""

from __future__ import annotations

from functools import cached_property

from empo_benchmarks.overcooked.kitchens import KitchenVectorEnv, Partner, env_spec
from empo_benchmarks.overcooked.params import KitchenParams
from empo_benchmarks.overcooked.world import OvercookedWorld
from empo_core.components import build
from empo_core.errors import ConfigError
from empo_core.plugins.registry import Registry
from empo_core.protocols import Environment, HumanPrior
from empo_core.protocols.environments import EnvironmentContext, EnvSpec, VectorEnv, VectorLayout


class KitchenEnvironment(Environment):
    """Copies of the run's kitchen; implements kind ``environment``."""

    uses_world = True

    def __init__(
        self, params: KitchenParams, context: EnvironmentContext, registry: Registry | None = None
    ) -> None:
        """Check the world.

        Args:
            params: The cooks that learn, what they are paid, and how the other one acts.
            context: Has the world.
            registry: Where names are looked up; default: the installed plugins.

        Raises:
            ConfigError: if there is no kitchen, or the human has no such goal.
        """
        world = context.world
        if not isinstance(world, OvercookedWorld):
            actual = "there is none" if world is None else f"it is {world.spec.name!r}"
            raise ConfigError(f"environment 'overcooked' needs 'world_model: overcooked'; {actual}")
        goals = [goal.name for goal in world.spec.goals]
        if params.goal not in goals:
            raise ConfigError(
                f"environment.params.goal: the human has no goal {params.goal!r}; it has: "
                f"{', '.join(goals)}"
            )
        self.name = world.spec.name
        self._world, self._params, self._registry = world, params, registry
        self._goal = goals.index(params.goal)

    def spec(self) -> EnvSpec:
        """Constants of one copy."""
        return env_spec(self._world, is_alone=self._params.learners == "robot", copies=1, blocks=1)

    def vector(self, num_envs: int, layout: VectorLayout) -> VectorEnv:
        """Copies, of which all of a block step in one call."""
        return KitchenVectorEnv(
            self._world,
            copies=num_envs,
            shaping=self._params.shaping,
            partner=self._partner,
            blocks=layout.blocks,
            desync=layout.desync,
            first=layout.first,
        )

    @cached_property
    def _partner(self) -> Partner | None:
        reference = self._params.human_prior
        if reference is None:
            return None
        prior: HumanPrior = build(reference, self._world, registry=self._registry)
        return Partner(prior, self._goal)
