"""A Gymnasium vector environment, in whichever way it restarts episodes."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from jaxtyping import Int, Shaped
from numpy.random import SeedSequence
from torch import Tensor

from empo_core.best_effort import best_effort
from empo_core.errors import EXITS, CollectError, ConfigError, event, is_exit
from empo_core.protocols.environments import Action, EnvSpec, TimeStep
from empo_core.trees import StateDict, whole_number
from empo_environments.batched_spaces import (
    BatchedActions,
    BatchedObservations,
    Flags,
    Mask,
    Rows,
    check_available,
    check_finite,
    legal,
    masks,
    narrowed,
    numbers,
)
from empo_environments.block_schedule import BlockScheduler, check_action
from empo_environments.object_state import attribute_state, set_attribute_state
from empo_environments.spaces import MASK, without_mask
from empo_environments.step_checks import begun, five, frames_per_second
from empo_environments.types import GymVectorEnv, Info, Value

log = logging.getLogger(__name__)

Autoreset: TypeAlias = Literal["next_step", "same_step", "disabled", "inside_step"]
"""Restart mode of a vector environment after the end of an episode.

- ``next_step``: it shows the last observation, ignores the next action and resets instead.
- ``same_step``: it resets at once and shows the first observation of the next episode; the last
  one is ``info["final_obs"]``, or ``info["final_observation"]`` before Gymnasium 1.0.
- ``disabled``: it waits for ``reset(options={"reset_mask": ...})``.
- ``inside_step``: it shows the last observation; its next step resets and then applies the action
  that was chosen from that. The first observation of the next episode is never seen, so its first
  step is no experience.
