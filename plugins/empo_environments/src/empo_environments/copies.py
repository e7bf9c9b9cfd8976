"""Environments whose copies are single environments, stepped here or in worker processes."""

from __future__ import annotations

from dataclasses import dataclass

from empo_core.best_effort import best_effort
from empo_core.protocols import Environment
from empo_core.protocols.environments import EnvSpec, VectorEnv, VectorLayout
from empo_environments.env_group import located, spec_of
from empo_environments.params import WrapperParams
from empo_environments.process import ProcessVectorEnv
from empo_environments.serial import SerialVectorEnv
from empo_environments.single_env import MakeEnv, SingleEnv
from empo_environments.wrappers import DesyncEnv, LimitSteps, RepeatAction, StackFrames


@dataclass(frozen=True)
class MakeWrapped:
    """Makes an environment with the wrappers that params name.

    Attributes:
        make: Makes the environment.
        params: The wrappers.
        desync: Whether the first episode is cut off early.
    """

    make: MakeEnv
    params: WrapperParams
    desync: bool = False

    def __call__(self) -> SingleEnv:
        """A new environment."""
        env, params = self.make(), self.params
        if params.action_repeat > 1:
            env = RepeatAction(env, params.action_repeat)
        if params.frame_stack > 1:
            env = StackFrames(env, params.frame_stack)
        if params.max_episode_steps is not None:
            env = LimitSteps(env, params.max_episode_steps)
        return DesyncEnv(env) if self.desync else env


class CopiedEnvironment(Environment):
    """An environment made of single environments; implements kind ``environment``.

    Args:
        name: Short name for people.
        make: Makes one; sent to worker processes by cloudpickle.
        params: Its wrappers; None: none.
        make_rendering: Makes one that draws pictures for people; None: ``make`` does.

    Attributes:
        params: See above.
    """

    uses_workers = True

    def __init__(
        self,
        name: str,
        make: MakeEnv,
        params: WrapperParams | None = None,
        make_rendering: MakeEnv | None = None,
    ) -> None:
        self.name = name
        self._make, self.params = make, params or WrapperParams()
        self._make_rendering = make_rendering or make

    def spec(self) -> EnvSpec:
        """Constants of one copy, which is built, reset and closed.

        Raises:
            ConfigError: if the environment does not fit.
            CollectError: if the environment cannot be made or reset.
        """
        with located(f"environment {self.name!r}", "could not be made"):
            env = MakeWrapped(self._make, self.params)()
        try:
            return spec_of(env)
        finally:
            with best_effort(f"closing a copy of {self.name}"):
                env.close()

    def vector(self, num_envs: int, layout: VectorLayout) -> VectorEnv:
        """Copies in this process, or in worker processes where the layout has some."""
        make = self._make_rendering if layout.rendering else self._make
        makes = [MakeWrapped(make, self.params, layout.desync)] * num_envs
        if not layout.workers:
            return SerialVectorEnv(
                makes,
                blocks=layout.blocks,
                order=layout.order,
                first=layout.first,
                terminal_observations=layout.terminal_observations,
            )
        return ProcessVectorEnv(
            makes,
            workers=layout.workers,
            blocks=layout.blocks,
            order=layout.order,
            on_crash=layout.on_crash,
            answer_limit_s=layout.answer_limit_s,
            first=layout.first,
            seed=layout.seed,
        )
