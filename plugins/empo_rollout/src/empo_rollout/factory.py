"""From params to environments: the only place that knows every kind of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium

from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel
from empo_core.protocols.environments import VectorEnv
from empo_environments.desync import DesyncEnv
from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.gymnasium_vector import GymnasiumVectorEnv
from empo_environments.process import ProcessVectorEnv
from empo_environments.serial import SerialVectorEnv
from empo_environments.single_env import MakeEnv, SingleEnv
from empo_rollout.empowerment.world_environments import Worlds
from empo_rollout.environments import (
    GymnasiumParams,
    GymnasiumVectorParams,
    PettingZooParams,
    WorldParams,
)
from empo_rollout.params import RolloutParams
from empo_rollout.plan import SizeRequest, VecPlan, plan_vectorisation, usable_processors

WHERE = "algorithm.params.environment"
MOST_EVALUATED = 100
"""Environments that an evaluation plays at the same time."""


@dataclass(frozen=True)
class MakeGymnasium:
    """Makes a Gymnasium environment."""

    params: GymnasiumParams

    def __call__(self) -> SingleEnv:
        """A new one.

        Raises:
            ConfigError: There is none of this name, or it takes other arguments.
        """
        params = self.params
        if params.factory is not None:
            env = _called(params.factory, params.kwargs)
        else:
            env = _registered(gymnasium.make, params.id, params.kwargs, disable_env_checker=True)
        return GymnasiumEnv(env, reasons=params.reasons)


@dataclass(frozen=True)
class MakePettingZoo:
    """Makes a PettingZoo environment."""

    params: PettingZooParams

    def __call__(self) -> SingleEnv:
        """A new one.

        Raises:
            ConfigError: The factory cannot be imported, or takes other arguments.
        """
        # Imported here because PettingZoo is an optional dependency.
        from empo_environments.pettingzoo_env import PettingZooEnv

        env = _called(self.params.factory, self.params.kwargs)
        return PettingZooEnv(env, reasons=self.params.reasons)


@dataclass(frozen=True)
class MakeDesynchronised:
    """Makes an environment whose first episode is cut off early."""

    make: MakeEnv

    def __call__(self) -> SingleEnv:
        """A new one."""
        return DesyncEnv(self.make())


@dataclass(frozen=True)
class MakeVector:
    """Makes a Gymnasium vector environment of so many copies."""

    params: GymnasiumVectorParams
    copies: int

    def __call__(self) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """A new one.

        Raises:
            ConfigError: There is none of this name, or it takes other arguments.
        """
        params = self.params
        if params.factory is not None:
            made = _called(params.factory, {"num_envs": self.copies, **params.kwargs})
        else:
            made = _registered(gymnasium.make_vec, params.id, params.kwargs, num_envs=self.copies)
        if not isinstance(made, gymnasium.vector.VectorEnv):
            raise ConfigError(
                f"{WHERE}: {params.factory or params.id!r} made a {type(made).__name__}, not a "
                "gymnasium.vector.VectorEnv; use kind 'gymnasium' for single environments"
            )
        return made


class Environments:
    """Makes the environments of a run: those to learn in, and those to be judged in."""

    def __init__(
        self, params: RolloutParams, world: WorldModel | None, directory: Path, seed: int = 0
    ) -> None:
        """Check that there is what is to be acted in.

        Args:
            params: Everything about the run.
            world: The run's world, if it has one.
            directory: Where an algorithm leaves its files that must solve the world first.
            seed: Seeds that algorithm.

        Raises:
            ConfigError: There is a world and none is needed, or the other way round.
        """
        self._params = params
        environment = params.environment
        self._worlds: Worlds | None = None
        if isinstance(environment, WorldParams):
            if world is None:
                raise ConfigError(
                    f"{WHERE}.kind: 'world' needs a world: add 'world_model' to the config, e.g. "
                    "'world_model: multigrid/trivial' (see: empo worlds)"
                )
            self._worlds = Worlds(environment, world, directory, seed=seed)
        elif world is not None:
            raise ConfigError(
                f"{WHERE}.kind: {environment.kind!r} does not use the config's 'world_model'; drop "
                "that, or set kind to 'world'"
            )

    def plan(self) -> VecPlan:
        """Sizes of everything.

        Raises:
            ConfigError: Sizes do not fit each other, and ``strict`` forbids to adjust them.
        """
        sizes, experience, update = (
            self._params.vectorisation, self._params.experience, self._params.update,
        )  # fmt: skip
        request = SizeRequest(
            agents=self._agents,
            bptt_horizon=experience.bptt_horizon,
            forward_pass_minibatch_target_size=sizes.forward_pass_minibatch_target_size,
            envs=self._params.num_envs,
            workers=sizes.workers,
            async_factor=sizes.async_factor,
            batch_size=experience.batch_size,
            minibatch_size=update.minibatch_size,
            max_minibatch_size=update.max_minibatch_size,
            by_steps=update.sampling == "steps",
            processes=self._in_processes,
            order=sizes.order,
            strict=sizes.strict,
        )
        return plan_vectorisation(request)

    def training(self, plan: VecPlan) -> VectorEnv:
        """The environments to learn in."""
        sizes = self._params.vectorisation
        if self._make is None:
            vector = self._batched(plan.envs, desync=sizes.desync)
        else:
            make = MakeDesynchronised(self._make) if sizes.desync else self._make
            makes = [make] * plan.envs
            if self._in_processes:
                vector = ProcessVectorEnv(
                    makes,
                    workers=plan.workers,
                    blocks=plan.blocks,
                    order=sizes.order,
                    on_crash=sizes.on_crash,
                )
            else:
                vector = SerialVectorEnv(makes, blocks=plan.blocks, order=sizes.order)
        plan.require(vector.spec)
        return vector

    def evaluation(self, episodes: int) -> tuple[VectorEnv, int]:
        """Environments to play about so many episodes in, and how many in each."""
        copies = min(-(-episodes // self._agents), MOST_EVALUATED)
        if self._make is None:
            vector = self._batched(copies)
        else:
            vector = SerialVectorEnv([self._make] * copies, blocks=1, order="rotation")
        return vector, -(-episodes // (copies * self._agents))

    @property
    def _in_processes(self) -> bool:
        """Whether environments live in worker processes."""
        sizes = self._params.vectorisation
        if self._make is None:
            return False
        return sizes.backend == "process" or (sizes.backend == "auto" and usable_processors() > 1)

    @cached_property
    def _make(self) -> MakeEnv | None:
        """What makes one environment; None where all are one."""
        params = self._params.environment
        if isinstance(params, GymnasiumParams):
            return MakeGymnasium(params)
        return MakePettingZoo(params) if isinstance(params, PettingZooParams) else None

    @cached_property
    def _agents(self) -> int:
        """Agents of one environment."""
        if self._worlds is not None:
            return self._worlds.agents
        if self._make is None:  # A vector of environments with one agent each.
            return 1
        env = self._make()
        try:
            return len(env.agents)
        finally:
            env.close()

    def _batched(self, copies: int, desync: bool = False) -> VectorEnv:
        """Environments that step in one call."""
        params = self._params.environment
        if isinstance(params, GymnasiumVectorParams):
            if desync:
                raise ConfigError(
                    "algorithm.params.vectorisation.desync: cannot cut off episodes of a Gymnasium "
                    "vector environment; set it to false"
                )
            return GymnasiumVectorEnv(MakeVector(params, copies), autoreset=params.autoreset)
        assert self._worlds is not None
        return self._worlds.vector(copies, desync=desync)


def _registered(
    make: Callable[..., Any], name: str | None, kwargs: dict[str, Any], **ours: Any
) -> Any:
    """What Gymnasium makes of a name.

    Raises:
        ConfigError: It knows no such environment, or the environment refuses the arguments.
    """
    try:
        return make(name, **ours, **kwargs)
    except gymnasium.error.Error as error:
        raise ConfigError(f"{WHERE}.id: {error}") from error
    except Exception as error:
        raise ConfigError(
            f"{WHERE}: {name!r} cannot be made with {kwargs}: {type(error).__name__}: {error}"
        ) from error


def _called(factory: str, kwargs: dict[str, Any]) -> Any:
    """What a ``package.module:callable`` returns.

    Raises:
        ConfigError: It cannot be imported, or refuses the arguments.
    """
    module, _, name = factory.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{WHERE}.factory: {factory!r} cannot be imported: {error}") from error
    try:
        return function(**kwargs)
    except Exception as error:
        raise ConfigError(
            f"{WHERE}: {factory!r} failed with {kwargs}: {type(error).__name__}: {error}"
        ) from error
