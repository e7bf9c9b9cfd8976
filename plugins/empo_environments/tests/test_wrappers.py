"""Wrappers of single environments, and the components against their kit."""

from __future__ import annotations

import io
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from empo_core.errors import ConfigError
from empo_core.protocols.environments import (
    Environment,
    EnvironmentContext,
    TimeStep,
    VectorEnv,
    VectorLayout,
)
from empo_environments.components import (
    CallableEnvironment,
    GymnasiumBacked,
    GymnasiumEnvironment,
    GymnasiumVectorEnvironment,
)
from empo_environments.episode_history import has_unrecorded
from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.gymnasium_vector import GymnasiumVectorEnv
from empo_environments.params import GymnasiumParams, GymnasiumVectorParams, WrapperParams
from empo_environments.serial import SerialVectorEnv
from empo_environments.trial import play_trial
from empo_testing.environment import EnvironmentTests, snapshot


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
    found = [snapshot(vector.recv())]
    for _ in range(count):
        vector.send(0, np.zeros((2, 1), np.int64))
        found.append(snapshot(vector.recv()))
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


def test_stacked_frames_have_the_bounds_of_their_space() -> None:
    class Both(Clock):
        observation_space = spaces.Dict(
            picture=spaces.Box(0, 255, (8, 8), np.uint8), time=spaces.Box(0, 9, (1,), np.float32)
        )

        def reset(self, **kwargs: Any) -> Any:
            seen, info = super().reset(**kwargs)
            return {"picture": np.full((8, 8), 255, np.uint8), "time": seen}, info

        def step(self, action: Any) -> Any:
            seen, *rest = super().step(action)
            return {"picture": np.zeros((8, 8), np.uint8), "time": seen}, *rest

    environment = GymnasiumBacked("both", lambda rendering: Both(), WrapperParams(frame_stack=3))
    assert environment.spec().observations.words == 3 * 65
    # The clock shows 10 in step 10, behind the pictures, where the newest frame is the last word.
    assert "in step 10: entry 194 is 10 (from 0 to 9)" in play_trial(environment)


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


@pytest.mark.slow  # What worker processes do is tested in test_process.py.
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


class Doors(gymnasium.Env[Any, Any]):
    """Option 1 is open in steps 0 to 2 of each five; paid 1 a step, an error for a closed one."""

    observation_space = spaces.Dict(
        {"action_mask": spaces.MultiBinary(2), "time": spaces.Box(0, 100, (1,), np.float32)}
    )
    action_space = spaces.Discrete(2)
    tells = False

    def _seen(self) -> tuple[dict[str, Any], dict[str, Any]]:
        mask = np.array([1, self.time % 5 < 3], np.int8)
        seen = {"action_mask": mask, "time": np.full(1, self.time, np.float32)}
        return seen, {"action_mask": mask} if self.tells else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return self._seen()

    def step(self, action: Any) -> Any:
        assert action == 0 or self.time % 5 < 3, "a closed door"
        self.time += 1
        seen, info = self._seen()
        return seen, 1.0, False, self.time == 20, info


class TellingDoors(Doors):
    tells = True


def doors(env: type[Doors] = Doors, **params: Any) -> VectorEnv:
    environment = GymnasiumBacked("doors", lambda rendering: env(), WrapperParams(**params))
    vector = environment.vector(1, VectorLayout())
    vector.start(0)
    return vector


@pytest.mark.parametrize("env", [Doors, TellingDoors])
def test_masks_in_observations_are_masks_and_are_not_observed(env: type[Doors]) -> None:
    vector = doors(env)
    assert (vector.spec.masks, vector.spec.observations.words) == (True, 1)
    masks = []
    for _ in range(6):
        arrival = snapshot(vector.recv())
        assert arrival.mask is not None
        masks.append(arrival.mask[0].tolist())
        vector.send(0, np.zeros((1, 1), np.int64))
    assert masks == [[True, True]] * 3 + [[True, False]] * 2 + [[True, True]]


def test_vectors_read_masks_in_observations() -> None:
    vector = GymnasiumVectorEnv(lambda: gymnasium.vector.SyncVectorEnv([Doors, Doors]))
    assert (vector.spec.masks, vector.spec.observations.words) == (True, 1)
    vector.start(0)
    masks = []
    for _ in range(4):
        arrival = snapshot(vector.recv())
        assert arrival.mask is not None
        masks.append(arrival.mask.tolist())
        vector.send(0, np.zeros((2, 1), np.int64))
    assert masks == [[[True, True]] * 2] * 3 + [[[True, False]] * 2]


@pytest.mark.parametrize("env", [Doors, TellingDoors])
def test_actions_are_repeated_as_long_as_they_are_available(env: type[Doors]) -> None:
    vector = doors(env, action_repeat=4)
    rewards = []
    for option in (1, 0, 1, 1, 0):
        arrival = snapshot(vector.recv())
        rewards.append(arrival.reward[0])
        assert arrival.mask is not None
        if not arrival.mask[0, option]:
            option = 0
        vector.send(0, np.array([[option]], np.int64))
    rewards.append(vector.recv().reward[0])
    # 1 is open in steps 0 to 2, 5 to 7 and so on; 0 always is.
    assert rewards == [0, 3, 4, 1, 4, 4]


