"""Wrappers of single environments: action repeat, frame stack, time limit, early first end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Shaped, UInt8

from empo_core.trees import StateDict
from empo_environments.shared_buffers import clear
from empo_environments.single_env import SingleEnv, StepBuffers
from empo_environments.step_checks import ActionMasks

LONGEST_FIRST_EPISODE = 1000
"""Bound of the first episode's length where an environment states none of its own."""


class EnvWrapper:
    """A single environment as it is; subclasses change what they are about.

    Args:
        env: The environment; closed by ``close``.
    """

    def __init__(self, env: SingleEnv) -> None:
        self._env = env
        self.observations, self.actions = env.observations, env.actions
        self.agents, self.masks, self.reasons = env.agents, env.masks, env.reasons
        self.max_episode_steps, self.action_repeat = env.max_episode_steps, env.action_repeat
        self.render_fps, self.source = env.render_fps, env.source

    @property
    def begins_episode(self) -> bool:
        """True if an episode of the environment begins; see ``SingleEnv``."""
        return self._env.begins_episode

    def keep_actions(self, steps: int) -> None:
        """Record at least so many actions of an episode; see ``SingleEnv``."""
        self._env.keep_actions(steps)

    def start(self, buffers: StepBuffers, seed: int, number: int) -> None:
        """Begin the first episode; see ``SingleEnv``."""
        self._buffers = buffers
        self._env.start(buffers, seed, number)

    def begin(self) -> None:
        """Begin the next episode; see ``SingleEnv``."""
        self._env.begin()

    def step(self, action: Shaped[np.ndarray, "agent number"]) -> None:
        """Let the agents act; see ``SingleEnv``."""
        self._env.step(action)

    def state_dict(self) -> StateDict:
        """State of the environment and of the wrapper."""
        return {"environment": self._env.state_dict()}

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Restore ``state_dict``; see ``SingleEnv``."""
        return self._env.load_state_dict(state_dict["environment"])

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """A picture for people; see ``SingleEnv``."""
        return self._env.render()

    def whereabouts(self) -> str:
        """Episode and step of the environment; see ``SingleEnv``."""
        return self._env.whereabouts()

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _truncate(self) -> None:
        """Cut the episode off for all agents that are alive, and begin the next."""
        buffers = self._buffers
        # An agent that has just appeared did nothing in this episode that could be cut off.
        alive = buffers.acts & ~buffers.starts
        buffers.truncated[alive] = buffers.has_final[alive] = True
        buffers.final_observation[alive] = buffers.observation[alive]
        if "truncated" in self.reasons:
            buffers.reason[alive] = self.reasons.index("truncated")
        self._env.begin()


class RepeatAction(EnvWrapper):
    """Repeats each action, and adds rewards up.

    Repeating stops early where an agent's episode ends or begins, and where the action of an agent
    is no longer available (``mask``): what happens next is for the policy to choose.

    Args:
        env: The environment.
        times: How often, at least once.
    """

    def __init__(self, env: SingleEnv, times: int) -> None:
        super().__init__(env)
        self._times = times
        self.action_repeat *= times
        self._masks = ActionMasks(env.actions) if env.masks else None
        # Where repeating may stop within an episode, nothing bounds its steps but single actions.
        is_whole = not env.masks and len(env.agents) == 1
        if self.max_episode_steps is not None and is_whole:
            self.max_episode_steps = -(-self.max_episode_steps // times)
        if self.render_fps is not None:
            self.render_fps /= times

    def keep_actions(self, steps: int) -> None:
        """Record at least so many actions of an episode, each with its repetitions."""
        self._env.keep_actions(steps * self._times)

    def step(self, action: Shaped[np.ndarray, "agent number"]) -> None:
        """Act so many times."""
        buffers = self._buffers
        total, success = np.zeros_like(buffers.reward), np.full_like(buffers.success, -1)
        for _ in range(self._times):
            clear(buffers)
            self._env.step(action)
            total += buffers.reward
            np.maximum(success, buffers.success, out=success)
            if self._is_for_the_policy(action):
                break
        buffers.reward[:], buffers.success[:] = total, success

    def _is_for_the_policy(self, action: Shaped[np.ndarray, "agent number"]) -> bool:
        """True if the action cannot be repeated, or an agent must choose its first one."""
        buffers = self._buffers
        if buffers.terminated.any() or buffers.truncated.any() or buffers.starts.any():
            return True
        if self._masks is None or buffers.mask is None:
            return False
        return not self._masks.allow(action[buffers.acts], buffers.mask[buffers.acts])


class StackFrames(EnvWrapper):
    """Observes the newest observations at once, the oldest first.

    At the beginning of an episode its first observation stands for those before. Pictures are
    stacked by channels and come ahead of the other words.

    Args:
        env: The environment.
        frames: How many, at least one.
    """

    def __init__(self, env: SingleEnv, frames: int) -> None:
        super().__init__(env)
        self._inner = inner = env.observations
        grid = inner.grid
        self._pixels = 0 if grid is None else grid[0] * grid[1] * grid[2]
        if grid is not None:
            grid = (grid[0] * frames, grid[1], grid[2])
        self.observations = replace(
            inner,
            words=inner.words * frames,
            grid=grid,
            bounds=_stacked(inner.bounds, self._pixels, frames),
        )
        shape = (frames, len(env.agents), inner.words)
        self._frames = np.zeros(shape, inner.dtype)

    def start(self, buffers: StepBuffers, seed: int, number: int) -> None:
        """Begin the first episode."""
        self._outer = buffers
        shape = (len(self.agents), self._inner.words)
        self._inner_buffers = replace(
            buffers,
            observation=np.zeros(shape, self._inner.dtype),
            final_observation=np.zeros(shape, self._inner.dtype),
        )
        super().start(self._inner_buffers, seed, number)
        self._show()

    def begin(self) -> None:
        """Begin the next episode."""
        self._env.begin()
        self._show()

    def step(self, action: Shaped[np.ndarray, "agent number"]) -> None:
        """Act, and move the frames on."""
        self._env.step(action)
        ended = self._inner_buffers.has_final
        if ended.any():
            last = np.concatenate([self._frames[1:], self._inner_buffers.final_observation[None]])
            self._outer.final_observation[ended] = self._rows(last)[ended]
        self._show()

    def state_dict(self) -> StateDict:
        """State of the environment, and the frames."""
        return {**super().state_dict(), "frames": torch.from_numpy(self._frames.copy())}

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Restore ``state_dict``."""
        exact = super().load_state_dict(state_dict)
        if exact:
            self._frames[:] = state_dict["frames"].numpy()
            self._outer.observation[:] = self._rows(self._frames)
        else:
            self._show()
        return exact

    def _show(self) -> None:
        starts = self._inner_buffers.starts
        self._frames[:-1] = self._frames[1:]
        self._frames[-1] = self._inner_buffers.observation
        self._frames[:, starts] = self._inner_buffers.observation[starts]
        self._outer.observation[:] = self._rows(self._frames)

    def _rows(
        self, frames: Shaped[np.ndarray, "frame agent word"]
    ) -> Shaped[np.ndarray, "agent stacked"]:
        """The rows that frames stacked are."""
        rows = frames.transpose(1, 0, 2)
        pictures, others = rows[:, :, : self._pixels], rows[:, :, self._pixels :]
        agents = len(rows)
        return np.concatenate([pictures.reshape(agents, -1), others.reshape(agents, -1)], axis=1)


