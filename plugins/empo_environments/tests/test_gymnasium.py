"""Single Gymnasium environments, and what cuts their first episodes off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from empo_core.errors import CollectError, ConfigError
from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.serial import SerialVectorEnv
from empo_environments.single_env import SingleEnv, episode_seed
from empo_environments.wrappers import DesyncEnv
from empo_testing.environment import MakeVector, VectorEnvTests

Make = Callable[[], SingleEnv]


class Walk(gymnasium.Env[np.ndarray, np.int64]):
    """Shows step and episode's random number; action 1 ends the episode, as does time."""

    observation_space: spaces.Space[Any] = spaces.Box(-1, 2, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)
    longest = 5

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.luck = self.np_random.random()
        return self.seen(), self.info()

    def step(self, action: Any) -> Any:
        self.steps += 1
        return (
            self.seen(),
            self.reward(),
            bool(action == 1),
            self.steps >= self.longest,
            self.info(),
        )

    def seen(self) -> Any:
        return np.array([self.steps / 10, self.luck], np.float32)

    def reward(self) -> Any:
        return float(self.steps)

    def info(self) -> dict[str, Any]:
        return {}


def serial(env: type[Walk], copies: int = 1, **kwargs: Any) -> SerialVectorEnv:
    vector = SerialVectorEnv(
        [lambda: GymnasiumEnv(env(), **kwargs)] * copies, blocks=1, order="rotation"
    )
    vector.start(3)
    return vector


def act(vector: SerialVectorEnv, *options: int) -> None:
    vector.send(0, np.array(options).reshape(-1, 1))


class TestGymnasiumEnv(VectorEnvTests):
    @pytest.fixture
    def make_vector(self) -> MakeVector:
        make = lambda: GymnasiumEnv(Walk())  # noqa: E731
        return lambda: SerialVectorEnv([make] * 4, blocks=2, order="rotation")


class Masked(Walk):
    """Must not end its episodes in even steps."""

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, self.steps % 2], np.int8)}


class TestMasks(VectorEnvTests):
    @pytest.fixture
    def make_vector(self) -> MakeVector:
        make = lambda: GymnasiumEnv(Masked())  # noqa: E731
        return lambda: SerialVectorEnv([make] * 4, blocks=2, order="rotation")


class TestNumbers(VectorEnvTests):
    rounds = 210

    @pytest.fixture
    def make_vector(self) -> MakeVector:
        make = lambda: GymnasiumEnv(gymnasium.make("Pendulum-v1"))  # noqa: E731
        return lambda: SerialVectorEnv([make] * 2, blocks=1, order="rotation")


class TestDesynchronised(VectorEnvTests):
    @pytest.fixture
    def make_vector(self) -> MakeVector:
        make = lambda: DesyncEnv(GymnasiumEnv(Walk()), 4)  # noqa: E731
        return lambda: SerialVectorEnv([make] * 4, blocks=2, order="rotation")


