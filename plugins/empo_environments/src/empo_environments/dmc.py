"""A task of the DeepMind Control Suite."""

from __future__ import annotations

import contextlib
import difflib
import math
import os
from collections.abc import Iterable, Iterator
from importlib import metadata
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from jaxtyping import Float, Shaped, UInt8

from empo_core.errors import ConfigError
from empo_environments.types import Value

PINS = {"dm_control": "1.0.50", "mujoco": "3.17.0"}
"""Newer combinations of these two do not work together."""
UNBOUNDED = 1e9
"""A bound beyond this stands for none, e.g. MuJoCo's 1e10."""
CAMERAS = {"quadruped": 2}
"""The camera that shows what matters; 0 where none is named."""
FILM = (240, 320)
"""Height and width of pictures for people."""


class DmcEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """A task of the DeepMind Control Suite as a Gymnasium environment.

    Observations are all numbers of the task side by side, or a picture. Rewards are the suite's,
    in [0, 1]; its time limit truncates.
    """

    def __init__(
        self, task: str, *, pixels: bool = False, picture_size: int = 64, shadows: bool = True
    ) -> None:
        """Load a task.

        Args:
            task: Domain and task, e.g. ``cartpole-swingup``.
            pixels: Observe pictures instead of numbers.
            picture_size: Their height and width.
            shadows: Whether they show shadows and reflections; films always do.

        Raises:
            ConfigError: if there is no such task, what it takes is not installed, or its actions
                have no bounds.
        """
        domain, _, name = task.partition("-")
        self._environment = _loaded(domain, name)
        self._camera_index = CAMERAS.get(domain, 0)
        self._size = picture_size if pixels else None
        self._shadows = shadows
        self._camera: Any = None
        self._timed: Any = None
        words = sum(math.prod(part.shape) for part in self._environment.observation_spec().values())
        self.observation_space = (
            spaces.Box(0, 255, (picture_size, picture_size, 3), np.uint8)
            if pixels
            else spaces.Box(-np.inf, np.inf, (words,), np.float32)
        )
        action = self._environment.action_spec()
        bounds = (action.minimum, action.maximum)
        if not all((np.abs(bound) < UNBOUNDED).all() for bound in bounds):
            raise ConfigError(
                f"the actions of task {task} have no bounds ({action.minimum} to "
                f"{action.maximum}), and actions are chosen between bounds; choose another task"
            )
        self.action_space = spaces.Box(*bounds, action.shape, np.float64)
        steps = self._environment._step_limit  # No public name for it in the pinned version.
        self.spec = EnvSpec(
            f"{task}-v0", max_episode_steps=math.ceil(steps) if math.isfinite(steps) else None
        )
        self.render_mode = "rgb_array"
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": 1 / self._environment.control_timestep(),
        }

    def reset(
        self, *, seed: int | None = None, options: dict[str, Value] | None = None
    ) -> tuple[Shaped[np.ndarray, "*_shape"], dict[str, Value]]:
        """Begin an episode."""
        if seed is not None:
            self._environment.task.random.seed(seed)
        try:
            self._timed = self._environment.reset()
        except RuntimeError as error:
            if "OpenGL" not in str(error):
                raise
            raise ConfigError(  # One task of the suite draws its terrain anew each time.
                "this task needs OpenGL even where no picture is observed: set the environment "
                "variable MUJOCO_GL to egl, glfw or osmesa"
            ) from error
        return self._observation(), {}

    def step(
        self, action: Float[np.ndarray, " number"]
    ) -> tuple[Shaped[np.ndarray, "*_shape"], float, bool, bool, dict[str, Value]]:
        """Act."""
        self._timed = step = self._environment.step(action)
        # The suite says by the discount whether an end is one of the task, or of the time.
        terminated = bool(step.last() and step.discount == 0)
        truncated = bool(step.last() and not terminated)
        return self._observation(), float(step.reward), terminated, truncated, {}

    def render(self) -> Value:
        """A picture for people, ``[height, width, 3]``."""
        return self._picture(*FILM)

    def close(self) -> None:
        """Close the environment."""
        if self._camera is not None:
            self._camera.close()
            self._camera = None
        self._environment.close()

    def _observation(self) -> np.ndarray:
        if self._size is not None:
            return self._picture(self._size, self._size, shadows=self._shadows)
        parts = [np.ravel(part) for part in self._timed.observation.values()]
        numbers: np.ndarray = np.concatenate(parts).astype(np.float32)
        return numbers

    def _picture(
        self, height: int, width: int, *, shadows: bool = True
    ) -> UInt8[np.ndarray, "height width 3"]:
        physics = self._environment.physics
        if self._camera is None:
            from empo_environments.mujoco_camera import Camera

            self._camera = Camera(physics.model.ptr, self._camera_index)
        picture: np.ndarray = self._camera.picture(physics.data.ptr, height, width, shadows=shadows)
        return picture


def _loaded(domain: str, task: str) -> Any:
    """The task, as the suite makes it.

    Raises:
        ConfigError: if there is none; the message says what to do.
    """
    suite = _suite()
    tasks: dict[str, list[str]] = {}
    for domain_name, name in suite.ALL_TASKS:
        tasks.setdefault(domain_name, []).append(name)
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
            f"environment 'dmc' needs DeepMind Control, which is not installed ({error}): "
            'pip install "empo-environments[dmc]"'
        ) from error
    except Exception as error:
        raise _unusable(error) from error
    return suite  # type: ignore[no-any-return]


@contextlib.contextmanager
def _without_drawing() -> Iterator[None]:
    """Keep the suite from looking for a display while it is imported; we draw on our own.

    The variable is taken back, for other libraries read it too, and take it for a command.
    """
    is_set = "MUJOCO_GL" in os.environ
    if not is_set:
        os.environ["MUJOCO_GL"] = "disabled"
    try:
        yield
    finally:
        if not is_set:
            del os.environ["MUJOCO_GL"]


def _unusable(error: Exception) -> ConfigError:
    """Error for a failing suite: most likely its parts do not belong together."""
    versions = {name: _version(name) for name in PINS}
    problem = f"DeepMind Control failed ({type(error).__name__}: {error})"
    if versions == PINS:
        return ConfigError(f"{problem}, though its versions are right")
    have = " with ".join(f"{name} {version}" for name, version in versions.items())
    want = " ".join(f"{name}=={version}" for name, version in PINS.items())
    return ConfigError(
        f"{problem}; {have} is not known to work: pip install {want}, which is what "
        '"empo-environments[dmc]" asks for'
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _close(name: str, names: Iterable[str]) -> str:
    """The end of a sentence about names that are close, or all."""
    matches = difflib.get_close_matches(name, list(names))
    if matches:
        return f". Did you mean {' or '.join(map(repr, matches))}?"
    return f"; there are: {', '.join(sorted(names))}"
