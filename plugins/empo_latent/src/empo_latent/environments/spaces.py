"""Gymnasium's spaces: what is seen as numbers or a picture, and actions from [-1, 1]."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from jaxtyping import Float

from empo_core.errors import ConfigError
from empo_environments.pictures import resized
from empo_environments.spaces import is_channel_first, picture_scale
from empo_latent.environments.contract import Look

MOST_WORDS = 2**16
"""Most numbers of an observation; networks of what is longer would not fit anywhere."""
MOST = 1e9
"""A bound beyond this stands for none, e.g. MuJoCo's 1e10."""

Read: TypeAlias = Callable[[Any], np.ndarray]
"""An observation as its ``Look`` says; raises where it does not fit its space."""
Path: TypeAlias = tuple[str | int, ...]


def observing(space: Space[Any], picture_size: int) -> tuple[Look, Read]:
    """Reader of a space's observations.

    Numbers of all parts follow each other; choices become one number per option. A picture
    (bytes from 0 to a bound with two or three axes) is resized, and its channels put first.

    Args:
        space: Whatever the environment says.
        picture_size: Height and width that pictures get.

    Raises:
        ConfigError: They cannot be read; the message names the space.
    """
    leaves = list(_leaves(space, ()))
    pictures = [path for path, leaf in leaves if picture_scale(leaf) is not None]
    if pictures and len(leaves) > 1:
        raise ConfigError(
            f"observation space {space}: a picture{_at(pictures[0])} beside other parts; only one "
            "picture alone, or numbers alone, can be seen. Choose one of them by 'keys'"
        )
    if pictures:
        ((path, leaf),) = leaves
        return _picture(path, leaf, picture_size)
    parts = [(path, leaf, _size(path, leaf)) for path, leaf in leaves]
    words = sum(size for _, _, size in parts)
    if not 1 <= words <= MOST_WORDS:
        raise ConfigError(
            f"observation space {space}: has {words:,} numbers; there must be from 1 to "
            f"{MOST_WORDS:,}. Wrap the environment so that it shows others, and register that"
        )

    def read(observation: Any) -> np.ndarray:
        if len(parts) == 1:
            path, leaf, size = parts[0]
            return _numbers(_part(observation, path), leaf, size, path)
        found = [_numbers(_part(observation, path), leaf, n, path) for path, leaf, n in parts]
        return np.concatenate(found)

    return Look((words,), pictures=False), read


def acting(space: Space[Any]) -> tuple[int, Callable[[Float[np.ndarray, " action"]], np.ndarray]]:
    """Number of numbers an action has, and the action that numbers from [-1, 1] stand for.

    Raises:
        ConfigError: The space is no bounded box of numbers; the message names it.
    """
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        raise ConfigError(
            f"action space {space}: is no box of numbers, which algorithm 'latent' needs"
            + _instead(space)
        )
    shape, dtype = space.shape, space.dtype
    if not math.prod(shape):
        raise ConfigError(f"action space {space}: there is nothing to do in it")
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    if not (np.abs(low) < MOST).all() or not (np.abs(high) < MOST).all():
        raise ConfigError(
            f"action space {space}: has no bounds, and actions are chosen between bounds. Say "
            "which are sensible by an action space of your own, and register that"
        )
    return math.prod(shape), between(low.ravel(), high.ravel(), shape, dtype)


def between(
    low: Float[np.ndarray, " action"],
    high: Float[np.ndarray, " action"],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Callable[[Float[np.ndarray, " action"]], np.ndarray]:
    """Maps [-1, 1] to the bounds, number by number; what lies beyond is moved to the bound."""
    middle, half = (low + high) / 2, (high - low) / 2
    least, most = low.astype(dtype), high.astype(dtype)

    def decode(action: Float[np.ndarray, " action"]) -> np.ndarray:
        # Not np.clip, which takes several times as long for so few numbers.
        scaled = middle + half * np.minimum(np.maximum(action, -1.0), 1.0)
        # Cut off again, for rounding may lead beyond a bound.
        bounded: np.ndarray = np.minimum(np.maximum(scaled.astype(dtype), least), most)
        return bounded.reshape(shape)

    return decode


def _instead(space: Space[Any]) -> str:
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return "; algorithm 'rollout' learns to choose between options"
    if isinstance(space, spaces.Box):
        return f" ({space.dtype} are counts); algorithm 'rollout' learns to choose between options"
    return ". Wrap the environment so that it takes one Box of float32, and register that"


def _leaves(space: Space[Any], path: Path) -> Iterator[tuple[Path, Space[Any]]]:
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, index))
    else:
        yield path, space


def _part(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _at(path: Path) -> str:
    return "".join(f"[{key!r}]" for key in path)


def _size(path: Path, space: Space[Any]) -> int:
    """Number of numbers a part is."""
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return math.prod(space.shape)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return spaces.flatdim(space)
    raise ConfigError(
        f"observation space{_at(path)} {space}: is not made of numbers; what can be seen: Box, "
        "Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these, or one picture. Wrap "
        "the environment so that it shows one of them, and register that"
    )


def _numbers(value: Any, space: Space[Any], size: int, path: Path) -> np.ndarray:
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        if not space.contains(value):
            raise ValueError(
                f"the observation{_at(path)} is {value!r:.200}, which is not in {space}"
            )
        value = spaces.flatten(space, value)
    array = np.asarray(value)
    if array.size != size or array.dtype.kind not in "fiub":
        raise ValueError(
            f"the observation{_at(path)} is {value!r:.200}, {array.dtype} of shape {array.shape}; "
            f"its space says {size} numbers"
        )
    return array.astype(np.float32).ravel()


def _picture(path: Path, space: Space[Any], size: int) -> tuple[Look, Read]:
    shape = space.shape
    assert shape is not None
    first = len(shape) == 3 and is_channel_first(shape)
    channels = 1 if len(shape) == 2 else shape[0] if first else shape[2]

    def read(observation: Any) -> np.ndarray:
        picture = np.asarray(_part(observation, path))
        if picture.shape != shape or picture.dtype != np.uint8:
            raise ValueError(
                f"the observation{_at(path)} is {picture.dtype} of shape {picture.shape}; its "
                f"space says uint8 of shape {shape}"
            )
        if len(shape) == 2:
            picture = picture[:, :, None]
        return resized(picture.transpose(1, 2, 0) if first else picture, size)

    return Look((channels, size, size), True, picture_scale(space) or 255.0), read


__all__ = ["Read", "acting", "between", "observing"]
