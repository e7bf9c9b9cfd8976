"""First calls of environments, and numbers beyond float32: told as what they are."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from empo_core.errors import CollectError
from empo_core.protocols.environments import VectorEnv, VectorLayout
from empo_environments.components import CallableEnvironment
from empo_environments.gymnasium_vector import GymnasiumVectorEnv

ZERO = np.zeros(3, np.float32)


class Plain(gymnasium.Env[Any, Any]):
    """Nothing happens in it."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space: Any = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return ZERO, {}

    def step(self, action: Any) -> Any:
        return ZERO, 1.0, False, False, {}


class Unmade(Plain):
    def __init__(self) -> None:
        raise OSError("the level file is missing")


class WithoutSeed(Plain):
    def reset(self) -> Any:  # type: ignore[override]
        return ZERO, {}


class ObservationOnly(Plain):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return ZERO


class InfoIsNone(Plain):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return ZERO, None


class Failing(Plain):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise RuntimeError("no licence")


FIRST = {
    Unmade: ["could not be made", "OSError", "the level file is missing"],
    WithoutSeed: ["reset(seed=0)", "must take seed"],
    ObservationOnly: ["reset(seed=0) returned", "ndarray", "observation and info"],
    InfoIsNone: ["reset(seed=0) returned", "None", "dictionary"],
    Failing: ["RuntimeError", "no licence"],
}


@pytest.mark.parametrize("kind", FIRST)
def test_first_calls_are_told(kind: Any) -> None:
    environment = CallableEnvironment(kind)
    calls = [environment.spec, lambda: environment.vector(1, VectorLayout())]
    for call in calls:
        with pytest.raises(CollectError, match="environment") as caught:
            call()
        assert all(word in str(caught.value) for word in FIRST[kind])


def stepped(vector: VectorEnv, action: np.ndarray) -> None:
    vector.start(0)
    vector.recv()
    vector.send(0, action)
    vector.recv()


def test_a_step_of_four_things_is_told() -> None:
    class Old(Plain):
        def step(self, action: Any) -> Any:
            return ZERO, 1.0, False, {}

    with pytest.raises(CollectError, match="tuple of 4") as caught:
        stepped(CallableEnvironment(Old).vector(1, VectorLayout()), np.zeros((1, 1), np.int64))
    assert "environment 0" in str(caught.value)


class Parallel:
    """A PettingZoo environment of two agents."""

    metadata: ClassVar[dict[str, Any]] = {}
    possible_agents = agents = ("a", "b")

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return Plain.observation_space

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return dict.fromkeys(self.agents, ZERO), {name: {} for name in self.agents}

    def step(self, actions: Any) -> Any:
        return dict.fromkeys(self.agents, ZERO), dict.fromkeys(self.agents, 1.0), {}

    def close(self) -> None:
        pass


class ObservationsOnly(Parallel):
    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return dict.fromkeys(self.agents, ZERO)


class SeedlessParallel(Parallel):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ObservationsOnly, ["reset(seed=0) returned", "dict", "observation and info"]),
        (SeedlessParallel, ["reset(seed=0)", "must take seed"]),
    ],
)
def test_first_calls_of_parallel_environments_are_told(kind: Any, words: list[str]) -> None:
    with pytest.raises(CollectError) as caught:
        CallableEnvironment(kind).spec()
    assert all(word in str(caught.value) for word in words)


def test_a_parallel_step_of_three_things_is_told() -> None:
    vector = CallableEnvironment(Parallel).vector(1, VectorLayout())
    with pytest.raises(CollectError, match="tuple of 3"):
        stepped(vector, np.zeros((2, 1), np.int64))


class Wide(Plain):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)  # type: ignore[assignment]

    def step(self, action: Any) -> Any:
        return np.array([0.0, 1e300, 0.0]), 1.0, False, False, {}


class Rich(Plain):
    def step(self, action: Any) -> Any:
        return ZERO, -1e300, False, False, {}


@pytest.mark.parametrize(("kind", "message"), [(Wide, "observation"), (Rich, "reward")])
def test_numbers_beyond_float32_are_told_as_they_are(kind: Any, message: str) -> None:
    with pytest.raises(CollectError, match="float32") as caught:
        stepped(CallableEnvironment(kind).vector(1, VectorLayout()), np.zeros((1, 1), np.int64))
    assert message in str(caught.value)
    assert "e+300" in str(caught.value)

    def make() -> Any:
        return gymnasium.vector.SyncVectorEnv([kind] * 2)

    with pytest.raises(CollectError, match="float32") as caught:
        stepped(GymnasiumVectorEnv(make), np.zeros((2, 1), np.int64))
    assert f"{message} of environment 0" in str(caught.value)
