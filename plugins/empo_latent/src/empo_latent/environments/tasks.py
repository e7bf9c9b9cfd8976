"""From components of kind ``environment`` to the tasks of the latent agent."""

from __future__ import annotations

from empo_core.config import EnvironmentRef
from empo_core.errors import ConfigError
from empo_core.experiment import build
from empo_core.protocols.environments import EnvironmentContext
from empo_environments.components import GymnasiumBacked
from empo_latent.environments.contract import Environment
from empo_latent.environments.gymnasium_env import GymnasiumEnvironment

PICTURE_SIZE = 64
"""Height and width of pictures where a task does not say."""


def task_of(task: EnvironmentRef | GymnasiumBacked) -> GymnasiumBacked:
    """The environment that a config names.

    Raises:
        ConfigError: It is not one made of single Gymnasium environments.
    """
    if isinstance(task, GymnasiumBacked):
        return task
    environment = build(task, EnvironmentContext())
    if not isinstance(environment, GymnasiumBacked):
        raise ConfigError(
            f"environment {task.name!r} cannot be a task: algorithm 'latent' learns in single "
            "Gymnasium environments, e.g. gymnasium/Pendulum-v1 or dmc/cartpole-swingup"
        )
    return environment


def made(task: GymnasiumBacked, *, rendering: bool) -> Environment:
    """A new environment of a task.

    Args:
        task: The task.
        rendering: Whether ``render`` will be called.

    Raises:
        ConfigError: It cannot be made or learned in.
    """
    size = task.params.picture_size or PICTURE_SIZE
    return GymnasiumEnvironment(task.gym_env(rendering), picture_size=size)


__all__ = ["PICTURE_SIZE", "made", "task_of"]
