"""The components of kind ``environment`` that this distribution offers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import gymnasium
from gymnasium.wrappers import FilterObservation

from empo_core.best_effort import best_effort
from empo_core.errors import CollectError, ConfigError
from empo_core.protocols import Environment
from empo_core.protocols.environments import EnvironmentContext, EnvSpec, VectorEnv, VectorLayout
from empo_environments.copies import CopiedEnvironment
from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.gymnasium_vector import GymnasiumVectorEnv
from empo_environments.params import (
    DmcParams,
    GymnasiumParams,
    GymnasiumVectorParams,
    PettingZooParams,
    WrapperParams,
)
from empo_environments.pictures import ResizePicture, with_picture_high
from empo_environments.registries import (
    has_vector_class,
    make_gymnasium,
    make_pettingzoo,
    package_of,
    picture_high,
)
from empo_environments.single_env import SingleEnv
from empo_environments.types import GymEnv, GymVectorEnv, Value

MakeGymEnv = Callable[[bool], GymEnv]
"""Makes an environment; with True one whose ``render`` returns pictures, where it can."""
RENDER = {"render_mode": "rgb_array"}
FEWEST_TOGETHER = 8
"""Copies from which a vector class is faster than they are one by one."""


class GymnasiumBacked(CopiedEnvironment):
    """An environment whose copies are single Gymnasium environments.

    Args:
        name: Short name for people.
        make: Makes one.
        params: Its wrappers.
        reasons: Names of its termination reasons; None knows only its two flags.
    """

    def __init__(
        self, name: str, make: MakeGymEnv, params: WrapperParams, reasons: list[str] | None = None
    ) -> None:
        size = params.picture_size
        super().__init__(
            name,
            _Adapted(make, size, reasons),
            params,
            _Adapted(make, size, reasons, rendering=True),
        )
        self._make_gym, self._reasons = make, reasons

    def with_picture_size(self, size: int) -> GymnasiumBacked:
        """The same environment, whose picture is resized unless ``params`` say to what."""
        if self.params.picture_size is not None:
            return self
        params = self.params.model_copy(update={"picture_size": size})
        return GymnasiumBacked(self.name, self._make_gym, params, self._reasons)


class GymnasiumEnvironment(GymnasiumBacked):
    """Copies of an environment of Gymnasium's registry; see ``GymnasiumParams``."""

    def __init__(self, params: GymnasiumParams, context: EnvironmentContext) -> None:
        super().__init__(params.id, _Registered(params), params, params.reasons)
        self._registered = params
        self.steps_together = self._find_vector_class()

    def vector(self, num_envs: int, layout: VectorLayout) -> VectorEnv:
        """Copies, stepped by the environment's own vector class where that does the same."""
        one_by_one = layout.workers or layout.blocks > 1 or layout.desync or layout.rendering
        if one_by_one or num_envs < FEWEST_TOGETHER or not self.steps_together:
            return super().vector(num_envs, layout)
        return self._together(num_envs, layout)

    def _find_vector_class(self) -> bool:
        """Whether there is one with the same spec whose states lead back exactly."""
        params = self._registered
        plain = GymnasiumParams(id=params.id, kwargs=params.kwargs)
        try:
            if params != plain or not has_vector_class(params.id):
                return False
            vector = self._together(1, VectorLayout())
        except (CollectError, ConfigError):  # Copies tell what is wrong.
            return False
        try:
            return vector.is_exact and vector.spec == self.spec()
        finally:
            vector.close()

    def _together(self, num_envs: int, layout: VectorLayout) -> GymnasiumVectorEnv:
        params = self._registered
        return _vector_env(
            GymnasiumVectorParams(id=params.id, kwargs=params.kwargs), num_envs, layout
        )


class DmcEnvironment(GymnasiumBacked):
    """Copies of a task of the DeepMind Control Suite; see ``DmcParams``."""

    def __init__(self, params: DmcParams, context: EnvironmentContext) -> None:
        super().__init__(params.task, _Dmc(params), params)


class PettingZooEnvironment(CopiedEnvironment):
    """Copies of a ParallelEnv; see ``PettingZooParams``."""

    def __init__(self, params: PettingZooParams, context: EnvironmentContext) -> None:
        super().__init__(
            params.id, _PettingZoo(params), params, _PettingZoo(params, rendering=True)
        )


class GymnasiumVectorEnvironment(Environment):
    """A vector environment of Gymnasium's registry; see ``GymnasiumVectorParams``."""

    def __init__(self, params: GymnasiumVectorParams, context: EnvironmentContext) -> None:
        """Take over the params.

        Raises:
            ConfigError: if Gymnasium is to start worker processes.
        """
        if params.kwargs.get("vectorization_mode") == "async":
            raise ConfigError(
                "kwargs.vectorization_mode: 'async': Gymnasium's workers begin with the same "
                "process-wide random numbers, and would play the same episodes where an "
                "environment draws from them; use environment 'gymnasium', whose workers do not"
            )
        self.name, self._params = params.id, params

    def spec(self) -> EnvSpec:
        """Constants of one copy, which is built, reset and closed."""
        vector = self.vector(1, VectorLayout())
        try:
            return vector.spec
        finally:
            vector.close()

    def vector(self, num_envs: int, layout: VectorLayout) -> VectorEnv:
        """All copies, in one block that this process steps."""
        if layout.desync:
            raise ConfigError(
                "desync: cannot cut off episodes of a Gymnasium vector environment; set it to false"
            )
        return _vector_env(self._params, num_envs, layout)


