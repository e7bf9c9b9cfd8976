"""A single Gymnasium environment as one of many."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from jaxtyping import Shaped, UInt8

from empo_core.errors import ConfigError
from empo_core.trees import StateDict
from empo_environments.episode_history import History
from empo_environments.single_env import StepBuffers, episode_seed
from empo_environments.spaces import MASK, acting, observing, without_mask
from empo_environments.step_checks import (
    GREATEST,
    ActionMasks,
    EndReasons,
    begun,
    five,
    flag,
    frames_per_second,
    number,
    success_of,
)
from empo_environments.types import GymEnv, Info, Value


class GymnasiumEnv:
    """A Gymnasium environment, reset by us as soon as its episode ends.

    Where the info of ``reset``, or else a Dict observation, has ``action_mask`` (a flag per option,
    choice by choice), the agent never does what is not available; it does not observe the mask.
    ``termination_reason`` in the info of an episode's
    last step is its reason, by position or name.
    """

    agents: tuple[str, ...] = ("agent",)

    def __init__(self, environment: GymEnv, *, reasons: Sequence[str] | None = None) -> None:
        """Adapt an environment.

        Args:
            environment: It, without a vector around it; closed by ``close``.
            reasons: Names of its termination reasons; None knows only its two flags.

        Raises:
            ConfigError: if its spaces do not fit.
        """
        _require_spaces(environment)
        self.source: object = environment.unwrapped
        self.actions, self._decode = acting(environment.action_space)
        space, shows_mask = without_mask(environment.observation_space, self.actions)
        self.observations, self._bind = observing(space)
        self._why = EndReasons(reasons)
        self.reasons = self._why.names
        self.max_episode_steps, self.action_repeat = _most_steps(environment), 1
        self.render_fps = frames_per_second(environment.metadata)
        self._environment = environment
        self._limit, self._inner = _unlimited(environment)
        self._step, self._restart = self._inner.step, self._inner.reset
        # Nothing but an episode tells whether there are masks.
        self._tells_mask = MASK in begun(self._restart, 0, environment)[1]
        self.masks = self._tells_mask or shows_mask
        where = "info" if self._tells_mask else "observation"
        self._masks = ActionMasks(self.actions, where) if self.masks else None
        self._history = History(self.actions, steps=self.max_episode_steps)
        self.begins_episode = False
        self._seed = self._number = self._episode = self._left = 0

    def keep_actions(self, steps: int) -> None:
        """Record at least so many actions of an episode; see ``SingleEnv``."""
        self._history.keep(steps)

    def start(self, outbox: StepBuffers, seed: int, number: int) -> None:
        """Begin the first episode."""
        self._outbox, self._reward = outbox, outbox.reward
        self._write = self._bind(outbox.observation[0])
        self._write_final = self._bind(outbox.final_observation[0])
        self._seed, self._number, self._episode = seed, number, -1
        self.begin()

    def begin(self) -> None:
        """Begin the next episode."""
        self._episode += 1
        self._show(*self._reset())
        self._outbox.starts[0] = self._outbox.acts[0] = self.begins_episode = True

    def step(self, action: Shaped[np.ndarray, "agent number"]) -> None:
        """Act, and go on to the next episode where this one ends."""
        if self._masks is not None and self._outbox.mask is not None:
            self._masks.check(action[0], self._outbox.mask[0])
        self.begins_episode = False
        self._history.append(action)
        observation, reward, terminated, truncated, info = five(self._step(self._decode(action)))
        is_plain = reward.__class__ is float and -GREATEST <= reward <= GREATEST
        self._reward[0] = reward if is_plain else number(reward)
        self._left -= 1
        if info:
            self._outbox.success[0] = success_of(info)
        if terminated is False and truncated is False and self._left:
            self._show(observation, info)
        else:
            truncated = flag(truncated, 1) or not self._left
            self._end(observation, flag(terminated, 0), truncated, info)

    def state_dict(self) -> StateDict:
        """The episode, what was done in it, and what is seen now."""
        return {
            "episode": self._episode,
            "actions": self._history.tensor(),
            "observation": torch.from_numpy(self._outbox.observation[0].copy()),
        }

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Play the episode again."""
        self._episode = state_dict["episode"]
        actions = state_dict["actions"]
        if actions is None:  # Too many to be recorded.
            self.begin()
            return False
        observation, info = self._reset()
        over = False
        for action in actions.numpy():
            if over:
                break
            self._history.append(action)
            observation, _, terminated, truncated, info = five(self._step(self._decode(action)))
            self._left -= 1
            over = bool(terminated or truncated or not self._left)
        if not over:
            self._show(observation, info)
            self._outbox.starts[0] = self.begins_episode = not len(self._history)
            if np.array_equal(self._outbox.observation[0], state_dict["observation"].numpy()):
                return True
        self.begin()
        return False

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """A picture for people; see ``SingleEnv``."""
        env = self._inner
        if env.render_mode != "rgb_array":
            modes = ", ".join(map(str, env.metadata.get("render_modes") or ())) or "none"
            raise ConfigError(
                f"{env} draws no pictures: they need render_mode 'rgb_array', and it has "
                f"{env.render_mode!r} (its metadata['render_modes']: {modes}); a function that "
                "makes environments passes render_mode='rgb_array'"
            )
        picture = np.asarray(env.render())
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ConfigError(
                f"{env} drew {picture.dtype} of shape {picture.shape}; a picture is uint8 of "
                "shape (height, width, 3)"
            )
        return picture

    def whereabouts(self) -> str:
        """Episode and step; see ``SingleEnv``."""
        return self._history.whereabouts(self._episode, self._episode_seed)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    @property
    def _episode_seed(self) -> int:
        return episode_seed(self._seed, self._number, self._episode)

    def _reset(self) -> tuple[Value, Info]:
        self._history.clear()
        self._left = self._limit
        return begun(self._restart, self._episode_seed, self._environment)

    def _show(self, observation: Value, info: Info) -> None:
        self._write(observation)
        if self._masks is not None and self._outbox.mask is not None:
            self._outbox.mask[0] = self._masks.of(info if self._tells_mask else observation)

    def _end(self, observation: Value, terminated: bool, truncated: bool, info: Info) -> None:
        if not (terminated or truncated):
            self._show(observation, info)
            return
        outbox = self._outbox
        outbox.terminated[0], outbox.truncated[0] = terminated, truncated
        outbox.reason[0] = self._why.of(terminated, info)
        self._write_final(observation)
        outbox.has_final[0] = True
        self.begin()


