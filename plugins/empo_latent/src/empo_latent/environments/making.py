"""From the params of a task to its environment."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium

from empo_core.errors import ConfigError
from empo_latent.environments.contract import Environment
from empo_latent.environments.gymnasium_env import GymnasiumEnvironment, prepare_rendering
from empo_latent.tasks import DmcTask, GymnasiumTask, Task

RENDER = {"render_mode": "rgb_array"}


def made(task: Task, *, rendering: bool) -> Environment:
    """A new environment.

    Args:
        task: Which.
        rendering: Whether ``render`` will be called.

    Raises:
        ConfigError: There is none of this name, or it cannot be made or learned in.
    """
    if isinstance(task, DmcTask):
        # Imported here because DeepMind Control is an optional dependency.
        from empo_latent.environments.dmc import DmcEnvironment

        return DmcEnvironment(
            task.domain, task.task, pixels=task.pixels, picture_size=task.picture_size
        )
    if rendering:
        prepare_rendering()
    environment = _made(task, rendering)
    if not isinstance(environment, gymnasium.Env):
        raise ConfigError(
            f"{task.factory or task.id!r} made a {type(environment).__name__}, not a gymnasium.Env"
        )
    return GymnasiumEnvironment(environment, picture_size=task.picture_size)


def name_of(task: Task) -> str:
    """What a task is called, e.g. ``Pendulum-v1`` or ``cartpole-swingup``."""
    if isinstance(task, DmcTask):
        return f"{task.domain}-{task.task}"
    return task.id or task.factory or ""


def _made(task: GymnasiumTask, rendering: bool) -> Any:
    rendering = rendering and "render_mode" not in task.kwargs
    if task.factory is not None:
        function = _imported(task.factory)
        extra = RENDER if rendering and _takes(function, "render_mode") else {}
        return _called(function, task.factory, {**extra, **task.kwargs})
    assert task.id is not None
    environment = _registered(task.id, task.kwargs)
    if rendering and "rgb_array" in environment.metadata.get("render_modes", ()):
        environment.close()
        environment = _registered(task.id, {**RENDER, **task.kwargs})
    return environment


def _registered(name: str, kwargs: dict[str, Any]) -> Any:
    """What Gymnasium makes of a name.

    Raises:
        ConfigError: It knows no such environment, or the environment refuses the arguments.
    """
    try:
        return gymnasium.make(name, disable_env_checker=True, **kwargs)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise ConfigError(f"id: {error}") from error
    except Exception as error:
        raise ConfigError(
            f"{name!r} cannot be made with {kwargs}: {type(error).__name__}: {error}"
        ) from error


def _imported(factory: str) -> Callable[..., Any]:
    """What a ``package.module:callable`` names.

    Raises:
        ConfigError: It cannot be imported, or is not callable.
    """
    module, _, name = factory.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise ConfigError(
            f"factory: {factory!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(function):
        raise ConfigError(f"factory: {factory!r} is a {type(function).__name__}, not callable")
    return function  # type: ignore[no-any-return]


def _takes(function: Callable[..., Any], argument: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # Something built in, which does not say.
        return False
    return any(each.name == argument or each.kind is each.VAR_KEYWORD for each in parameters)


def _called(function: Callable[..., Any], factory: str, kwargs: dict[str, Any]) -> Any:
    try:
        return function(**kwargs)
    except Exception as error:
        raise ConfigError(
            f"{factory!r} failed with {kwargs}: {type(error).__name__}: {error}"
        ) from error


__all__ = ["made", "name_of"]
