"""MiniGrid's missions as choices: which words were chosen for the gaps of a sentence."""

from __future__ import annotations

import itertools
import math

import gymnasium
import numpy as np
from gymnasium import spaces
from minigrid.core.mission import MissionSpace

from empo_core.errors import CollectError
from empo_environments.spaces import MAX_OPTIONS
from empo_environments.types import GymEnv, Value


def with_chosen_missions(env: GymEnv) -> GymEnv:
    """An environment whose missions are choices; one that never changes is left out.

    The same environment where its missions are not known beforehand.
    """
    space = env.observation_space
    if isinstance(space, spaces.Dict):
        mission = space.spaces.get("mission")
        # BabyAI's spaces of missions derive from this one, but hold any sentence.
        if type(mission) is MissionSpace and math.prod(map(len, _words(mission))) <= MAX_OPTIONS:
            return ChosenMission(env, space, mission)
    return env


class ChosenMission(gymnasium.ObservationWrapper[Value, Value, Value]):
    """Observes the number of each chosen word instead of the sentence.

    Args:
        env: The environment.
        space: Its observations.
        mission: Their part ``mission``.
    """

    def __init__(self, env: GymEnv, space: spaces.Dict, mission: MissionSpace) -> None:
        super().__init__(env)
        words = _words(mission)
        self._choices: dict[str, tuple[int, ...]] = {}
        for choice in itertools.product(*(range(len(options)) for options in words)):
            sentence = mission.mission_func(*(o[i] for o, i in zip(words, choice, strict=True)))
            self._choices.setdefault(sentence, choice)
        parts = {key: part for key, part in space.spaces.items() if key != "mission"}
        self._varies = len(self._choices) > 1
        if self._varies:
            parts["mission"] = spaces.MultiDiscrete([len(options) for options in words])
        self.observation_space = spaces.Dict(parts)

    def observation(self, observation: Value) -> Value:
        """The observation, with the choice or without any mission."""
        parts = {**observation}
        sentence = parts.pop("mission")
        if sentence not in self._choices:
            raise CollectError(f"the mission {sentence!r:.200} is none of those its space declares")
        if self._varies:
            parts["mission"] = np.array(self._choices[sentence])
        return parts


def _words(mission: MissionSpace) -> list[list[str]]:
    return mission.ordered_placeholders or []