def _stacked(
    bounds: Sequence[tuple[int, float, float]], pixels: int, frames: int
) -> tuple[tuple[int, float, float], ...]:
    """``ObservationSpec.bounds`` of frames in the order of ``StackFrames``: pictures come first."""
    pictures, others, left = [], [], pixels
    for words, low, high in bounds:
        of_picture = min(words, left)
        left -= of_picture
        if of_picture:
            pictures.append((of_picture, low, high))
        if words > of_picture:
            others.append((words - of_picture, low, high))
    return (*pictures * frames, *others * frames)


class LimitSteps(EnvWrapper):
    """Truncates episodes after so many steps.

    Args:
        env: The environment.
        steps: Most steps of an episode, at least 1.
    """

    def __init__(self, env: SingleEnv, steps: int) -> None:
        super().__init__(env)
        self._limit = self._left = steps
        stated = self.max_episode_steps
        self.max_episode_steps = steps if stated is None else min(stated, steps)
        env.keep_actions(self.max_episode_steps)

    def start(self, buffers: StepBuffers, seed: int, number: int) -> None:
        """Begin the first episode."""
        self._left = self._limit
        super().start(buffers, seed, number)

    def begin(self) -> None:
        """Begin the next episode."""
        self._left = self._limit
        super().begin()

    def step(self, action: Shaped[np.ndarray, "agent number"]) -> None:
        """Act, and cut the episode off when it is time."""
        self._env.step(action)
        self._left -= 1
        if self.begins_episode:
            if not self._left:
                self._buffers.truncated[self._buffers.terminated] = True
            self._left = self._limit
        elif not self._left:
            self._left = self._limit
            self._truncate()

    def state_dict(self) -> StateDict:
        """State of the environment, and how many steps were taken."""
        return {**super().state_dict(), "taken": self._limit - self._left}

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Restore ``state_dict``; a limit that is passed by now begins the next episode."""
        exact = super().load_state_dict(state_dict)
        self._left = self._limit - state_dict["taken"] if exact else self._limit
        if self._left > 0:
            return exact
        self.begin()
        return False


class DesyncEnv(EnvWrapper):
    """Cuts the first episode off at a random length, so that copies do not end together.

    Args:
        env: The environment.
        longest: Most steps of the first episode, at least 1; None takes ``max_episode_steps`` of
            the environment, or else 1000.
    """

    def __init__(self, env: SingleEnv, longest: int | None = None) -> None:
        super().__init__(env)
        self._longest = longest or self.max_episode_steps or LONGEST_FIRST_EPISODE
        self._left = 0

    def start(self, buffers: StepBuffers, seed: int, number: int) -> None:
        """Begin the first episode."""
        generator = np.random.default_rng((seed, number))
        self._left = int(generator.integers(1, self._longest, endpoint=True))
        super().start(buffers, seed, number)

    def begin(self) -> None:
        """Begin the next episode."""
        self._left = 0
        super().begin()

    def step(self, action: Shaped[np.ndarray, "agent number"]) -> None:
        """Act, and cut the first episode off when it is time."""
        self._env.step(action)
        if not self._left:
            return
        self._left -= 1
        if self.begins_episode:
            self._left = 0
        elif not self._left:
            self._truncate()

    def state_dict(self) -> StateDict:
        """State of the environment, and how many steps are left."""
        return {**super().state_dict(), "left": self._left}

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Restore ``state_dict``."""
        self._left = state_dict["left"]
        exact = super().load_state_dict(state_dict)
        if not exact:
            self._left = 0
        return exact
