"""A single Gymnasium environment as one of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from jaxtyping import Shaped

from empo_core.errors import CollectError, ConfigError
from empo_rollout.vectors.environment import Outbox, episode_seed
from empo_rollout.vectors.history import History
from empo_rollout.vectors.spaces import acting, observing

GymEnv: TypeAlias = gymnasium.Env[Any, Any]
_FLAGS = ("terminated", "truncated")


class GymnasiumEnvironment:
    """A Gymnasium environment, reset by us as soon as its episode ends.

    Where the info of ``reset`` has ``action_mask`` (a flag per option, choice by choice), the
    agent never does what is not available. ``termination_reason`` in the info of an episode's
    last step is its reason, by position or name.
    """

    agents: tuple[str, ...] = ("agent",)

    def __init__(self, environment: GymEnv, *, reasons: Sequence[str] | None = None) -> None:
        """Adapt an environment.

        Args:
            environment: It, without a vector around it; closed by ``close``.
            reasons: Names of its termination reasons; None knows only its two flags.

        Raises:
            ConfigError: Its spaces do not fit.
        """
        self.observations, self._bind = observing(environment.observation_space)
        self.actions, self._decode = acting(environment.action_space)
        self.reasons: tuple[str, ...] = _FLAGS if reasons is None else tuple(reasons)
        self._names_reasons = reasons is not None
        spec = environment.spec
        self.max_episode_steps = None if spec is None else spec.max_episode_steps
        self._environment = environment
        self._limit, environment = _unlimited(environment)
        self._step, self._restart = environment.step, environment.reset
        # Nothing but an episode tells whether there are masks.
        self.masks = "action_mask" in self._restart(seed=0)[1]
        if self.masks and not self.actions.is_discrete:
            raise ConfigError(
                f"action space {environment.action_space}: the environment masks actions "
                "('action_mask' in its info), which are numbers; only options can be masked"
            )
        self._firsts = np.cumsum((0, *self.actions.choices))[:-1]
        self._history = History(self.actions)
        self._seed = self._number = self._episode = self._left = 0

    def start(self, outbox: Outbox, seed: int, number: int) -> None:
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
        self._outbox.starts[0] = self._outbox.acts[0] = True

    def step(self, action: Shaped[np.ndarray, "agent number"]) -> None:
        """Act, and go on to the next episode where this one ends."""
        if self.masks:
            self._check_available(action[0])
        self._history.append(action)
        observation, reward, terminated, truncated, info = self._step(self._decode(action))
        self._reward[0] = reward if reward.__class__ is float else _number(reward)
        self._left -= 1
        if terminated is False and truncated is False and self._left:
            self._write(observation)
            if self.masks:
                self._show_mask(info)
        else:
            truncated = _flag(truncated, 1) or not self._left
            self._end(observation, _flag(terminated, 0), truncated, info)

    def state_dict(self) -> dict[str, Any]:
        """The episode, what was done in it, and what is seen now."""
        return {
            "episode": self._episode,
            "actions": self._history.tensor(),
            "observation": torch.from_numpy(self._outbox.observation[0].copy()),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> bool:
        """Play the episode again."""
        self._episode = state_dict["episode"]
        observation, info = self._reset()
        over = False
        for action in state_dict["actions"].numpy():
            if over:
                break
            self._history.append(action)
            observation, _, terminated, truncated, info = self._step(self._decode(action))
            self._left -= 1
            over = bool(terminated or truncated or not self._left)
        if not over:
            self._show(observation, info)
            self._outbox.starts[0] = not len(self._history)
            if np.array_equal(self._outbox.observation[0], state_dict["observation"].numpy()):
                return True
        self.begin()
        return False

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _reset(self) -> tuple[Any, dict[str, Any]]:
        self._history.clear()
        self._left = self._limit
        return self._restart(seed=episode_seed(self._seed, self._number, self._episode))

    def _show(self, observation: Any, info: Mapping[str, Any]) -> None:
        self._write(observation)
        if self.masks:
            self._show_mask(info)

    def _end(
        self, observation: Any, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> None:
        if not (terminated or truncated):
            self._show(observation, info)
            return
        outbox = self._outbox
        outbox.terminated[0], outbox.truncated[0] = terminated, truncated
        outbox.reason[0] = self._reason(terminated, info)
        if truncated:
            self._write_final(observation)
            outbox.has_final[0] = True
        self.begin()

    def _reason(self, terminated: bool, info: Mapping[str, Any]) -> int:
        if not self._names_reasons:
            return 0 if terminated else 1
        reason = info.get("termination_reason", -1)
        if isinstance(reason, str) and reason in self.reasons:
            return self.reasons.index(reason)
        if isinstance(reason, int | np.integer) and -1 <= reason < len(self.reasons):
            return int(reason)
        raise CollectError(
            f"info['termination_reason'] is {reason!r}; it must be one of "
            f"{', '.join(self.reasons)}, or its position"
        )

    def _show_mask(self, info: Mapping[str, Any]) -> None:
        mask = info.get("action_mask")
        if isinstance(mask, tuple | list):
            mask = np.concatenate([np.ravel(part) for part in mask])
        choices = self.actions.choices
        found = np.asarray(mask)
        if found.size != sum(choices) or found.dtype.kind not in "biu":
            raise CollectError(
                f"info['action_mask'] is {mask!r:.200}; it must be {sum(choices)} flags, one per "
                "option, in every step and reset"
            )
        flags = found.ravel() != 0
        if not np.logical_or.reduceat(flags, self._firsts).all():
            raise CollectError(
                f"info['action_mask'] is {mask!r:.200}, which leaves a choice without any option"
            )
        assert self._outbox.mask is not None
        self._outbox.mask[0] = flags

    def _check_available(self, options: np.ndarray) -> None:
        assert self._outbox.mask is not None
        if not self._outbox.mask[0][self._firsts + options].all():
            available = np.flatnonzero(self._outbox.mask[0]).tolist()
            raise CollectError(
                f"the policy chose {options.tolist()}, which info['action_mask'] excludes; "
                f"available options, counted through all choices: {available}"
            )


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


def _number(reward: Any) -> float:
    if isinstance(reward, int | float | np.number | np.bool_) and not isinstance(reward, complex):
        return float(reward)
    if isinstance(reward, np.ndarray) and reward.shape == () and reward.dtype.kind in "fiub":
        return float(reward)
    raise CollectError(
        f"the reward is {reward!r:.200} ({type(reward).__name__}); it must be one number"
    )


def _flag(value: Any, which: int) -> bool:
    if isinstance(value, bool | np.bool_) or (
        isinstance(value, np.ndarray) and value.shape == () and value.dtype == bool
    ):
        return bool(value)
    raise CollectError(
        f"'{_FLAGS[which]}' is {value!r:.200} ({type(value).__name__}); it must be True or False"
    )


__all__ = ["GymnasiumEnvironment"]
