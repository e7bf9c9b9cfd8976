"""Wrappers of single environments, and the components against their kit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from empo_core.protocols.environments import (
    Environment,
    EnvironmentContext,
    TimeStep,
    VectorEnv,
    VectorLayout,
)
from empo_core.testing.environment import EnvironmentTests, kept
from empo_environments.components import (
    CallableEnvironment,
    GymnasiumBacked,
    GymnasiumEnvironment,
    GymnasiumVectorEnvironment,
)
from empo_environments.gymnasium_vector import GymnasiumVectorEnv
from empo_environments.params import GymnasiumParams, GymnasiumVectorParams, WrapperParams
from empo_environments.serial import SerialVectorEnv


class Clock(gymnasium.Env[Any, Any]):
    """Observes its step, pays it, and truncates after ten."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.full(1, self.time, np.float32), float(self.time), False, self.time == 10, {}


def clock(**params: Any) -> VectorEnv:
    environment = GymnasiumBacked("clock", lambda rendering: Clock(), WrapperParams(**params))
    vector = environment.vector(2, VectorLayout())
    vector.start(0)
    return vector


def steps(vector: VectorEnv, count: int) -> list[TimeStep]:
    found = [kept(vector.recv())]
    for _ in range(count):
        vector.send(0, np.zeros((2, 1), np.int64))
        found.append(kept(vector.recv()))
    return found


def test_repeated_actions_add_their_rewards_up_and_stop_where_the_episode_ends() -> None:
    found = steps(clock(action_repeat=4), 3)
    assert [each.reward[0] for each in found] == [0, 1 + 2 + 3 + 4, 5 + 6 + 7 + 8, 9 + 10]
    assert [each.truncated[0] for each in found] == [False, False, False, True]
    assert found[3].final_observation[:, 0].tolist() == [10, 10]
    assert found[3].starts.all()


def test_frames_are_stacked_oldest_first_and_begin_with_copies_of_the_first() -> None:
    found = steps(clock(frame_stack=3), 10)
    assert found[0].observation[0].tolist() == [0, 0, 0]
    assert found[2].observation[0].tolist() == [0, 1, 2]
    assert found[3].observation[0].tolist() == [1, 2, 3]
    assert found[10].final_observation[0].tolist() == [8, 9, 10]
    assert found[10].observation[0].tolist() == [0, 0, 0]


def test_pictures_are_stacked_by_channels() -> None:
    class Picture(Clock):
        observation_space = spaces.Box(0, 9, (4, 5), np.uint8)

        def reset(self, **kwargs: Any) -> Any:
            return np.zeros((4, 5), np.uint8), super().reset(**kwargs)[1]

        def step(self, action: Any) -> Any:
            seen, *rest = super().step(action)
            return np.full((4, 5), seen[0], np.uint8), *rest

    environment = GymnasiumBacked("p", lambda rendering: Picture(), WrapperParams(frame_stack=2))
    spec = environment.spec().observations
    assert (spec.grid, spec.words, spec.scale, spec.dtype) == ((2, 4, 5), 40, 9, "uint8")
    vector = environment.vector(2, VectorLayout())
    vector.start(0)
    assert steps(vector, 2)[2].observation[0].tolist() == [1] * 20 + [2] * 20


def test_episodes_are_cut_off_after_so_many_steps() -> None:
    found = steps(clock(max_episode_steps=3), 6)
    assert [each.truncated[0] for each in found] == [False, False, False, True, False, False, True]
    assert found[3].final_observation[:, 0].tolist() == [3, 3]
    assert found[3].observation[:, 0].tolist() == [0, 0]


@pytest.mark.parametrize(
    "params",
    [{}, {"action_repeat": 2}, {"frame_stack": 3}, {"max_episode_steps": 7},
     {"action_repeat": 3, "frame_stack": 2, "max_episode_steps": 5}],
    ids=str,
)  # fmt: skip
class TestGymnasium(EnvironmentTests):
    @pytest.fixture
    def environment(self, params: dict[str, Any]) -> Environment:
        return GymnasiumEnvironment(
            GymnasiumParams(id="CartPole-v1", **params), EnvironmentContext()
        )


class TestGymnasiumInWorkers(EnvironmentTests):
    workers = 2

    @pytest.fixture
    def environment(self) -> Environment:
        params = GymnasiumParams(id="CartPole-v1", frame_stack=2)
        return GymnasiumEnvironment(params, EnvironmentContext())


def cartpoles(params: dict[str, Any], count: int = 8, **layout: Any) -> VectorEnv:
    environment = GymnasiumEnvironment(
        GymnasiumParams(id="CartPole-v1", **params), EnvironmentContext()
    )
    return environment.vector(count, VectorLayout(**layout))


@pytest.mark.parametrize("explicit", [True, False])
class TestVectorClass(EnvironmentTests):
    copies = 8

    @pytest.fixture
    def environment(self, explicit: bool) -> Environment:
        if explicit:
            params = GymnasiumVectorParams(id="CartPole-v1")
            return GymnasiumVectorEnvironment(params, EnvironmentContext())
        return GymnasiumEnvironment(GymnasiumParams(id="CartPole-v1"), EnvironmentContext())

    def test_no_copy_steps_by_itself(self, vector: VectorEnv) -> None:
        assert isinstance(vector, GymnasiumVectorEnv)


