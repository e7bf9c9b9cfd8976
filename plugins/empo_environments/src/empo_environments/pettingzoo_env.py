"""A PettingZoo environment, in which several agents act at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Shaped, UInt8

from empo_core.errors import CollectError, ConfigError
from empo_core.trees import StateDict
from empo_environments.agent_spaces import (
    AgentSpaces,
    common_actions,
    common_observations,
    first_options,
)
from empo_environments.episode_history import History
from empo_environments.single_env import StepBuffers, episode_seed
from empo_environments.spaces import MASK
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
from empo_environments.types import Value

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

    Rows of agents whose spaces differ are padded: observations by zeros, options by masked ones,
    numbers of actions by some that mean nothing. An AECEnv, whose agents take turns, becomes a
    ParallelEnv; whoever waits for its turn has the first option only, which does nothing.
    """

    def __init__(
        self,
        environment: ParallelEnv,
        *,
        reasons: Sequence[str] | None = None,
        picture_size: int | None = None,
    ) -> None:
        """Adapt an environment.

        Args:
            environment: It; closed by ``close``.
            reasons: Names of its termination reasons; None knows only its two flags.
            picture_size: Height and width that pictures are resized to; None: as they come.

        Raises:
            ConfigError: if the environment is no ParallelEnv and no AECEnv, or the spaces of its
                agents do not fit each other.
        """
        required = ("possible_agents", "observation_space", "action_space", "reset", "step")
        if not all(getattr(environment, name, None) for name in required):
            raise ConfigError(
                f"{environment!r:.200} is no pettingzoo.ParallelEnv or AECEnv with possible_agents"
            )
        environment, self._turns = _parallel(environment)
        self._names = list(environment.possible_agents)
        self.agents = tuple(str(name) for name in self._names)
        self._spaces = [
            AgentSpaces.of(
                environment.observation_space(name), environment.action_space(name), picture_size
            )
            for name in self._names
        ]
        self.observations = common_observations(self._names, self._spaces)
        self.actions = common_actions(self._names, self._spaces)
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
        shows_mask = any(spaces.shows_mask for spaces in self._spaces)
        differ = any(spaces.actions != self.actions for spaces in self._spaces)
        self.masks = self._tells_mask or shows_mask
        where = "info" if self._tells_mask else "observation"
        self._masks_of = [
            ActionMasks(spaces.actions, where) if self._tells_mask or spaces.shows_mask else None
            for spaces in self._spaces
        ]
        self._paddings: list[tuple[np.ndarray, np.ndarray]] = []
        if self.actions.is_discrete and (differ or self._turns is not None):
            self.masks = True
            self._paddings = [
                (spaces.option_positions(self.actions), spaces.padding_options(self.actions))
                for spaces in self._spaces
            ]
        self._check = ActionMasks(self.actions, where) if self.masks else None
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
        pairs = (outbox.observation, outbox.final_observation)
        self._writes, self._writes_final = (
            [spaces.writer(row) for spaces, row in zip(self._spaces, rows, strict=True)]
            for rows in pairs
        )
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
        if self._check is not None:
            assert outbox.mask is not None
            for i in before:
                with self._naming(i):
                    self._check.check(action[i], outbox.mask[i])
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
        mode = getattr(self._environment, "render_mode", None)
        picture = np.asarray(self._environment.render() if mode == "rgb_array" else None)
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ConfigError(
                f"{self._environment} draws no pictures of (height, width, 3) bytes; its "
                f"render_mode is {mode!r}, and they need 'rgb_array'"
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
        actions = {self._names[i]: self._spaces[i].action(action[i]) for i in self._alive}
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
                if outbox.mask is not None:
                    sources = infos if self._tells_mask else observations
                    outbox.mask[i] = self._mask(i, sources.get(self._names[i], {}))

    def _mask(self, i: int, source: Value) -> Bool[np.ndarray, " option"]:
        """The options of an agent among those of all, by its info or observation."""
        if self._turns is not None and self._turns.agent_selection != self._names[i]:
            waiting = np.zeros(sum(self.actions.choices), np.bool_)
            waiting[first_options(self.actions)] = True
            return waiting
        masks = self._masks_of[i]
        own_mask = None if masks is None else masks.of(source)
        if not self._paddings:
            return np.ones(sum(self.actions.choices), np.bool_) if own_mask is None else own_mask
        positions, padding = self._paddings[i]
        mask: np.ndarray = padding.copy()
        mask[positions] = True if own_mask is None else own_mask
        return mask

    def _of(self, values: Mapping[Name, Value], i: int, quantity: str) -> Value:
        if not isinstance(values, Mapping):
            raise CollectError(
                f"there is no {quantity}, but a {type(values).__name__}: {values!r:.200}; it must "
                "be a dictionary by agent"
            )
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


def _parallel(environment: Value) -> tuple[ParallelEnv, Value]:
    """An environment in which all act at once, and the one with turns that it was made of, if any.

    Raises:
        ConfigError: if PettingZoo refuses to make it.
    """
    if not hasattr(environment, "agent_iter"):
        return environment, None
    # Imported here because PettingZoo is an optional dependency.
    from pettingzoo.utils import (  # type: ignore[import-untyped]
        aec_to_parallel,
        turn_based_aec_to_parallel,
    )

    is_simultaneous = (environment.metadata or {}).get("is_parallelizable", False)
    try:
        if is_simultaneous:  # Its turns are those of one round, in which nobody sees the others.
            return aec_to_parallel(environment), None
        return turn_based_aec_to_parallel(environment), environment
    except Exception as error:
        raise ConfigError(
            f"{environment!r:.200} has turns, and PettingZoo makes no ParallelEnv of it: "
            f"{type(error).__name__}: {error}"
        ) from error