"""


_MODES: dict[AutoresetMode, Autoreset] = {
    AutoresetMode.NEXT_STEP: "next_step",
    AutoresetMode.SAME_STEP: "same_step",
    AutoresetMode.DISABLED: "disabled",
}


class GymnasiumVectorEnv:
    """All copies of a vector environment, as one block; a ``VectorEnv``.

    Where its attributes are plain data (``object_state``), it goes on exactly from a state;
    otherwise new episodes begin after ``load_state_dict``. Where the info of ``reset``, or else a
    Dict observation, has ``action_mask`` (a flag per option, choice by choice), arrivals say what
    is available.
    """

    def __init__(
        self,
        make: Callable[[], GymVectorEnv],
        *,
        autoreset: Autoreset | None = None,
        first: int = 0,
        terminal_observations: bool = False,
    ) -> None:
        """Make the environment, and reset it to see what it tells.

        Args:
            make: Makes it.
            autoreset: How it restarts episodes; None: as its metadata says.
            first: Number of the first copy, which seeds depend on.
            terminal_observations: Whether last observations of episodes that terminated are told.

        Raises:
            ConfigError: if its metadata does not say how, or its spaces do not fit.
            CollectError: if the environment cannot be reset.
        """
        self._env, self._terminal = make(), terminal_observations
        self._is_called = False
        try:
            self._autoreset = _mode(self._env, autoreset)
            self._actions = BatchedActions(self._env.single_action_space)
            space, shows_mask = without_mask(
                self._env.single_observation_space, self._actions.format
            )
            self._observations = BatchedObservations(space)
            with self._calling("reset"):
                _, info = begun(self._env.reset, 0, self._env)
        except BaseException:
            self.close()
            raise
        self._tells_mask = MASK in info
        self.spec = EnvSpec(
            observations=self._observations.format,
            actions=self._actions.format,
            agents=("agent",),
            num_envs=self._env.num_envs,
            masks=self._tells_mask or shows_mask,
            max_episode_steps=None if self._env.spec is None else self._env.spec.max_episode_steps,
            render_fps=frames_per_second(self._env.metadata),
        )
        self._turns = BlockScheduler(1, "rotation")
        self._seed = self._restarts = 0
        self._first = first
        self._action: Action | None = None

    def start(self, seed: int) -> None:
        """Begin an episode in every copy.

        Raises:
            CollectError: if the environment cannot be reset, or returns what it must not.
        """
        self._seed, self._restarts = seed, 0
        self._begin()

    def recv(self) -> TimeStep:
        """Outcomes of the last actions.

        Raises:
            CollectError: if the environment failed, or returned what it must not.
            ConfigError: if the environment cannot reset some of its copies, and is told to.
            ValueError: if the last arrival was not answered yet.
        """
        self._turns.awaited()
        if self._action is not None:
            self._arrival, self._action = self._step(self._action), None
        self._turns.arrive(0)
        return self._arrival

    def send(self, block: int, action: Action) -> None:
        """Note what the copies are to do.

        Raises:
            ValueError: if nothing has arrived, or these are no actions for it.
        """
        self._turns.check(block)
        acts, mask = self._arrival.acts, self._arrival.mask
        check_action(self.spec, action, acts)
        if mask is not None:
            check_available(self.spec.actions, action, mask, acts)
        self._action = action.copy()
        self._turns.leave(block)

    def state_dict(self) -> StateDict:
        """State to go on from or, where the environment hides its own, to begin anew from."""
        state: StateDict = {"seed": self._seed, "restarts": self._restarts}
        inner = attribute_state(self._env)
        if inner is None:
            return state
        arrival = _stored(self._arrival)
        action = None if self._action is None else torch.from_numpy(self._action)
        return {**state, "environment": inner, "arrival": arrival, "action": action}

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Go on exactly, or begin new episodes where the state does not say how.

        Raises:
            ConfigError: if the state is of another number of copies.
        """
        self._seed = whole_number(state_dict.get("seed", 0))
        self._restarts = whole_number(state_dict.get("restarts", 0))
        if "arrival" not in state_dict:
            self._restarts += 1
            self._begin()
            return False
        arrival = _restored(state_dict["arrival"])
        if len(arrival.acts) != self.spec.num_envs:
            raise ConfigError(
                f"the state is that of {len(arrival.acts)} environments, and there are "
                f"{self.spec.num_envs}; go on with as many as before"
            )
        set_attribute_state(self._env, state_dict["environment"])
        self._arrival = arrival
        action = state_dict["action"]
        self._action = None if action is None else action.numpy().copy()
        self._turns.begin()
        return True

    @property
    def is_exact(self) -> bool:
        """True if its states lead back exactly."""
        return attribute_state(self._env) is not None

    def close(self) -> None:
        """Close the environment."""
        env = self._env.unwrapped
        if isinstance(env, AsyncVectorEnv) and self._is_called and not env.closed:
            # A call was broken off. Its own close would wait for workers that may be dead.
            for process in env.processes:
                process.kill()
                process.join()
            env.closed = True
        with best_effort(f"closing the vector environment {self._env}"):
            self._env.close()

    def _begin(self) -> None:
        words = SeedSequence((self._seed, self._restarts, self._first)).generate_state(1)
        with self._calling("reset"):
            observation, info = begun(self._env.reset, int(words[0]) >> 1, self._env)
        count = self.spec.num_envs
        everybody = np.ones(count, bool)
        rows = self._observations.rows(observation, count)
        check_finite("observation", rows)
        self._arrival = TimeStep(
            block=0,
            observation=rows,
            reward=np.zeros(count, np.float32),
            terminated=~everybody,
            truncated=~everybody,
            starts=everybody,
            acts=everybody,
            final_row=np.empty(0, np.int64),
            final_observation=rows[:0],
            mask=self._masks(observation, info, everybody),
            reason=np.full(count, -1),
        )
        self._action = None
        self._turns.begin()

    def _step(self, action: Action) -> TimeStep:
        acted, count = self._arrival.acts, self.spec.num_envs
        batch = self._actions.batch(action if acted.all() else legal(self.spec.actions, action))
        with self._calling("step"):
            observation, reward, terminated, truncated, info = five(self._env.step(batch))
        reward = narrowed("reward", numbers("rewards", reward, count, "fiub"))
        terminated = numbers("terminations", terminated, count, "b")
        truncated = numbers("truncations", truncated, count, "b")
        rows = self._observations.rows(observation, count)
        check_finite("reward", reward, action)
        check_finite("observation", rows, action)
        over = terminated | truncated
        terminated, truncated = terminated & acted, truncated & acted
        final_row, final_rows = self._finals(
            rows, terminated | truncated if self._terminal else truncated, info
        )
        all_go_on = self._autoreset == "same_step"
        mask = self._masks(observation, info, ~over | all_go_on)
        if self._autoreset == "disabled" and over.any():
            rows, mask = self._reset(over, rows, mask)
        # What shows the last observation of an episode resets next, whatever it is told.
        shows_last = self._autoreset in ("next_step", "inside_step")
        return TimeStep(
            block=0,
            observation=rows,
            reward=np.where(acted, reward, np.float32(0)),
            terminated=terminated,
            truncated=truncated,
            starts=~acted & ~over if shows_last else over,
            acts=~over if shows_last else np.ones_like(over),
            final_row=final_row,
            final_observation=final_rows,
            mask=mask,
            reason=np.where(terminated, 0, np.where(truncated, 1, -1)),
        )

    def _finals(
        self, rows: Rows, has_final: Flags, info: Info
    ) -> tuple[Int[np.ndarray, " final"], Shaped[np.ndarray, "final word"]]:
        """Which of the episodes ``has_final`` have a last observation, and those."""
        if self._autoreset != "same_step":
            envs = np.flatnonzero(has_final)
            return envs, rows[envs]
        name = next((name for name in ("final_obs", "final_observation") if name in info), None)
        if name is None or not has_final.any():
            return np.empty(0, np.int64), rows[:0]
        finals = info[name]
        if isinstance(finals, np.ndarray) and finals.dtype == object:
            envs = np.flatnonzero(has_final & np.array([final is not None for final in finals]))
            observations = self._observations.rows(
                self._observations.stacked(finals[envs]), len(envs)
            )
        else:
            envs = np.flatnonzero(has_final & np.asarray(info.get(f"_{name}", True)))
            observations = self._observations.rows(finals, len(rows))[envs]
        check_finite("last observation of an episode", observations, envs=envs)
        return envs, observations

    def _masks(self, observation: Value, info: Info, is_needed: Flags) -> Mask:
        """What is available, by the info or else by the observation; None without masks."""
        if not self.spec.masks:
            return None
        if self._tells_mask:
            return masks(info, self.spec.actions, is_needed)
        return masks({MASK: observation[MASK]}, self.spec.actions, is_needed, where="observation")

    def _reset(self, over: Flags, rows: Rows, mask: Mask) -> tuple[Rows, Mask]:
        """Begin the next episode of those copies whose episode is over."""
        rows = rows.copy()
        with self._calling("reset(options={'reset_mask': ...})"):
            observation, info = self._env.reset(options={"reset_mask": over.copy()})
        fresh = self._observations.rows(observation, len(rows))
        check_finite("observation", fresh)
        changed = np.flatnonzero((fresh != rows).any(1) & ~over)
        if len(changed):
            raise ConfigError(
                f"{self._env}: reset(options={{'reset_mask': ...}}) also changed environment "
                f"{changed[0]}, which it was not to reset, so with autoreset 'disabled' episodes "
                "would be lost; let the vector environment obey the mask, or restart by itself"
            )
        if mask is not None:
            anew = self._masks(observation, info, over)
            assert anew is not None
            mask = np.where(over[:, None], anew, mask)
        return np.where(over[:, None], fresh, rows), mask

    @contextmanager
    def _calling(self, method: str) -> Iterator[None]:
        """Errors of the environment say what was asked of it."""
        self._is_called = True
        try:
            yield
        except (Exception, *EXITS) as error:
            text = event(error) if is_exit(error) else f"{type(error).__name__}: {error}"
            raise CollectError(
                f"the vector environment {self._env} failed in {method}: "
                f"{text}\n\n{traceback.format_exc()}"
            ) from error
        self._is_called = False


