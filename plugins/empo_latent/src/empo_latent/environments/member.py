"""One environment of a fleet, which repeats, stacks, cuts off, restarts and can be put back."""

from __future__ import annotations

import logging
import math
from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8

from empo_core.errors import CollectError
from empo_core.trees import StateDict
from empo_environments.params import WrapperParams
from empo_environments.single_env import episode_seed
from empo_latent.environments.contract import Environment

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Decision:
    """Outcome of an action.

    Attributes:
        observation: What is seen then, flat; the last of its episode where it ended.
        reward: What it paid, over all repetitions.
        terminated: Whether the episode is over.
        truncated: Whether it was cut off.
        success: 1 where the task was achieved meanwhile, 0 where not; NaN where nobody says.
        current: What to act on next; the first of a new episode where one ended.
    """

    observation: Shaped[np.ndarray, " word"]
    reward: float
    terminated: bool
    truncated: bool
    success: float
    current: Shaped[np.ndarray, " word"]


class Member:
    """One environment of a fleet, as decisions see it.

    Every episode begins with a seed of its own, so it is determined by the run's seed, the
    number of the environment and of the episode, and by what is done in it.

    Attributes:
        look: What is seen at a decision: newest observations, the oldest first.
        length: Most decisions of an episode; None where it is unknown.
        actions: Numbers of an action.
        rate: Decisions per second for who watches; None where that is unknown.
    """

    def __init__(
        self, environment: Environment, params: WrapperParams, where: str, number: int
    ) -> None:
        """Take over an environment, which ``close`` closes.

        Args:
            environment: It.
            params: How its steps become decisions.
            where: What it is called in messages.
            number: Its number in the fleet.
        """
        self._environment, self._params = environment, params
        self._where, self._number = where, number
        look, stack = environment.look, params.frame_stack
        self.look = replace(look, shape=(look.shape[0] * stack, *look.shape[1:]))
        own = None
        if environment.length is not None:
            own = math.ceil(environment.length / params.action_repeat)
        self.length = min(filter(None, (own, params.max_episode_steps)), default=None)
        self.actions = environment.actions
        rate = environment.rate
        self.rate = None if rate is None else rate / params.action_repeat
        self._frames: deque[np.ndarray] = deque(maxlen=stack)
        self._done = array("f")
        self._seed = self._episode = self._step = 0

    @property
    def current(self) -> Shaped[np.ndarray, " word"]:
        """The current observations."""
        return np.concatenate(self._frames).ravel()

    def start(self, seed: int) -> None:
        """Begin the first episode of a run with this seed."""
        self._seed, self._episode = seed, -1
        self._begin()

    def step(self, action: Float[np.ndarray, " action"]) -> Decision:
        """Act, and go on to the next episode where this one ends.

        Raises:
            CollectError: The environment failed, or showed or paid no finite number; the message
                says where, and how to get there again.
        """
        reward, terminated, truncated, success = self._act(action)
        seen = current = self.current
        if terminated or truncated:
            self._begin()
            current = self.current
        return Decision(seen, reward, terminated, truncated, success, current)

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of how things stand; see ``Environment``."""
        return self._environment.render()

    def state_dict(self) -> StateDict:
        """The episode, what was done in it, and what is seen now."""
        done = np.array(self._done, np.float32).reshape(-1, self.actions)
        return {
            "seed": self._seed,
            "episode": self._episode,
            "actions": torch.from_numpy(done),
            "current": torch.from_numpy(self.current),
        }

    def load_state_dict(self, state: StateDict, *, again: bool = True) -> bool:
        """Play the episode again, or begin the one after it.

        Args:
            state: What ``state_dict`` returned.
            again: Which of the two.

        Returns:
            Whether this led to where it was; else the episode after it has begun.
        """
        self._seed, self._episode = state["seed"], state["episode"] - 1
        if again and self._repeats(state):
            return True
        self._episode = state["episode"]
        self._begin()
        return False

    def _repeats(self, state: Mapping[str, Any]) -> bool:
        """True if an episode, played again, leads to where it was."""
        try:
            self._begin()
            for action in state["actions"].numpy():
                _, terminated, truncated, _ = self._act(action)
                if terminated or truncated:
                    return False
        except CollectError as error:  # What failed then fails again.
            log.warning("an episode cannot be played again: %s", error)
            return False
        return np.array_equal(self.current, state["current"].numpy())

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _begin(self) -> None:
        """Begin the next episode."""
        self._episode += 1
        self._step = 0
        del self._done[:]
        try:
            self._environment.reset(self._own_seed)
        except Exception as error:
            raise self._failed(error) from error
        self._frames.extend([self._observed()] * self._params.frame_stack)

    def _act(self, action: Float[np.ndarray, " action"]) -> tuple[float, bool, bool, float]:
        """Repeat an action; its reward, how the episode ended if it did, and success."""
        own = np.array(action[: self.actions], np.float32)
        self._done.frombytes(own.tobytes())
        self._step += 1
        total, success = 0.0, math.nan
        for _ in range(self._params.action_repeat):
            try:
                outcome = self._environment.step(own)
            except Exception as error:
                raise self._failed(error) from error
            total += outcome.reward
            success = float(np.fmax(success, outcome.success))
            if outcome.terminated or outcome.truncated:
                break
        if not math.isfinite(total):
            raise CollectError(f"{self._place}: the reward is {total}; {self._again}")
        self._frames.append(self._observed())
        return total, outcome.terminated, outcome.truncated or self._step == self.length, success

    def _observed(self) -> Shaped[np.ndarray, "*shape"]:
        """The current observation, checked."""
        try:
            seen = self._environment.observe()
        except Exception as error:
            raise self._failed(error) from error
        if not self.look.pictures and not np.isfinite(seen).all():
            words = np.flatnonzero(~np.isfinite(seen)).tolist()
            raise CollectError(
                f"{self._place}: the observation is {seen[words[0]]} at word {words[0]} "
                f"({len(words)} of {seen.size} words are not finite); {self._again}"
            )
        return seen

    def _failed(self, error: Exception) -> CollectError:
        what = f"{type(error).__name__}: {error}"
        return CollectError(f"{self._place}: {what}; {self._again}")

    @property
    def _own_seed(self) -> int:
        return episode_seed(self._seed, self._number, self._episode)

    @property
    def _place(self) -> str:
        return f"{self._where}, episode {self._episode}, step {self._step}"

    @property
    def _again(self) -> str:
        """Everything needed to restore the episode."""
        way = f"to see it again, reset the environment with seed {self._own_seed}"
        if not self._step:
            return way
        last = np.array(self._done[-self.actions :]).tolist()
        return f"{way} and repeat the episode's actions up to step {self._step}, where it is {last}"


__all__ = ["Decision", "Member", "episode_seed"]