def _require_spaces(environment: GymEnv) -> None:
    """Refuse an environment that does not say what is observed and done.

    Raises:
        ConfigError: if the environment lacks a space.
    """
    for name in ("observation_space", "action_space"):
        space = getattr(environment, name, None)
        if not isinstance(space, gymnasium.Space):
            kind = type(environment.unwrapped).__name__
            raise ConfigError(
                f"{name} of {kind} is {space!r:.100}; set it to a space of gymnasium.spaces in the "
                "class or in __init__"
            )


def _most_steps(environment: GymEnv) -> int | None:
    """The most steps of an episode, by the spec and by wrappers; None where neither says."""
    limits = [] if environment.spec is None else [environment.spec.max_episode_steps]
    inner: GymEnv = environment
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, TimeLimit):
            limits.append(inner._max_episode_steps)
        inner = inner.env
    return min((limit for limit in limits if limit is not None), default=None)


def _unlimited(environment: GymEnv) -> tuple[int, GymEnv]:
    """The most steps of an episode, or -1, and the environment without what counts them.

    The wrappers that ``gymnasium.make`` adds take longer than all that we do in a step, and
    counting steps and beginning with ``reset`` is our business anyway.
    """
    limit = -1
    if type(environment) is TimeLimit and environment.spec is not None:
        limit = environment.spec.max_episode_steps or -1
        environment = environment.env
    if type(environment) is OrderEnforcing:
        environment = environment.env
    return limit, environment
