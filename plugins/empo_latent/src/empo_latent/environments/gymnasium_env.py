"""A Gymnasium environment whose actions are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit
from jaxtyping import Float, Shaped, UInt8

from empo_core.errors import ConfigError
from empo_latent.environments.contract import Outcome
from empo_latent.environments.spaces import acting, observing

GymEnv: TypeAlias = gymnasium.Env[Any, Any]
SUCCESS = ("success", "is_success")
"""Key of a step's info that says whether the task is achieved."""


class GymnasiumEnvironment:
    """A Gymnasium environment; see ``Environment`` for the attributes."""

    def __init__(self, environment: GymEnv, *, picture_size: int) -> None:
        """Adapt an environment.

        Args:
            environment: It, without a vector around it; closed by ``close``.
            picture_size: Height and width that pictures get.

        Raises:
            ConfigError: Its spaces do not fit.
        """
        self.look, self._read = observing(environment.observation_space, picture_size)
        self.actions, self._decode = acting(environment.action_space)
        self.length = _limit(environment)
        self.rate = environment.metadata.get("render_fps")
        self._environment = environment
        self._seen: Any = None

    def reset(self, seed: int) -> None:
        """Begin an episode; see ``Environment``."""
        self._seen = self._environment.reset(seed=seed)[0]

    def step(self, action: Float[np.ndarray, " action"]) -> Outcome:
        """Act; see ``Environment``."""
        self._seen, reward, terminated, truncated, info = self._environment.step(
            self._decode(action)
        )
        return Outcome(float(reward), bool(terminated), bool(truncated), _success(info))

    def observe(self) -> Shaped[np.ndarray, "*shape"]:
        """The current observation; see ``Environment``."""
        return self._read(self._seen)

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """A picture for people; see ``Environment``."""
        if self._environment.render_mode != "rgb_array":
            raise ConfigError(
                f"{self._environment} has render_mode {self._environment.render_mode!r}, and "
                "pictures need 'rgb_array'"
            )
        picture = np.asarray(self._environment.render())
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ConfigError(
                f"{self._environment} drew {picture.dtype} of shape {picture.shape}; a picture is "
                "uint8 of shape (height, width, 3)"
            )
        return picture

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


def _limit(environment: GymEnv) -> int | None:
    """The most steps of an episode, as whoever made it says."""
    limits = []
    if environment.spec is not None:
        limits.append(environment.spec.max_episode_steps)
    inner: Any = environment
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, TimeLimit):
            limits.append(inner._max_episode_steps)
        inner = inner.env
    return min((limit for limit in limits if limit is not None), default=None)


def _success(info: Mapping[str, Any]) -> float:
    for key in SUCCESS:
        if key in info:
            return float(info[key])
    return float("nan")


__all__ = ["GymEnv", "GymnasiumEnvironment"]