def _stored(arrival: TimeStep) -> StateDict:
    """An arrival as checkpoints keep it, a copy."""
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in asdict(arrival).items()  # Copies.
    }


def _restored(state_dict: StateDict) -> TimeStep:
    """The arrival that was stored."""
    fields: StateDict = {
        name: value.numpy().copy() if isinstance(value, Tensor) else value
        for name, value in state_dict.items()
    }
    return TimeStep(**fields)


def _mode(env: GymVectorEnv, chosen: Autoreset | None) -> Autoreset:
    """Restart mode of an environment: as given, or as its metadata says."""
    stated = (env.metadata or {}).get("autoreset_mode")
    declared = _MODES[stated] if isinstance(stated, AutoresetMode) else None
    if chosen is not None:
        # Nothing that Gymnasium has a name for is 'inside_step'.
        if declared not in (None, chosen) and chosen != "inside_step":
            log.warning(
                "%s says that it restarts episodes by %s, and environment.autoreset is %s: if that "
                "is wrong, outcomes are taken for those of other episodes", env, declared, chosen,
            )  # fmt: skip
        return chosen
    if declared is not None:
        return declared
    raise ConfigError(
        f"{env}: metadata['autoreset_mode'] is {stated!r}, which is no gymnasium.vector."
        f"AutoresetMode; set environment.autoreset to one of {', '.join(get_args(Autoreset))}"
    )