class Lucky(Walk):
    """Cannot be seeded."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=None)


class TestWhatIsNotDeterministic(VectorEnvTests):
    exact = False

    @pytest.fixture
    def make_vector(self) -> MakeVector:
        make = lambda: GymnasiumEnv(Lucky())  # noqa: E731
        return lambda: SerialVectorEnv([make] * 2, blocks=1, order="rotation")

    def test_equal_seeds_lead_to_equal_episodes(self) -> None:  # type: ignore[override]
        """They do not."""

    def test_asking_for_the_state_changes_nothing(self) -> None:  # type: ignore[override]
        """That cannot be seen here."""


def test_a_truncated_episode_shows_its_last_observation_and_the_next_ones_first() -> None:
    vector = serial(Walk, copies=2)
    first = vector.recv().observation.copy()
    for _ in range(Walk.longest - 1):
        act(vector, 0, 0)
        assert not vector.recv().truncated.any()
    act(vector, 0, 1)
    arrival = vector.recv()
    assert arrival.reward.tolist() == [5, 5]
    assert arrival.terminated.tolist() == [False, True]
    assert arrival.truncated.tolist() == [True, True]
    assert arrival.reason.tolist() == [1, 0]
    assert arrival.starts.tolist() == [True, True]
    assert arrival.final_row.tolist() == [0, 1]
    np.testing.assert_array_equal(arrival.final_observation[:, 1], first[:, 1])
    np.testing.assert_allclose(arrival.final_observation[:, 0], 0.5)
    assert (arrival.observation[:, 0] == 0).all()
    assert (arrival.observation[:, 1] != first[:, 1]).all()


def test_a_terminated_episode_has_no_final_observation() -> None:
    vector = serial(Walk)
    vector.recv()
    act(vector, 1)
    arrival = vector.recv()
    assert arrival.terminated.all()
    assert not arrival.truncated.any()
    assert not len(arrival.final_row)


def test_every_episode_of_every_environment_has_a_seed_of_its_own() -> None:
    vector = serial(Walk, copies=2)
    luck = []
    for _ in range(4):
        luck += vector.recv().observation[:, 1].tolist()
        act(vector, 1, 1)
    expected = [
        np.random.default_rng(episode_seed(3, number, episode)).random(dtype=np.float64)
        for episode in range(4)
        for number in range(2)
    ]
    np.testing.assert_allclose(luck, expected, rtol=1e-6)
    assert len(set(luck)) == len(luck)


def test_seeds_of_episodes_are_spread_and_fit_31_bits() -> None:
    seeds = {episode_seed(s, n, e) for s in range(10) for n in range(10) for e in range(10)}
    assert len(seeds) == 1000
    assert max(seeds) < 2**31
    assert min(seeds) >= 0
    assert max(seeds) > 2**30


def test_reasons_are_read_from_the_info_by_position_or_name() -> None:
    class Reasonable(Walk):
        def info(self) -> dict[str, Any]:
            return {"termination_reason": (None, 1, "lost", -1)[self.steps]} if self.steps else {}

    vector = serial(Reasonable, reasons=["won", "lost"])
    assert vector.spec.reasons == ("won", "lost")
    found = []
    for steps in (1, 2, 3):
        vector.recv()
        for step in range(steps):
            act(vector, int(step == steps - 1))
            if step < steps - 1:
                assert vector.recv().reason.tolist() == [-1]
        arrival = vector.recv()
        found += arrival.reason.tolist()
        act(vector, 1)
        vector.recv()
        act(vector, 1)
    assert found == [1, 1, -1]


def test_a_reason_that_does_not_exist_is_refused() -> None:
    class Unreasonable(Walk):
        def info(self) -> dict[str, Any]:
            return {"termination_reason": "bored"}

    vector = serial(Unreasonable, reasons=["won", "lost"])
    vector.recv()
    act(vector, 1)
    with pytest.raises(CollectError, match=r"(?s)environment 0 .*'bored'.*won, lost"):
        vector.recv()


def test_options_that_are_not_available_never_reach_the_environment() -> None:
    vector = serial(Masked, copies=2)
    assert vector.recv().mask.tolist() == [[True, False]] * 2
    act(vector, 0, 1)
    with pytest.raises(CollectError, match=r"environment 1 .*step 1.*\[1\].*action_mask.*\[0\]"):
        vector.recv()


def test_masks_cover_all_choices_and_may_come_in_parts() -> None:
    class Parts(Walk):
        action_space = spaces.MultiDiscrete([2, 3])

        def step(self, action: Any) -> Any:
            return super().step(action[0])

        def info(self) -> dict[str, Any]:
            return {"action_mask": (np.array([1, 0]), np.array([0, 1, 1]))}

    vector = serial(Parts)
    assert vector.recv().mask.tolist() == [[True, False, False, True, True]]
    vector.send(0, np.array([[0, 2]]))
    vector.recv()
    vector.send(0, np.array([[0, 0]]))
    with pytest.raises(CollectError, match="chose"):
        vector.recv()


@pytest.mark.parametrize(("mask", "complaint"), [
    (None, "2 flags"), (np.ones(3), "2 flags"), (np.zeros(2, np.int8), "any option"),
    (np.array([0.5, 1]), "2 flags"),
])  # fmt: skip
def test_masks_that_are_none_are_refused(mask: Any, complaint: str) -> None:
    class Wrong(Walk):
        def info(self) -> dict[str, Any]:
            return {"action_mask": np.ones(2, np.int8)} if not self.steps else {"action_mask": mask}

    vector = serial(Wrong)
    vector.recv()
    act(vector, 0)
    with pytest.raises(CollectError, match=complaint):
        vector.recv()


def test_numbers_cannot_be_masked() -> None:
    class Numbers(Masked):
        action_space = spaces.Box(-1, 1, (2,))

    with pytest.raises(ConfigError, match="only options"):
        serial(Numbers)


NAN = float("nan")


@pytest.mark.parametrize(("returned", "complaint"), [
    ((np.array([NAN, 0], np.float32), 0.0, False, False, {}), r"observation \[nan"),
    ((np.array([0, 0], np.float32), NAN, False, False, {}), "reward nan"),
    ((np.array([0, 0], np.float32), np.inf, False, False, {}), "reward inf"),
    ((np.array([0, -np.inf]), 0.0, False, False, {}), "observation .*-inf"),
    ((np.array([0, NAN]), 1.0, False, True, {}), "nan.*truncated True"),
    ((np.zeros(3, np.float32), 0.0, False, False, {}), r"\(3,\).*says float32 of shape \(2,\)"),
    ((np.zeros(2, np.complex64), 0.0, False, False, {}), "complex64"),
    ((np.zeros(2, np.float32), None, False, False, {}), "reward is None"),
    ((np.zeros(2, np.float32), np.zeros(1), False, False, {}), "reward is array\\("),
    ((np.zeros(2, np.float32), "1", False, False, {}), "reward is '1'"),
    ((np.zeros(2, np.float32), 0.0, None, False, {}), "'terminated' is None"),
    ((np.zeros(2, np.float32), 0.0, False, 2, {}), "'truncated' is 2"),
    ((np.zeros(2, np.float32), 0.0, False), "ValueError"),
])  # fmt: skip
def test_what_must_not_be_returned_is_located_and_shown(returned: Any, complaint: str) -> None:
    class Wrong(Walk):
        def step(self, action: Any) -> Any:
            return returned if self.luck > 2 else (returned if action else super().step(0))

    vector = serial(Wrong, copies=3)
    vector.recv()
    act(vector, 0, 0, 0)
    vector.recv()
    act(vector, 0, 0, 1)
    with pytest.raises(CollectError, match=rf"(?s)environment 2 .*step 2.*{complaint}"):
        vector.recv()


def test_large_numbers_are_finite() -> None:
    class Large(Walk):
        observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

        def seen(self) -> Any:
            return np.array([3e38, -3e38], np.float32)

        def reward(self) -> Any:
            return 3e38

    vector = serial(Large, copies=2)
    for _ in range(7):
        arrival = vector.recv()
        assert np.isfinite(arrival.observation).all()
        act(vector, 0, 0)


@pytest.mark.parametrize("reward", [1, True, np.float32(1), np.int64(1), np.array(1.0), np.True_])
def test_every_kind_of_number_is_a_reward(reward: Any) -> None:
    class Pays(Walk):
        def reward(self) -> Any:
            return reward

    vector = serial(Pays)
    vector.recv()
    act(vector, 0)
    assert vector.recv().reward.tolist() == [1]


def test_errors_of_environments_come_with_their_traceback() -> None:
    class Breaks(Walk):
        def reward(self) -> Any:
            raise RuntimeError("out of cheese")

    vector = serial(Breaks)
    vector.recv()
    act(vector, 0)
    with pytest.raises(
        CollectError, match=r"(?s)environment 0 .*step 1: RuntimeError.*Traceback.*in reward"
    ):
        vector.recv()


def test_first_episodes_are_cut_off_at_random_lengths_and_later_ones_are_not() -> None:
    class Long(Walk):
        longest = 50

    make = lambda: DesyncEnv(GymnasiumEnv(Long()), 30)  # noqa: E731
    vector = SerialVectorEnv([make] * 16, blocks=1, order="rotation")
    vector.start(0)
    ends: list[list[int]] = [[] for _ in range(16)]
    vector.recv()
    for step in range(1, 140):
        act(vector, *[0] * 16)
        arrival = vector.recv()
        assert not arrival.terminated.any()
        assert arrival.final_row.tolist() == np.flatnonzero(arrival.truncated).tolist()
        assert (arrival.starts == arrival.truncated).all()
        assert (arrival.reason[arrival.truncated] == 1).all()
        for row in arrival.final_row:
            ends[row].append(step)
    firsts = [first for first, *_ in ends]
    assert len(set(firsts)) > 8
    assert 1 <= min(firsts) <= max(firsts) <= 30
    assert all(np.diff(more).tolist() == [50] * (len(more) - 1) for more in ends)


def test_an_episode_that_ends_before_it_is_cut_off_is_left_alone() -> None:
    make = lambda: DesyncEnv(GymnasiumEnv(Walk()), 10**9)  # noqa: E731
    vector = SerialVectorEnv([make], blocks=1, order="rotation")
    vector.start(0)
    vector.recv()
    act(vector, 1)
    arrival = vector.recv()
    assert arrival.terminated.all()
    assert not arrival.truncated.any()


def test_the_longest_first_episode_is_the_environments_own_limit() -> None:
    environment = GymnasiumEnv(gymnasium.make("Pendulum-v1"))
    assert environment.max_episode_steps == 200
    vector = SerialVectorEnv([lambda: DesyncEnv(environment)], blocks=1, order="rotation")
    lengths = set()
    for seed in range(20):
        vector.start(seed)
        lengths.add(vector.state_dict()["environments"][0]["left"])
    assert max(lengths) <= 200
    assert max(lengths) > 100


def test_environments_that_differ_are_refused() -> None:
    class Other(Walk):
        action_space = spaces.Discrete(3)

    makes: list[Make] = [
        lambda: GymnasiumEnv(Walk()),
        lambda: GymnasiumEnv(Other()),
    ]
    with pytest.raises(ConfigError, match=r"environment 1 .*environment 0 .*actions"):
        SerialVectorEnv(makes, blocks=1, order="rotation")


def test_spaces_that_do_not_fit_say_which_environment_it_was() -> None:
    class Talks(Walk):
        observation_space = spaces.Text(3)

    with pytest.raises(ConfigError, match=r"environment 0 .*Text"):
        serial(Talks)


def test_a_state_of_another_number_of_environments_is_refused() -> None:
    state = serial(Walk, copies=2).state_dict()
    with pytest.raises(ConfigError, match=r"2 environments.* 3"):
        serial(Walk, copies=3).load_state_dict(state)


def test_sizes_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"3 environments.* 2 blocks"):
        SerialVectorEnv([lambda: GymnasiumEnv(Walk())] * 3, blocks=2, order="rotation")