def _vector_env(
    params: GymnasiumVectorParams, num_envs: int, layout: VectorLayout
) -> GymnasiumVectorEnv:
    def make() -> GymVectorEnv:
        return make_gymnasium(gymnasium.make_vec, params.id, params.kwargs, num_envs=num_envs)

    return GymnasiumVectorEnv(
        make,
        autoreset=params.autoreset,
        first=layout.first,
        terminal_observations=layout.terminal_observations,
    )


class CallableEnvironment(CopiedEnvironment):
    """Copies of what a function of the Python API makes.

    Args:
        make: Returns a ``gymnasium.Env`` or a ``pettingzoo.ParallelEnv``.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        function = make.func if isinstance(make, partial) else make
        super().__init__(getattr(function, "__name__", type(make).__name__), _Called(make))


def of_caller(
    make: Callable[[], Value] | None, *, is_named: bool, where: str, example: str
) -> CallableEnvironment | None:
    """The environment that a caller of the Python API makes; None where the config names one.

    Args:
        make: The caller's function; None: there is none.
        is_named: Whether the config names an environment.
        where: Key path at which it does, or could.
        example: An environment that it could name.

    Raises:
        ConfigError: if there are both, or neither.
    """
    if make is not None:
        if is_named:
            raise ConfigError(
                f"{where}: the caller gives an environment as well; leave it out of the config"
            )
        return CallableEnvironment(make)
    if not is_named:
        raise ConfigError(
            f"{where}: there is none; name one, e.g. {example}, or give a class or function: "
            "empo_core.run(config, env=...), and env=... where a run is loaded, as by "
            "load_agent or export_run"
        )
    return None


@dataclass(frozen=True)
class _Adapted:
    make: MakeGymEnv
    picture_size: int | None
    reasons: list[str] | None
    rendering: bool = False

    def __call__(self) -> SingleEnv:
        env = self.make(self.rendering)
        if self.picture_size is not None:
            env = ResizePicture(env, self.picture_size)
        return GymnasiumEnv(env, reasons=self.reasons)


@dataclass(frozen=True)
class _Registered:
    params: GymnasiumParams

    def __call__(self, rendering: bool) -> GymEnv:
        params = self.params
        env = self._made(params.kwargs)
        if rendering and "render_mode" not in params.kwargs:
            prepare_rendering()
            if "rgb_array" in env.metadata.get("render_modes", ()):
                with best_effort(f"closing a copy of {params.id}"):
                    env.close()
                env = self._made({**RENDER, **params.kwargs})
        high = params.picture_high or picture_high(params.id)
        if high is not None:
            env = with_picture_high(env, high)
        if package_of(params.id) == "minigrid":
            # Imported here because MiniGrid is an optional dependency.
            from empo_environments.missions import with_chosen_missions

            env = with_chosen_missions(env)
        if params.keys is None:
            return env
        space = env.observation_space
        keys = list(space.spaces) if isinstance(space, gymnasium.spaces.Dict) else []
        if not set(params.keys) <= set(keys):
            raise ConfigError(
                f"keys: {', '.join(params.keys)} cannot all be observed; the observation of "
                f"{params.id!r} has {', '.join(keys) or 'no keys'}"
            )
        return FilterObservation(env, params.keys)

    def _made(self, kwargs: dict[str, Value]) -> GymEnv:
        return make_gymnasium(gymnasium.make, self.params.id, kwargs, disable_env_checker=True)


@dataclass(frozen=True)
class _Dmc:
    params: DmcParams

    def __call__(self, rendering: bool) -> GymEnv:
        # Imported here because DeepMind Control is an optional dependency.
        from empo_environments.dmc import DmcEnv

        size = self.params.picture_size or 64
        return DmcEnv(
            self.params.task,
            pixels=self.params.pixels,
            picture_size=size,
            shadows=self.params.shadows,
        )


@dataclass(frozen=True)
class _PettingZoo:
    params: PettingZooParams
    rendering: bool = False

    def __call__(self) -> SingleEnv:
        # Imported here because PettingZoo is an optional dependency.
        from empo_environments.pettingzoo_env import PettingZooEnv

        kwargs = self.params.kwargs
        if self.rendering:
            prepare_rendering()
            kwargs = {**RENDER, **kwargs}
        env = make_pettingzoo(self.params.id, kwargs)
        params = self.params
        return PettingZooEnv(env, reasons=params.reasons, picture_size=params.picture_size)


@dataclass(frozen=True)
class _Called:
    make: Callable[[], Value]

    def __call__(self) -> SingleEnv:
        env = self.make()
        if isinstance(env, gymnasium.Env):
            return GymnasiumEnv(env)
        if hasattr(env, "possible_agents"):
            from empo_environments.pettingzoo_env import PettingZooEnv

            return PettingZooEnv(env)
        raise ConfigError(
            f"environment: {self.make!r} made a {type(env).__name__}; it must make a gymnasium.Env "
            "or a pettingzoo.ParallelEnv"
        )


def prepare_rendering() -> None:
    """Let pygame, which draws many environments, do without a display where there is none."""
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform == "linux" and not any(os.environ.get(variable) for variable in displays):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
