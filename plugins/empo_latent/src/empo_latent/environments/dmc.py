"""A task of the DeepMind Control Suite."""

from __future__ import annotations

import contextlib
import difflib
import math
import os
from collections.abc import Iterator
from importlib import metadata
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped, UInt8

from empo_core.errors import ConfigError
from empo_latent.environments.contract import Look, Outcome
from empo_latent.environments.spaces import MOST, between

PINS = {"dm_control": "1.0.50", "mujoco": "3.17.0"}
"""Newer combinations of these two do not work together."""
CAMERAS = {"quadruped": 2}
"""The camera that shows what matters; 0 where none is named."""
FILM = (240, 320)
"""Height and width of pictures for people."""


class DmcEnvironment:
    """A task of the DeepMind Control Suite; see ``Environment`` for the attributes."""

    def __init__(self, domain: str, task: str, *, pixels: bool, picture_size: int) -> None:
        """Load a task.

        Args:
            domain: E.g. cartpole.
            task: E.g. swingup.
            pixels: See pictures instead of numbers.
            picture_size: Their height and width.

        Raises:
            ConfigError: There is no such task, what it takes is not installed, or its actions
                have no bounds.
        """
        self._environment = _loaded(domain, task)
        self._camera_index = CAMERAS.get(domain, 0)
        self._size = picture_size if pixels else None
        self._camera: Any = None
        self._seen: Any = None
        words = sum(math.prod(part.shape) for part in self._environment.observation_spec().values())
        shape = (3, picture_size, picture_size) if pixels else (words,)
        self.look = Look(shape, pictures=pixels)
        spec = self._environment.action_spec()
        if not ((np.abs(spec.minimum) < MOST).all() and (np.abs(spec.maximum) < MOST).all()):
            raise ConfigError(
                f"the actions of task {domain}-{task} have no bounds ({spec.minimum} to "
                f"{spec.maximum}), and actions are chosen between bounds; choose another task"
            )
        self.actions = math.prod(spec.shape)
        self._decode = between(spec.minimum, spec.maximum, spec.shape, np.dtype(np.float64))
        steps = self._environment._step_limit  # No public name for it in the pinned version.
        self.length = math.ceil(steps) if math.isfinite(steps) else None
        self.rate: float | None = 1 / self._environment.control_timestep()

    def reset(self, seed: int) -> None:
        """Begin an episode; see ``Environment``."""
        self._environment.task.random.seed(seed)
        try:
            self._seen = self._environment.reset().observation
        except RuntimeError as error:
            if "OpenGL" not in str(error):
                raise
            raise ConfigError(  # One task of the suite draws its terrain anew each time.
                "this task needs OpenGL even where nobody looks: set the environment variable "
                "MUJOCO_GL to egl, glfw or osmesa"
            ) from error

    def step(self, action: Float[np.ndarray, " action"]) -> Outcome:
        """Act; see ``Environment``."""
        step = self._environment.step(self._decode(action))
        self._seen = step.observation
        # The suite says by the discount whether an end is one of the task, or of the time.
        terminated = bool(step.last() and step.discount == 0)
        truncated = bool(step.last() and not terminated)
        return Outcome(float(step.reward), terminated, truncated, math.nan)

    def observe(self) -> Shaped[np.ndarray, "*shape"]:
        """What is seen now; see ``Environment``."""
        if self._size is not None:
            picture = self._picture(self._size, self._size)
            return np.ascontiguousarray(picture.transpose(2, 0, 1))
        parts = [np.ravel(part) for part in self._seen.values()]
        return np.concatenate(parts).astype(np.float32)

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """A picture for people; see ``Environment``."""
        return self._picture(*FILM)

    def close(self) -> None:
        """Close the environment."""
        if self._camera is not None:
            self._camera.close()
            self._camera = None
        self._environment.close()

    def _picture(self, height: int, width: int) -> UInt8[np.ndarray, "height width 3"]:
        physics = self._environment.physics
        if self._camera is None:
            from empo_latent.environments.camera import Camera

            self._camera = Camera(physics.model.ptr, self._camera_index)
        picture: np.ndarray = self._camera.picture(physics.data.ptr, height, width)
        return picture


def _loaded(domain: str, task: str) -> Any:
    """The task, as the suite makes it.

    Raises:
        ConfigError: There is none; the message says what to do.
    """
    suite = _suite()
    tasks: dict[str, list[str]] = {}
    for known, name in suite.ALL_TASKS:
        tasks.setdefault(known, []).append(name)
    if domain not in tasks:
        raise ConfigError(f"no domain {domain!r} in DeepMind Control{_close(domain, tasks)}")
    if task not in tasks[domain]:
        raise ConfigError(f"domain {domain!r} has no task {task!r}{_close(task, tasks[domain])}")
    try:
        # The seed of what is drawn once, while it is made; ``reset`` gives each episode another.
        return suite.load(domain, task, task_kwargs={"random": 0})
    except Exception as error:
        raise _unusable(error) from error


def _suite() -> ModuleType:
    try:
        with _without_drawing():
            from dm_control import suite  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"tasks of kind 'dmc' need DeepMind Control, which is not installed ({error}): "
            'pip install "empo-latent[dmc]"'
        ) from error
    except Exception as error:
        raise _unusable(error) from error
    return suite  # type: ignore[no-any-return]


@contextlib.contextmanager
def _without_drawing() -> Iterator[None]:
    """Keep the suite from looking for a display while it is imported; we draw on our own.

    The variable is taken back, for other libraries read it too, and take it for a command.
    """
    given = "MUJOCO_GL" in os.environ
    if not given:
        os.environ["MUJOCO_GL"] = "disabled"
    try:
        yield
    finally:
        if not given:
            del os.environ["MUJOCO_GL"]


def _unusable(error: Exception) -> ConfigError:
    """What to say where the suite fails: most likely its parts do not belong together."""
    found = {name: _version(name) for name in PINS}
    what = f"DeepMind Control failed ({type(error).__name__}: {error})"
    if found == PINS:
        return ConfigError(f"{what}, though its versions are right")
    have = " with ".join(f"{name} {version}" for name, version in found.items())
    want = " ".join(f"{name}=={version}" for name, version in PINS.items())
    return ConfigError(
        f"{what}; {have} is not known to work: pip install {want}, which is what "
        '"empo-latent[dmc]" asks for'
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _close(name: str, known: Any) -> str:
    """The end of a sentence about names that are close, or all."""
    found = difflib.get_close_matches(name, list(known))
    if found:
        return f". Did you mean {' or '.join(map(repr, found))}?"
    return f"; there are: {', '.join(sorted(known))}"


__all__ = ["DmcEnvironment"]
