"""MiniGrid's missions are observed as the words that were chosen for them."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest

from empo_core.components import build
from empo_core.config import EnvironmentRef
from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import Environment, EnvironmentContext, VectorLayout
from empo_environments.types import GymEnv

minigrid = pytest.importorskip("minigrid")
missions = pytest.importorskip("empo_environments.missions")


def made(name: str) -> GymEnv:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Some are there in an older version, too.
        env = gymnasium.make(name, disable_env_checker=True)
    known: GymEnv = missions.with_chosen_missions(env)
    return known


def environment(name: str) -> Environment:
    found: Environment = build(
        EnvironmentRef.model_validate(f"gymnasium/{name}"), EnvironmentContext()
    )
    return found


def names() -> list[str]:
    # Those of wave function collapse need further packages.
    return [n for n in gymnasium.registry if n.startswith("MiniGrid-") and "-WFC-" not in n]


def test_all_of_minigrid_is_observed() -> None:
    assert len(names()) > 70
    for name in names():
        env = made(name)
        for seed in range(3):
            observation, _ = env.reset(seed=seed)
            assert observation in env.observation_space, name


def test_a_mission_is_observed_as_its_words() -> None:
    env = made("MiniGrid-Fetch-5x5-N2-v0")
    words = env.unwrapped.observation_space["mission"].ordered_placeholders  # type: ignore[index]
    seen = set()
    for seed in range(30):
        observation, _ = env.reset(seed=seed)
        chosen = [options[i] for options, i in zip(words, observation["mission"], strict=True)]
        assert env.unwrapped.mission == "{} {} {}".format(*chosen)  # type: ignore[attr-defined]
        seen.add(tuple(chosen))
    assert len(seen) > 10


def test_a_row_has_the_picture_the_direction_and_the_words() -> None:
    vector = environment("MiniGrid-Fetch-5x5-N2-v0").vector(1, VectorLayout())
    vector.start(0)
    row = vector.recv().observation[0]
    vector.close()
    picture, direction, syntax, colour, kind = np.split(row, np.cumsum([147, 4, 5, 6]))
    assert 0 <= picture.min() < picture.max() <= 1
    assert [part.sum() for part in (direction, syntax, colour, kind)] == [1] * 4
    assert len(kind) == 2


def test_a_mission_that_never_changes_is_left_out() -> None:
    spec = environment("MiniGrid-Empty-Random-6x6-v0").spec()
    assert (spec.observations.words, spec.observations.grid) == (147 + 4, (3, 7, 7))


def test_sentences_of_unlimited_kinds_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"\['mission'"):
        environment("BabyAI-GoToRedBall-v0").spec()


def test_a_mission_that_was_not_declared_is_refused() -> None:
    env = made("MiniGrid-Fetch-5x5-N2-v0")
    env.reset(seed=0)
    env.unwrapped.mission = "dance"  # type: ignore[attr-defined]
    with pytest.raises(CollectError, match="the mission 'dance'"):
        env.step(0)
