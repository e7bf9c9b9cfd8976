"""A PettingZoo environment, in which several agents act at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Shaped, UInt8

from empo_core.errors import CollectError, ConfigError
from empo_core.trees import StateDict
from empo_environments.episode_history import History
from empo_environments.single_env import StepBuffers, episode_seed
from empo_environments.spaces import MASK, acting, observing, without_mask
from empo_environments.step_checks import (
    FLAGS,
    ActionMasks,
    EndReasons,
    begun,
    five,
    flag,
    frames_per_second,
    number,
)
from empo_environments.types import Space, Value

ParallelEnv: TypeAlias = Any
"""A ``pettingzoo.ParallelEnv``; any class, for PettingZoo need not be installed."""
Name: TypeAlias = Value
"""Name of an agent: whatever can be hashed."""


class PettingZooEnv:
    """A ParallelEnv whose episodes go on until no agent is left.

    An agent that terminates, is truncated or disappears (which counts as terminated, also where no
    dictionary of the step has it) is dead until the next episode; one that has not been there yet
    may appear at any time. ``action_mask`` and ``termination_reason`` mean what they mean to
    ``GymnasiumEnv``, agent by agent.
    """

    def __init__(self, environment: ParallelEnv, *, reasons: Sequence[str] | None = None) -> None:
        """Adapt an environment.

        Args:
            environment: It; closed by ``close``.
            reasons: Names of its termination reasons; None knows only its two flags.

        Raises:
            ConfigError: if the environment is no ParallelEnv, or the spaces of its agents differ or
                do not fit.
        """
        # Environments with turns have all of these too, and 'agent_iter'.
        required = ("possible_agents", "observation_space", "action_space", "reset", "step")
        fits = all(getattr(environment, name, None) for name in required)
        if not fits or hasattr(environment, "agent_iter"):
            raise ConfigError(
                f"{environment!r:.200} is no pettingzoo.ParallelEnv with possible_agents; where "
                "agents take turns, pettingzoo.utils.aec_to_parallel may make one of it"
            )
        self._names = list(environment.possible_agents)
        self.agents = tuple(str(name) for name in self._names)
        for kind in ("observation_space", "action_space"):
            _require_equal(kind, {name: getattr(environment, kind)(name) for name in self._names})
        self.actions, self._decode = acting(environment.action_space(self._names[0]))
        space, shows_mask = without_mask(
            environment.observation_space(self._names[0]), self.actions
        )
        self.observations, self._bind = observing(space)
        self._why = EndReasons(reasons)
        self.reasons = self._why.names
        self._environment = environment
        self.source: object = getattr(environment, "unwrapped", environment)
        self.max_episode_steps: int | None = None
        self.action_repeat = 1
        self.render_fps = frames_per_second(getattr(environment, "metadata", None))
        # Nothing but an episode tells whether there are masks.
        _, infos = begun(environment.reset, 0, environment, Mapping)
        self._tells_mask = any(MASK in info for info in infos.values())
        self.masks = self._tells_mask or shows_mask
        where = "info" if self._tells_mask else "observation"
        self._masks = ActionMasks(self.actions, where) if self.masks else None
        self._history = History(self.actions, len(self.agents))
        self.begins_episode = False
        self._seed = self._number = self._episode = 0
        self._alive: list[int] = []
        self._dead: set[int] = set()

    def keep_actions(self, steps: int) -> None:
        """Record at least so many actions of an episode; see ``SingleEnv``."""
        self._history.keep(steps)

    def start(self, outbox: StepBuffers, seed: int, number: int) -> None:
        """Begin the first episode."""
        self._outbox = outbox
        self._writes = [self._bind(row) for row in outbox.observation]
        self._writes_final = [self._bind(row) for row in outbox.final_observation]
        self._seed, self._number, self._episode = seed, number, -1
        self.begin()

    def begin(self) -> None:
        """Begin the next episode."""
        self._episode += 1
        observations, infos = self._reset()
        self._show(observations, infos)
        self._outbox.starts[:] = self._outbox.acts
        self.begins_episode = True

    def step(self, action: Shaped[np.ndarray, "agent number"]) -> None:
        """Let the living act, and go on to the next episode where none is left."""
        before, outbox = self._alive, self._outbox
        self.begins_episode = False
        if self._masks is not None:
            assert outbox.mask is not None
            for i in before:
                with self._naming(i):
                    self._masks.check(action[i], outbox.mask[i])
        outcome, ends = self._act(action)
        observations, rewards, *_, infos = outcome
        for i in before:
            if self._has_vanished(i, outcome):
                continue  # Without a reward.
            with self._naming(i):
                outbox.reward[i] = number(self._of(rewards, i, "reward"))
        for i, (terminated, truncated) in ends.items():
            outbox.terminated[i], outbox.truncated[i] = terminated, truncated
            with self._naming(i):
                outbox.reason[i] = self._why.of(terminated, infos.get(self._names[i], {}))
                if self._names[i] in observations:
                    self._writes_final[i](observations[self._names[i]])
                    outbox.has_final[i] = True
        if not self._alive:
            self.begin()
            return
        self._show(observations, infos)
        outbox.starts[[i for i in self._alive if i not in before]] = True

    def state_dict(self) -> StateDict:
        """The episode, what was done in it, and what is seen now."""
        return {
            "episode": self._episode,
            "actions": self._history.tensor(),
            "observation": torch.from_numpy(self._outbox.observation.copy()),
        }

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Play the episode again."""
        self._episode = state_dict["episode"]
        actions = state_dict["actions"]
        if actions is None:  # Too many to be recorded.
            self.begin()
            return False
        observations, infos = self._reset()
        for action in actions.numpy():
            if not self._alive:
                break
            (observations, *_, infos), _ = self._act(action)
        if self._alive:
            self._show(observations, infos)
            self.begins_episode = not len(self._history)
            if np.array_equal(self._outbox.observation, state_dict["observation"].numpy()):
                return True
        self.begin()
        return False

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """A picture for people; see ``SingleEnv``."""
        picture = np.asarray(self._environment.render())
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ConfigError(f"{self._environment} draws no pictures of (height, width, 3) bytes")
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

    def _reset(self) -> tuple[Mapping[Name, Value], Mapping[Name, Value]]:
        self._history.clear()
        reset = self._environment.reset
        observations, infos = begun(reset, self._episode_seed, self._environment, Mapping)
        self._dead = set()
        self._look_around()
        if not self._alive:
            raise CollectError("reset left no agent: 'agents' is empty, so none can act")
        return observations, infos

    def _act(
        self, action: Shaped[np.ndarray, "agent number"]
    ) -> tuple[tuple[Mapping[Name, Value], ...], dict[int, tuple[bool, bool]]]:
        """Let the living act; what came of it, and who is dead of what."""
        self._history.append(action)
        actions = {self._names[i]: self._decode(action[i]) for i in self._alive}
        outcome = five(self._environment.step(actions))
        _, _, *flags, _ = outcome
        before = self._alive
        ends: dict[int, tuple[bool, bool]] = {}
        self._look_around()
        for i in before:
            if self._has_vanished(i, outcome):
                ends[i] = True, False
                continue
            with self._naming(i):
                terminated, truncated = (
                    flag(self._of(flags[which], i, f"'{name}'"), which)
                    for which, name in enumerate(FLAGS)
                )
            if not (terminated or truncated):
                terminated = i not in self._alive
            if terminated or truncated:
                ends[i] = terminated, truncated
        self._dead |= ends.keys()
        self._alive = [i for i in self._alive if i not in ends]
        return outcome, ends

    def _has_vanished(self, i: int, outcome: tuple[Mapping[Name, Value], ...]) -> bool:
        """True if no dictionary of a step has the agent, and that is no fault of all of them."""
        if any(self._names[i] in part for part in outcome):
            return False
        is_gone = self._names[i] not in self._environment.agents
        return is_gone or any(name in part for part in outcome for name in self._names)

    def _look_around(self) -> None:
        """See who is there and not dead."""
        present = set(self._environment.agents)
        self._alive = [
            i for i, name in enumerate(self._names) if name in present and i not in self._dead
        ]

    def _show(self, observations: Mapping[Name, Value], infos: Mapping[Name, Value]) -> None:
        outbox = self._outbox
        outbox.acts.fill(False)
        outbox.acts[self._alive] = True
        outbox.observation[~outbox.acts] = 0
        if outbox.mask is not None:
            outbox.mask[~outbox.acts] = True
        for i in self._alive:
            with self._naming(i):
                self._writes[i](self._of(observations, i, "observation"))
                if self._masks is not None and outbox.mask is not None:
                    sources = infos if self._tells_mask else observations
                    outbox.mask[i] = self._masks.of(sources.get(self._names[i], {}))

    def _of(self, values: Mapping[Name, Value], i: int, quantity: str) -> Value:
        try:
            return values[self._names[i]]
        except KeyError:
            there = ", ".join(map(repr, values)) or "none"
            raise CollectError(f"there is no {quantity}, only of {there}") from None

    @contextmanager
    def _naming(self, i: int) -> Iterator[None]:
        """Errors say which agent they are about."""
        try:
            yield
        except CollectError as error:
            raise CollectError(f"agent {self.agents[i]!r}: {error}") from error


def _require_equal(kind: str, spaces: Mapping[Name, Space]) -> None:
    first, *others = spaces
    for other in others:
        if spaces[other] != spaces[first]:
            raise ConfigError(
                f"the {kind} of agent {str(other)!r} is {spaces[other]}, and that of "
                f"{str(first)!r} is {spaces[first]}; all agents of a run must have equal spaces: "
                "wrap the environment so that they have, e.g. by supersuit.pad_observations_v0"
            )