@pytest.mark.parametrize(
    ("params", "layout"),
    [({"stepping": "copies"}, {}), ({"frame_stack": 2}, {}), ({"max_episode_steps": 9}, {}),
     ({"reasons": ["fell"]}, {}), ({}, {"desync": True}), ({}, {"blocks": 2}),
     ({}, {"rendering": True}), ({}, {"count": 7})],
    ids=str,
)  # fmt: skip
def test_copies_step_one_by_one_where_a_vector_class_cannot_do_what_is_asked(
    params: dict[str, Any], layout: dict[str, Any]
) -> None:
    assert isinstance(cartpoles(params, **layout), SerialVectorEnv)


def test_vectors_of_several_actors_play_different_episodes() -> None:
    seen = []
    for first in (0, 8):
        vector = cartpoles({}, first=first)
        vector.start(3)
        seen.append(vector.recv().observation)
    assert not (seen[0] == seen[1]).any()


class Shorter(CartPoleVectorEnv):
    """Sees two of the four numbers."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.single_observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0][:, :2], {}


class Hidden(CartPoleVectorEnv):
    """Keeps something where no state of it can be read."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.history: list[float] = []


@pytest.mark.parametrize("other", [Shorter, Hidden])
def test_a_vector_class_that_differs_or_hides_its_state_is_not_used(other: type[Any]) -> None:
    name = f"EmpoEnvironmentsTests/{other.__name__}-v0"
    gymnasium.register(
        name, "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=500,
        vector_entry_point=other,
    )  # fmt: skip
    environment = GymnasiumEnvironment(GymnasiumParams(id=name), EnvironmentContext())
    assert environment.uses_workers
    assert isinstance(environment.vector(8, VectorLayout()), SerialVectorEnv)


class TestCallable(EnvironmentTests):
    @pytest.fixture
    def environment(self) -> Environment:
        return CallableEnvironment(lambda: gymnasium.make("CartPole-v1"))


def test_keys_of_a_dictionary_can_be_chosen() -> None:
    class Mixed(Clock):
        observation_space = spaces.Dict(  # type: ignore[assignment]
            {"image": spaces.Box(0, 10, (7, 7, 3), np.uint8), "mission": spaces.Text(9)}
        )

        def reset(self, **kwargs: Any) -> Any:
            return {"image": np.full((7, 7, 3), 10, np.uint8), "mission": "go"}, {}

    gymnasium.register("EmpoEnvironmentsTests/Mixed-v0", entry_point=Mixed)  # type: ignore[arg-type]
    params = GymnasiumParams(id="EmpoEnvironmentsTests/Mixed-v0", keys=["image"])
    spec = GymnasiumEnvironment(params, EnvironmentContext()).spec()
    assert (spec.observations.grid, spec.observations.scale) == ((3, 7, 7), 10)


class Codes(gymnasium.Env[Any, Any]):
    """Shows codes as MiniGrid does: up to 10, declared up to 255, beside other parts."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (7, 7, 3), np.uint8), "direction": spaces.Discrete(4)}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return {"image": np.full((7, 7, 3), 10, np.uint8), "direction": 2}, {}


@pytest.mark.parametrize(
    ("name", "params", "high"),
    [
        ("MiniGrid-EmpoTest-v0", {}, 10),
        ("MiniGrid-EmpoTest-v0", {"picture_high": 40}, 40),
        ("EmpoTest/Codes-v0", {}, 255),
        ("EmpoTest/Codes-v0", {"picture_high": 20}, 20),
    ],
)
@pytest.mark.parametrize("keys", [None, ["image"]])
def test_pictures_are_divided_by_their_true_greatest_value(
    name: str, params: dict[str, Any], high: int, keys: list[str] | None
) -> None:
    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point=Codes)  # type: ignore[arg-type]
    environment = GymnasiumEnvironment(
        GymnasiumParams(id=name, keys=keys, **params), EnvironmentContext()
    )
    vector = environment.vector(1, VectorLayout())
    vector.start(0)
    seen, row = vector.spec.observations, vector.recv().observation[0]
    if keys is None:  # Beside others a picture is divided already.
        assert (seen.dtype, seen.grid, seen.words) == ("float32", (3, 7, 7), 151)
        np.testing.assert_allclose(row, [10 / high] * 147 + [0, 0, 1, 0], rtol=1e-6)
    else:
        assert (seen.dtype, seen.grid, seen.scale) == ("uint8", (3, 7, 7), high)
        assert row.tolist() == [10] * 147


def test_minigrid_is_divided_by_ten() -> None:
    pytest.importorskip("minigrid")
    params = GymnasiumParams(id="MiniGrid-Empty-5x5-v0", keys=["image"])
    vector = GymnasiumEnvironment(params, EnvironmentContext()).vector(1, VectorLayout())
    vector.start(0)
    seen = vector.spec.observations
    assert (seen.dtype, seen.grid, seen.scale) == ("uint8", (3, 7, 7), 10)
    assert vector.recv().observation.max() <= 10
    vector.close()
