from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import gymnasium.vector
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import VectorEnv
from empo_environments.gymnasium_vector import Autoreset, GymnasiumVectorEnv
from empo_testing.environment import MakeVector, VectorEnvTests, snapshot

LENGTHS = ((3, 1, 4), (2, 5), (1, 6, 2, 1))
"""Steps of the episodes of each environment, again and again."""
ENDS = ((True, False), (False, True), (True, True))
"""Flags (terminated, truncated) at the ends of episodes, again and again."""
MODES: tuple[Autoreset, ...] = ("next_step", "same_step", "disabled", "inside_step")


class Scripted(gymnasium.Env[np.ndarray, int]):
    """Whatever is done, episodes go as the tables say; what was done is paid."""

    observation_space = gymnasium.spaces.Box(-1, 100, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(3, start=5)

    def __init__(self, number: int) -> None:
        self.number, self.episode, self.time = number, -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        # A seed is the beginning of everything.
        self.episode, self.time = 0 if seed is not None else self.episode + 1, 0
        return self.see(), {}

    def see(self) -> np.ndarray:
        return np.array([self.number, self.episode, self.time], np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert action in self.action_space
        lengths = LENGTHS[self.number % len(LENGTHS)]
        assert self.time < lengths[self.episode % len(lengths)], "the episode is over"
        self.time += 1
        terminated = truncated = False
        if self.time == lengths[self.episode % len(lengths)]:
            terminated, truncated = ENDS[(self.number + self.episode) % len(ENDS)]
        return self.see(), 10.0 * self.time + (action - 5), terminated, truncated, {}


def choice(observation: np.ndarray) -> np.ndarray:
    """Something to do, which depends on all that is seen."""
    return (observation @ np.array([1, 2, 1])).astype(np.int64) % 3


class Step(NamedTuple):
    """One transition of one environment, as a learner sees it."""

    seen: tuple[float, ...]
    option: int
    reward: float
    terminated: bool
    truncated: bool
    then: tuple[float, ...] | None


def true_steps(number: int, count: int) -> list[Step]:
    """The first steps of an environment that does what ``choice`` says."""
    env = Scripted(number)
    seen, _ = env.reset()
    steps = []
    for _ in range(count):
        option = int(choice(seen))
        then, reward, terminated, truncated, _ = env.step(option + 5)
        known = None if terminated and not truncated else tuple(then.tolist())
        steps.append(Step(tuple(seen.tolist()), option, reward, terminated, truncated, known))
        seen = env.reset()[0] if terminated or truncated else then
    return steps


def learned_steps(vector: VectorEnv, rounds: int) -> list[list[Step]]:
    """Transitions read from arrivals as the contract says; the last step has no outcome yet."""
    slots = vector.spec.num_agents
    steps: list[list[Step]] = [[] for _ in range(slots)]
    before, options = None, np.zeros(slots, np.int64)
    for _ in range(rounds):
        now = snapshot(vector.recv())
        if before is not None:
            finals = dict(zip(now.final_row.tolist(), now.final_observation.tolist(), strict=True))
            for slot in np.flatnonzero(before.acts):
                over = now.terminated[slot] or now.truncated[slot]
                then = finals.get(slot) if over else now.observation[slot].tolist()
                steps[slot].append(
                    Step(
                        tuple(before.observation[slot].tolist()),
                        int(options[slot]),
                        float(now.reward[slot]),
                        bool(now.terminated[slot]),
                        bool(now.truncated[slot]),
                        None if then is None else tuple(then),
                    )
                )
        options = choice(now.observation)
        vector.send(0, np.where(now.acts, options, -1)[:, None])
        before = now
    return steps


class InsideStep(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Resets inside the step after the last one, and then applies the action."""

    def __init__(self, count: int) -> None:
        self.num_envs = count
        self._envs = [Scripted(number) for number in range(count)]
        self._over = [False] * count
        self.single_observation_space = Scripted.observation_space
        self.single_action_space = Scripted.action_space
        self.observation_space = batch_space(Scripted.observation_space, count)
        self.action_space = batch_space(Scripted.action_space, count)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self._over = [False] * self.num_envs
        return np.stack([env.reset(seed=seed)[0] for env in self._envs]), {}

    def step(self, actions: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        results = []
        for number, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            if self._over[number]:
                env.reset()
            results.append(env.step(int(action)))
            self._over[number] = results[-1][2] or results[-1][3]
        observation, reward, terminated, truncated, _ = zip(*results, strict=True)
        return (
            np.stack(observation),
            np.array(reward),
            np.array(terminated),
            np.array(truncated),
            {},
        )


def environments(
    mode: Autoreset, count: int = 3, copy: bool = True
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    if mode == "inside_step":
        return InsideStep(count)
    makes = [lambda number=number: Scripted(number) for number in range(count)]
    return SyncVectorEnv(makes, autoreset_mode=AutoresetMode[mode.upper()], copy=copy)


def adapted(mode: Autoreset) -> GymnasiumVectorEnv:
    told = mode if mode == "inside_step" else None  # The others say so themselves.
    return GymnasiumVectorEnv(lambda: environments(mode), autoreset=told)


class OldInfo(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Names last observations as Gymnasium did before 1.0."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        *outcome, info = self.env.step(actions)
        if "final_obs" in info:
            info["final_observation"] = info.pop("final_obs")
            info["_final_observation"] = info.pop("_final_obs")
        return (*outcome, info)


class BatchedInfo(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Has last observations in one array, as environments do that are made of arrays."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        *outcome, info = self.env.step(actions)
        if "final_obs" in info:
            nothing = np.full(3, np.nan, np.float32)
            parts = [nothing if part is None else part for part in info["final_obs"]]
            info["final_obs"] = np.stack(parts)
        return (*outcome, info)


class NoFinals(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Says nothing of last observations."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        *outcome, info = self.env.step(actions)
        return (*outcome, {key: value for key, value in info.items() if "final" not in key})


class ChangedStep(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Returns something else in the second step."""

    def __init__(
        self, env: gymnasium.vector.VectorEnv[Any, Any, Any], change: Callable[[list[Any]], Any]
    ) -> None:
        super().__init__(env)
        self._change, self._steps = change, 0

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        outcome = list(self.env.step(actions))
        self._steps += 1
        if self._steps == 2:
            self._change(outcome)
        return tuple(outcome)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_every_way_to_restart_episodes_leads_to_the_same_experience(
    mode: Autoreset, copy: bool
) -> None:
    vector = GymnasiumVectorEnv(lambda: environments(mode, copy=copy))
    vector.start(7)
    for number, steps in enumerate(learned_steps(vector, 60)):
        assert len(steps) > 30
        assert steps == true_steps(number, len(steps))


def test_steps_that_nobody_saw_the_beginning_of_are_no_experience() -> None:
    vector = adapted("inside_step")
    vector.start(7)
    for number, steps in enumerate(learned_steps(vector, 60)):
        seen = [step for step in true_steps(number, 200) if step.seen[1] == 0 or step.seen[2] > 0]
        assert len(steps) > 20
        assert steps == seen[: len(steps)]


def test_dead_steps_are_exactly_those_in_which_the_environment_resets() -> None:
    vector = adapted("next_step")
    vector.start(7)
    seen = []
    for _ in range(8):
        arrival = snapshot(vector.recv())
        seen.append((bool(arrival.acts[1]), bool(arrival.starts[1]), *arrival.observation[1, 1:]))
        vector.send(0, np.zeros((3, 1), np.int64))
    assert seen == [
        (True, True, 0, 0), (True, False, 0, 1), (False, False, 0, 2),
        (True, True, 1, 0), (True, False, 1, 1), (True, False, 1, 2), (True, False, 1, 3),
        (True, False, 1, 4),
    ]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_nothing_comes_of_what_was_no_action(mode: Autoreset) -> None:
    vector = adapted(mode)
    vector.start(7)
    acted = vector.recv().acts.copy()
    for _ in range(30):
        vector.send(0, np.zeros((3, 1), np.int64))
        arrival = vector.recv()
        assert not arrival.reward[~acted].any()
        assert not (arrival.terminated | arrival.truncated)[~acted].any()
        acted = arrival.acts.copy()


def test_actions_count_as_they_were_when_sent() -> None:
    vector = adapted("same_step")
    vector.start(7)
    vector.recv()
    action = np.full((3, 1), 2)
    vector.send(0, action)
    action[:] = 0
    np.testing.assert_array_equal(vector.recv().reward, 12.0)


@pytest.mark.parametrize("wrapper", [OldInfo, BatchedInfo])
def test_last_observations_are_found_wherever_the_info_has_them(wrapper: Any) -> None:
    vector = GymnasiumVectorEnv(lambda: wrapper(environments("same_step")))
    vector.start(7)
    for number, steps in enumerate(learned_steps(vector, 60)):
        assert steps == true_steps(number, len(steps))


def test_truncated_episodes_without_last_observation_have_no_final_row() -> None:
    vector = GymnasiumVectorEnv(lambda: NoFinals(environments("same_step")))
    vector.start(7)
    truncated = 0
    for _ in range(20):
        arrival = vector.recv()
        truncated += int(arrival.truncated.sum())
        assert not len(arrival.final_row)
        vector.send(0, np.zeros((3, 1), np.int64))
    assert truncated > 5


def test_episodes_end_for_the_reasons_that_the_flags_give() -> None:
    vector = adapted("next_step")
    vector.start(7)
    for _ in range(20):
        arrival = vector.recv()
        assert arrival.reason is not None
        assert ((arrival.reason == 0) == arrival.terminated).all()
        assert ((arrival.reason == 1) == (arrival.truncated & ~arrival.terminated)).all()
        vector.send(0, np.zeros((3, 1), np.int64))


def test_a_state_begins_episodes_that_have_not_been_played() -> None:
    one, other = (
        GymnasiumVectorEnv(
            lambda: gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
        )
        for _ in range(2)
    )
    one.start(7)
    first = snapshot(one.recv()).observation
    assert other.load_state_dict(one.state_dict()) is False
    second = snapshot(other.recv()).observation
    assert one.load_state_dict(other.state_dict()) is False
    third = snapshot(one.recv()).observation
    assert not (first == second).any()
    assert not (third == second).any()
    assert not (third == first).any()


def test_a_state_belongs_to_a_number_of_copies() -> None:
    two, three = (
        GymnasiumVectorEnv(lambda count=count: gymnasium.make_vec("CartPole-v1", num_envs=count))
        for count in (2, 3)
    )
    two.start(7)
    with pytest.raises(ConfigError, match=r"2 environments.* 3"):
        three.load_state_dict(two.state_dict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda out: out[0].__setitem__((1, 2), np.nan), "observation.* environment 1 "),
        (lambda out: out[1].__setitem__(2, np.inf), "reward.* environment 2 .*inf"),
        (lambda out: out.__setitem__(0, out[0][:, :2]), "of shape \\(3, 2\\)"),
        (lambda out: out.__setitem__(1, out[1][:2]), "rewards.* \\(2,\\)"),
        (lambda out: out.__setitem__(2, np.zeros(3)), "terminations.* float64"),
        (lambda out: out.__setitem__(3, None), "truncations.* object"),
        (lambda out: out.__setitem__(0, None), "observations.* object"),
        (lambda out: out.clear(), "tuple of 0"),
    ],
)
def test_what_cannot_be_learned_from_is_named(
    change: Callable[[list[Any]], Any], message: str
) -> None:
    vector = GymnasiumVectorEnv(lambda: ChangedStep(environments("same_step"), change))
    vector.start(7)
    for _ in range(2):
        vector.recv()
        vector.send(0, np.zeros((3, 1), np.int64))
    with pytest.raises(CollectError, match=message):
        vector.recv()


class NoNumbers(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Ends episodes with nothing that could be seen."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        *outcome, info = self.env.step(actions)
        for final in info.get("final_obs", ()):
            if final is not None:
                final[:] = np.nan
        return (*outcome, info)


def test_last_observations_must_be_numbers() -> None:
    vector = GymnasiumVectorEnv(lambda: NoNumbers(environments("same_step")))
    vector.start(7)
    vector.recv()
    vector.send(0, np.zeros((3, 1), np.int64))
    with pytest.raises(CollectError, match=r"observation.* environment 2 "):
        vector.recv()


def test_metadata_must_say_how_episodes_restart() -> None:
    with pytest.raises(ConfigError, match=r"environment\.autoreset .*next_step, same"):
        GymnasiumVectorEnv(lambda: InsideStep(2))


def test_who_contradicts_metadata_is_told(caplog: pytest.LogCaptureFixture) -> None:
    GymnasiumVectorEnv(lambda: environments("next_step"), autoreset="next_step").close()
    assert not caplog.records
    GymnasiumVectorEnv(lambda: environments("next_step"), autoreset="same_step").close()
    assert "restarts episodes by next_step, and environment.autoreset is same_step" in caplog.text


class Heedless(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Resets everything whatever the mask says."""

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
        return self.env.reset(seed=seed)


@pytest.mark.parametrize("copy", [True, False])
def test_without_autoreset_an_environment_must_obey_masks(copy: bool) -> None:
    vector = GymnasiumVectorEnv(lambda: Heedless(environments("disabled", copy=copy)))
    vector.start(7)
    vector.recv()
    vector.send(0, np.zeros((3, 1), np.int64))
    with pytest.raises(ConfigError, match="changed environment 0"):
        vector.recv()


def test_workers_of_the_environment_that_die_do_not_hang_the_learner() -> None:
    env = AsyncVectorEnv([lambda number=number: Scripted(number) for number in range(2)])
    vector = GymnasiumVectorEnv(lambda: env)
    vector.start(7)
    vector.recv()
    env.processes[1].kill()
    vector.send(0, np.zeros((2, 1), np.int64))
    with pytest.raises(CollectError, match=r"AsyncVectorEnv.* step"):
        vector.recv()
    vector.close()
    vector.close()
    assert not any(process.is_alive() for process in env.processes)


class Rich(gymnasium.Env[dict[str, Any], Any]):
    """Sees a picture, an option and numbers, does two things, and may not do all of them."""

    observation_space = gymnasium.spaces.Dict(
        speed=gymnasium.spaces.Box(-1, 1, (2,), np.float64),
        room=gymnasium.spaces.Discrete(3),
        picture=gymnasium.spaces.Box(0, 255, (4, 5, 3), np.uint8),
    )
    action_space = gymnasium.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.time = 0
        return self.see()

    def see(self) -> tuple[Any, dict]:
        seen = {
            "speed": np.array([0.5, -self.time / 8]),
            "room": np.int64(self.time % 3),
            "picture": np.full((4, 5, 3), self.time, np.uint8),
        }
        mask = np.array([1, 1, self.time % 2, 1, 0], np.int8)
        return seen, {"action_mask": mask}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert action in self.action_space
        assert self.see()[1]["action_mask"][2 + action[1]]
        self.time += 1
        observation, info = self.see()
        return observation, float(action[0]), self.time == 3, self.time == 2 and not action[0], info


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
class TestRichSpaces(VectorEnvTests):
    rounds = 15
    exact = False

    @pytest.fixture
    def make_vector(self, mode: str) -> MakeVector:
        how = AutoresetMode[mode.upper()]
        return lambda: GymnasiumVectorEnv(lambda: SyncVectorEnv([Rich] * 3, autoreset_mode=how))

    def test_rows_are_those_of_single_environments(self, new_vector: MakeVector) -> None:
        from empo_environments.spaces import observing

        vector = new_vector()
        vector.start(1)
        observations, bind = observing(Rich.observation_space)
        assert vector.spec.observations == observations
        assert vector.spec.masks
        row = np.empty(observations.words, np.float32)
        bind(row)(Rich().reset()[0])
        np.testing.assert_array_equal(vector.recv().observation, np.tile(row, (3, 1)))

    def test_what_is_not_available_cannot_be_done(self, vector: VectorEnv) -> None:
        vector.recv()
        with pytest.raises(ValueError, match=r"row 1 .*excludes"):
            vector.send(0, np.array([[0, 1], [0, 2], [0, 1]]))


class Forgetful(Rich):
    """Forgets its mask in the second step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        *outcome, info = super().step(action)
        return (*outcome, info if self.time == 1 else {})


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_masks_are_needed_by_those_who_act(mode: str) -> None:
    how = AutoresetMode[mode.upper()]
    vector = GymnasiumVectorEnv(lambda: SyncVectorEnv([Rich, Forgetful], autoreset_mode=how))
    vector.start(7)
    ending, lasting = np.array([[0, 1]] * 2), np.array([[1, 1]] * 2)
    resets = [ending] if mode == "next_step" else []
    for action in [ending, ending, *resets, lasting]:
        vector.recv()  # The mask forgotten at the end of the episode is not missed.
        vector.send(0, action)
    vector.recv()
    vector.send(0, lasting)
    with pytest.raises(CollectError, match=r"environment 1: info\['action_mask'\] is None"):
        vector.recv()


class Steering(gymnasium.Env[np.ndarray, np.ndarray]):
    """Sees a picture alone, and is told numbers."""

    observation_space = gymnasium.spaces.Box(0, 255, (4, 5, 3), np.uint8)
    action_space = gymnasium.spaces.Box(
        np.array([-1, -2], np.float32), np.array([1, 2], np.float32)
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.time = 0
        return self.see(), {}

    def see(self) -> np.ndarray:
        return np.arange(60, dtype=np.uint8).reshape(4, 5, 3) + np.uint8(self.time)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        assert action in self.action_space
        self.time += 1
        return self.see(), float(action[1]), False, self.time == 5, {}


@pytest.mark.parametrize("mode", ["same_step"])
class TestPicturesAndNumbers(VectorEnvTests):
    rounds = 15
    exact = False

    @pytest.fixture
    def make_vector(self, mode: str) -> MakeVector:
        how = AutoresetMode[mode.upper()]
        return lambda: GymnasiumVectorEnv(lambda: SyncVectorEnv([Steering] * 2, autoreset_mode=how))

    def test_pictures_come_channel_first(self, vector: VectorEnv) -> None:
        assert vector.spec.observations.grid == (3, 4, 5)
        expected = np.arange(60, dtype=np.uint8).reshape(4, 5, 3).transpose(2, 0, 1).ravel()
        np.testing.assert_array_equal(vector.recv().observation[1], expected)


@pytest.mark.parametrize("mode", MODES)
class TestEveryMode(VectorEnvTests):
    rounds = 20
    exact = False

    @pytest.fixture
    def make_vector(self, mode: Autoreset) -> MakeVector:
        return lambda: adapted(mode)