@pytest.mark.parametrize(
    ("observation_space", "action_space", "message"),
    [
        (spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": spaces.Discrete(2)}),
         spaces.Discrete(2), "3 flags.* 2 options"),
        (spaces.Dict({"action_mask": spaces.MultiBinary(2), "x": spaces.Discrete(2)}),
         spaces.Box(-1, 1, (2,)), "2 flags .*numbers"),
        (spaces.Dict({"x": spaces.Dict({"action_mask": spaces.MultiBinary(2)})}),
         spaces.Discrete(2), r"\['x'\]\['action_mask'\]: .*deeper"),
    ],
)  # fmt: skip
def test_masks_that_cannot_mask_are_refused_with_what_to_do(
    observation_space: Any, action_space: Any, message: str
) -> None:
    class Odd(Clock):
        pass

    Odd.observation_space, Odd.action_space = observation_space, action_space
    with pytest.raises(ConfigError, match=rf"{message}.*(name|'keys')"):
        GymnasiumEnv(Odd())


@pytest.mark.parametrize(
    ("success", "expected"),
    [(True, 1), (np.False_, 0), (1.0, 1), (0, 0), (np.array([True]), 1), (np.float32(0), 0),
     (None, -1), ("no", -1), (np.array([True, False]), -1), (0.5, -1), ([], -1), ({}, -1)],
    ids=str,
)  # fmt: skip
def test_success_is_a_flag_or_is_ignored(success: Any, expected: int) -> None:
    class Told(Clock):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], {"success": success}

    environment = GymnasiumBacked("told", lambda rendering: Told(), WrapperParams())
    vector = environment.vector(2, VectorLayout())
    vector.start(0)
    (_, step) = steps(vector, 1)
    assert step.success is not None
    assert step.success.tolist() == [expected] * 2


def test_success_that_is_no_flag_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    class Verdict:
        """No other test has a success of this type."""

    class Told(Clock):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], {"success": Verdict(), "is_success": True}

    environment = GymnasiumBacked("told", lambda rendering: Told(), WrapperParams())
    vector = environment.vector(2, VectorLayout())
    vector.start(0)
    found = steps(vector, 3)
    assert all(each.success is not None and each.success.tolist() == [1, 1] for each in found[1:])
    assert [record.args for record in caplog.records] == [("success", "Verdict")]


class Endless(Clock):
    taken = 0

    def step(self, action: Any) -> Any:
        type(self).taken += 1
        self.time += 1
        return np.full(1, self.time % 7, np.float32), 0.0, False, False, {}


def endless(count: int, **params: Any) -> tuple[Any, VectorEnv]:
    """The state after so many steps of one copy, and a vector to load it."""
    environment = GymnasiumBacked("endless", lambda rendering: Endless(), WrapperParams(**params))
    vector = environment.vector(1, VectorLayout())
    vector.start(0)
    for _ in range(count):
        vector.recv()
        vector.send(0, np.zeros((1, 1), np.int64))
    vector.recv()
    return vector.state_dict(), environment.vector(1, VectorLayout())


def saved_bytes(state: Any) -> int:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return len(buffer.getvalue())


def test_states_do_not_grow_with_an_episode_that_never_ends() -> None:
    few, later = endless(900)
    before = Endless.taken
    assert later.load_state_dict(few)
    assert Endless.taken == before + 900
    assert snapshot(later.recv()).observation[0] == 900 % 7
    many, later = endless(1100)
    assert saved_bytes(many) < saved_bytes(few)
    assert has_unrecorded(many)
    assert not has_unrecorded(few)
    before = Endless.taken
    assert not later.load_state_dict(many)
    assert Endless.taken == before
    arrival = snapshot(later.recv())
    assert (arrival.observation[0], arrival.starts.tolist()) == (0, [True])


@pytest.mark.parametrize("params", [{}, {"action_repeat": 2}, {"frame_stack": 2}], ids=str)
def test_an_episode_that_is_known_to_end_is_recorded_to_its_end(params: dict[str, Any]) -> None:
    state, later = endless(1500, max_episode_steps=2000, **params)
    assert not has_unrecorded(state)
    assert later.load_state_dict(state)


def test_messages_count_steps_beyond_the_record() -> None:
    env = GymnasiumEnv(Endless())
    vector = SerialVectorEnv([lambda: env], blocks=1, order="rotation")
    vector.start(0)
    for _ in range(1200):
        vector.recv()
        vector.send(0, np.ones((1, 1), np.int64))
    vector.recv()
    assert "episode 0, step 1200;" in env.whereabouts()
    assert env.whereabouts().endswith(": [1]")
