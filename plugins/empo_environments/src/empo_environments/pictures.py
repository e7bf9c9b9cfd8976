"""Pictures resized to squares, and their greatest values."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation
from jaxtyping import UInt8
from PIL import Image

from empo_core.errors import ConfigError
from empo_environments.spaces import is_channel_first, picture_scale
from empo_environments.types import GymEnv, Space, Value


def resized(
    picture: UInt8[np.ndarray, "height width channel"], size: int
) -> UInt8[np.ndarray, "channel {size} {size}"]:
    """A picture of bytes ``[height, width, channel]`` as ``[channel, size, size]``, bilinear."""
    if picture.shape[:2] != (size, size):
        how = ((size, size), Image.Resampling.BILINEAR)
        if picture.shape[2] == 3:  # Pillow resizes three channels in one go.
            picture = np.asarray(Image.fromarray(picture).resize(*how))
        else:
            channels = [np.ascontiguousarray(channel) for channel in picture.transpose(2, 0, 1)]
            return np.stack(
                [np.asarray(Image.fromarray(channel).resize(*how)) for channel in channels]
            )
    return np.ascontiguousarray(picture.transpose(2, 0, 1))


class PictureResizer:
    """Resizes pictures of a space, and puts their channels first.

    Attributes:
        space: Of resized pictures.
    """

    def __init__(self, space: Space, size: int) -> None:
        """Prepare.

        Args:
            space: Of the pictures.
            size: Height and width.

        Raises:
            ConfigError: if the space is that of something else.
        """
        scale = picture_scale(space)
        if scale is None or space.shape is None:
            raise ConfigError(
                f"picture_size: belongs to environments whose observation is one picture, and "
                f"this one has {space}; drop it, or choose the picture by 'keys'"
            )
        self._size, self._shape = size, space.shape
        channels = 1
        if len(space.shape) == 3:
            self._first = is_channel_first(space.shape)
            channels = space.shape[0 if self._first else 2]
        self.space = spaces.Box(0, int(scale), (channels, size, size), np.uint8)

    def __call__(self, observation: Value) -> UInt8[np.ndarray, "channel size size"]:
        """The picture, resized."""
        picture = np.asarray(observation)
        if len(self._shape) == 2:
            picture = picture[:, :, None]
        elif self._first:
            picture = picture.transpose(1, 2, 0)
        return resized(picture, self._size)


class ResizePicture(gymnasium.ObservationWrapper[np.ndarray, Value, Value]):
    """A Gymnasium environment whose picture is resized, its channels put first."""

    def __init__(self, env: GymEnv, size: int) -> None:
        """Wrap an environment.

        Args:
            env: An environment that observes one picture and nothing else.
            size: Height and width.

        Raises:
            ConfigError: if the environment observes something else.
        """
        super().__init__(env)
        self._resize = PictureResizer(env.observation_space, size)
        self.observation_space = self._resize.space

    def observation(self, observation: Value) -> UInt8[np.ndarray, "channel size size"]:
        """The picture, resized."""
        return self._resize(observation)


def with_picture_high(env: GymEnv, high: int) -> GymEnv:
    """A Gymnasium environment whose pictures declare ``high`` as their greatest value.

    The same environment where it shows no picture.
    """
    space = _with_high(env.observation_space, high)
    if space == env.observation_space:
        return env
    return TransformObservation(env, lambda observation: observation, space)


def _with_high(space: Space, high: int) -> Space:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _with_high(part, high) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple(_with_high(part, high) for part in space.spaces)
    if picture_scale(space) is None:
        return space
    return spaces.Box(0, high, space.shape, np.uint8)
