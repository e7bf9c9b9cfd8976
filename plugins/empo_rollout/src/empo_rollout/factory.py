"""The environments of a run: those to learn in, and those to evaluate in."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from empo_core.components import build
from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel
from empo_core.protocols.environments import (
    Environment,
    EnvironmentContext,
    EnvSpec,
    VectorEnv,
    VectorLayout,
)
from empo_core.random_streams import Stream, seed_of, stream
from empo_environments.components import of_caller
from empo_environments.trial import play_trial
from empo_rollout.params import RolloutParams
from empo_rollout.plan import SizeRequest, VecPlan, plan_vectorisation, usable_processors

WHERE = "algorithm.params.environment"
MOST_EVALUATED = 100
"""Environments that an evaluation plays at the same time."""


class EnvironmentFactory:
    """Makes the vectorised environments of a run.

    Attributes:
        rank: Of the process; the workers of each rank have random numbers of their own.
    """

    rank = 0

    def __init__(
        self,
        params: RolloutParams,
        world: WorldModel | None,
        directory: Path,
        seed: int = 0,
        make_env: Callable[[], Any] | None = None,
    ) -> None:
        """Build the environment component; no copy is made.

        Raises:
            ConfigError: if there is a world and none is used, or the other way round; or neither a
                component nor a function makes environments.
        """
        self._params, self._seed = params, seed
        self._environment = environment = _environment(
            params, EnvironmentContext(world=world, directory=directory, seed=seed), make_env
        )
        if world is not None and not environment.uses_world:
            raise ConfigError(
                f"{WHERE}: {environment.name!r} does not use the config's 'world_model'; drop "
                "that, or use environment 'world'"
            )

    @cached_property
    def spec(self) -> EnvSpec:
        """Constants of one copy."""
        try:
            return self._environment.spec()
        except ConfigError as error:
            raise _located(error) from error

    def plan(self) -> VecPlan:
        """Sizes of everything.

        Raises:
            ConfigError: if sizes do not fit each other.
        """
        sizes, experience, update = (
            self._params.vectorisation, self._params.experience, self._params.update,
        )  # fmt: skip
        request = SizeRequest(
            agents=len(self.spec.agents),
            bptt_horizon=experience.bptt_horizon,
            forward_pass_minibatch_target_size=sizes.forward_pass_minibatch_target_size,
            envs=self._params.num_envs,
            workers=sizes.workers,
            async_factor=sizes.async_factor,
            batch_size=experience.batch_size,
            minibatch_size=update.minibatch_size,
            max_minibatch_size=update.max_minibatch_size,
            by_steps=update.sampling == "steps",
            remembers=self._params.policy.has_memory,
            processes=self._in_processes,
        )
        plan, collection = plan_vectorisation(request), self._params.collection
        if collection is not None and plan.envs % collection.actors:
            raise ConfigError(
                f"algorithm.params.collection.actors: {collection.actors} actors cannot divide "
                f"{plan.envs} environments (num_envs)"
            )
        return plan

    def training(self, plan: VecPlan) -> VectorEnv:
        """The environments to learn in."""
        sizes = self._params.vectorisation
        layout = VectorLayout(
            workers=plan.workers if self._in_processes else 0,
            blocks=plan.blocks,
            order=sizes.order,
            on_crash=sizes.on_crash,
            answer_limit_s=sizes.answer_limit_s,
            desync=sizes.desync,
            seed=seed_of(stream(self._seed, Stream.WORKERS, self.rank)),
        )
        vector = self._environment.vector(plan.envs, layout)
        plan.require(vector.spec)
        return vector

    def part(self, plan: VecPlan, number: int) -> VectorEnv:
        """The environments of one actor, of which the plan is a part."""
        desync = self._params.vectorisation.desync
        return self._environment.vector(
            plan.envs, VectorLayout(first=number * plan.envs, desync=desync)
        )

    def evaluation(self, episodes: int) -> tuple[VectorEnv, int]:
        """Environments to play about so many episodes in, and how many in each."""
        agents = len(self.spec.agents)
        copies = min(-(-episodes // agents), MOST_EVALUATED)
        vector = self._environment.vector(copies, VectorLayout())
        return vector, -(-episodes // (copies * agents))

    def trial(self) -> dict[str, str]:
        """The outcome of one episode with random actions, for ``empo check``.

        Worlds are checked by themselves, and may have to be solved before they pay anything.

        Raises:
            ConfigError: if the environment does not fit.
            CollectError: if the environment returns what a run cannot learn from.
        """
        if self._environment.uses_world:
            return {}
        return {"trial episode": play_trial(self._environment, self._seed)}

    def filmed(self) -> tuple[VectorEnv, Callable[[], UInt8[np.ndarray, "height width 3"]]]:
        """One environment that can be drawn, and what draws it.

        Raises:
            ConfigError: if the environment draws no pictures.
        """
        vector = self._environment.vector(1, VectorLayout(rendering=True))
        render = getattr(vector, "render", None)
        if render is None:
            vector.close()
            raise ConfigError(
                f"{WHERE}: {type(vector).__name__} steps all copies of {self._environment.name!r} "
                "in one call and draws none; environments that draw are copies, e.g. those of "
                "'gymnasium'"
            )
        return vector, lambda: render(0)

    @property
    def name(self) -> str:
        """Short name of the environment, for people."""
        return self._environment.name

    @property
    def _in_processes(self) -> bool:
        """True if environments live in worker processes."""
        sizes = self._params.vectorisation
        if not self._environment.uses_workers or self._params.collection is not None:
            return False
        if sizes.backend != "auto":
            return sizes.backend == "process"
        environment = self._environment
        return usable_processors() > 1 and not environment.steps_together


def _environment(
    params: RolloutParams, context: EnvironmentContext, make_env: Callable[[], Any] | None
) -> Environment:
    named = params.environment
    caller_environment = of_caller(
        make_env, is_named=named is not None, where=WHERE, example="gymnasium/CartPole-v1"
    )
    if caller_environment is not None:
        return caller_environment
    assert named is not None  # Else it was refused.
    try:
        environment: Environment = build(named, context)
    except ConfigError as error:
        raise _located(error) from error
    return environment


def _located(error: ConfigError) -> ConfigError:
    """The error with the place in the config, unless it names one."""
    text = str(error)
    return error if text.startswith("algorithm.") else ConfigError(f"{WHERE}: {text}")
