from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.test import parallel_api_test

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import TimeStep, VectorEnv, VectorLayout
from empo_environments.copies import CopiedEnvironment
from empo_environments.params import WrapperParams
from empo_environments.pettingzoo_env import PettingZooEnv
from empo_environments.serial import SerialVectorEnv
from empo_environments.wrappers import DesyncEnv
from empo_testing.environment import MakeVector, VectorEnvTests, snapshot

SEEN = gymnasium.spaces.Box(-100, 100, (3,), np.float32)
DONE = gymnasium.spaces.Discrete(2)
REASONS = ("starved", "out of time", "eaten")


class Meadow(ParallelEnv):
    """Sheep eat or rest; the number of steps each lives is drawn with the episode's seed."""

    metadata: ClassVar[dict[str, Any]] = {"name": "meadow"}
    possible_agents: ClassVar[list[str]] = ["ann", "bea", "cia"]
    masks = False

    def __init__(self) -> None:
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> gymnasium.Space:
        return SEEN

    def action_space(self, agent: str) -> gymnasium.Space:
        return DONE

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        self.agents = list(self.possible_agents)
        lives = np.random.default_rng(seed).integers(1, 9, 3)
        self.lives = dict(zip(self.agents, lives.tolist(), strict=True))
        self.eaten = dict.fromkeys(self.agents, 0)
        self.time = 0
        return self.see(), self.tell()

    def see(self) -> dict[str, np.ndarray]:
        seen = {a: (self.lives[a], self.time, self.eaten[a] + 1) for a in self.agents}
        return {agent: np.array(numbers, np.float32) for agent, numbers in seen.items()}

    def tell(self) -> dict[str, dict[str, Any]]:
        mask = np.array([True, self.time % 2 == 0])
        return {agent: {"action_mask": mask} if self.masks else {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        assert set(actions) == set(self.agents), "all that live act, and nobody else"
        self.time += 1
        for agent, action in actions.items():
            self.eaten[agent] += int(action)
        seen, infos = self.see(), self.tell()
        rewards = {agent: float(action) for agent, action in actions.items()}
        over = {agent: self.lives[agent] == self.time for agent in actions}
        # Whoever has eaten is cut off, the others starve.
        truncated = {agent: over[agent] and self.eaten[agent] > 0 for agent in actions}
        terminated = {agent: over[agent] and not truncated[agent] for agent in actions}
        for agent in actions:
            if over[agent]:
                infos[agent]["termination_reason"] = "out of time" if truncated[agent] else 0
        self.agents = [agent for agent in self.agents if not over[agent]]
        return seen, rewards, terminated, truncated, infos


class MaskedMeadow(Meadow):
    masks = True


def made(env: type[Meadow] = Meadow, reasons: Any = REASONS) -> PettingZooEnv:
    return PettingZooEnv(env(), reasons=reasons)


def serial(make: Callable[[], Any] = made, count: int = 4, blocks: int = 2) -> SerialVectorEnv:
    return SerialVectorEnv([make] * count, blocks=blocks, order="rotation")


class TestMeadow(VectorEnvTests):
    rounds = 30

    @pytest.fixture
    def make_vector(self) -> MakeVector:
        return serial


class TestMaskedMeadow(VectorEnvTests):
    rounds = 30

    @pytest.fixture
    def make_vector(self) -> MakeVector:
        return lambda: serial(lambda: made(MaskedMeadow))


class TestDesynchronisedMeadow(VectorEnvTests):
    rounds = 30

    @pytest.fixture
    def make_vector(self) -> MakeVector:
        return lambda: serial(lambda: DesyncEnv(made(), longest=3))


def one_vector(make: Callable[[], Any]) -> VectorEnv:
    vector = serial(make, count=1, blocks=1)
    vector.start(3)
    return vector


def eat(vector: VectorEnv, *options: int) -> None:
    vector.send(0, np.array(options, np.int64)[:, None])


def test_the_meadow_is_a_parallel_env() -> None:
    parallel_api_test(Meadow(), num_cycles=50)


def test_an_episode_goes_on_until_nobody_is_left() -> None:
    vector = one_vector(made)
    assert vector.spec.agents == ("ann", "bea", "cia")
    first = snapshot(vector.recv())
    assert first.acts.all()
    lives = first.observation[:, 0]
    alive = np.ones(3, bool)
    for time in range(1, int(lives.max()) + 1):
        eat(vector, 1, 0, 1)
        arrival = snapshot(vector.recv())
        over = alive & (lives == time)
        np.testing.assert_array_equal(arrival.terminated, over & [False, True, False])
        np.testing.assert_array_equal(arrival.truncated, over & [True, False, True])
        np.testing.assert_array_equal(arrival.reward, alive * np.array([1, 0, 1]))
        assert arrival.reason is not None
        np.testing.assert_array_equal(arrival.reason, np.where(over, [1, 0, 1], -1))
        finals = [(lives[i], time, time + 1) for i in np.flatnonzero(arrival.truncated)]
        assert [tuple(row) for row in arrival.final_observation.tolist()] == finals
        np.testing.assert_array_equal(arrival.final_row, np.flatnonzero(arrival.truncated))
        alive &= ~over
        if alive.any():
            np.testing.assert_array_equal(arrival.acts, alive)
            assert not arrival.starts.any()
            assert not arrival.observation[~alive].any()
            np.testing.assert_array_equal(arrival.observation[alive, 1], time)
    assert arrival.starts.all(), "the next episode begins in the same step"
    assert arrival.acts.all()
    np.testing.assert_array_equal(arrival.observation[:, 1:], [[0, 1]] * 3)
    assert len(set(lives.tolist())) > 1, "they do not all die together"


class Latecomer(Meadow):
    """Cia comes after the first step; Ann vanishes without a word after the second."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        super().reset(seed)
        self.lives = dict.fromkeys(self.possible_agents, 5)
        self.agents = ["ann", "bea"]
        return self.see(), self.tell()

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        _, *outcome, infos = super().step(actions)
        if self.time == 1:
            self.agents.append("cia")
        if self.time == 2:
            self.agents.remove("ann")
        return (self.see(), *outcome, infos)


def test_agents_may_come_later_and_vanish() -> None:
    vector = one_vector(lambda: made(Latecomer))
    seen = []
    for _ in range(4):
        arrival = snapshot(vector.recv())
        seen.append((arrival.acts.tolist(), arrival.starts.tolist(), arrival.terminated.tolist()))
        eat(vector, 0, 0, 0)
    no = [False, False, False]
    assert seen == [
        ([True, True, False], [True, True, False], no),
        ([True, True, True], [False, False, True], no),
        ([False, True, True], no, [True, False, False]),
        ([False, True, True], no, no),
    ]


class Zombies(Meadow):
    """Goes on listing the dead."""

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        self.agents = list(actions)
        outcome = super().step(actions)
        self.agents = list(self.possible_agents)
        return outcome


def test_the_dead_stay_dead_until_the_next_episode() -> None:
    arrivals = []
    for env in (Meadow, Zombies):
        vector = one_vector(lambda env=env: made(env))
        arrivals.append([])
        for _ in range(20):
            arrivals[-1].append(snapshot(vector.recv()).acts.tolist())
            eat(vector, 1, 0, 1)
    assert arrivals[0] == arrivals[1]


def test_without_names_the_flags_are_the_reasons() -> None:
    vector = one_vector(lambda: made(reasons=None))
    assert vector.spec.reasons == ("terminated", "truncated")
    for _ in range(20):
        arrival = vector.recv()
        assert arrival.reason is not None
        np.testing.assert_array_equal(arrival.reason == 0, arrival.terminated)
        np.testing.assert_array_equal(arrival.reason == 1, arrival.truncated)
        eat(vector, 1, 0, 1)


def test_what_is_masked_cannot_be_done() -> None:
    vector = one_vector(lambda: made(MaskedMeadow))
    for _ in range(2):
        arrival = vector.recv()
        assert arrival.mask is not None
        eat(vector, 0, 0, 1)
    with pytest.raises(CollectError, match="agent 'cia'"):
        vector.recv()


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (None, r"'action_mask'\] is None.* 2 flags"),
        (np.ones(3, bool), r"2 flags"),
        (np.ones(2), r"2 flags"),
        ([], r"2 flags"),
        ((0, 0), r"\(0, 0\).* option"),
    ],
)
def test_masks_must_be_masks(mask: Any, message: str) -> None:
    class Masked(MaskedMeadow):
        def tell(self) -> dict[str, dict[str, Any]]:
            told = super().tell()
            if self.time == 1:
                told["bea"] = {"action_mask": mask}
            return told

    vector = one_vector(lambda: made(Masked))
    vector.recv()
    eat(vector, 0, 0, 0)
    with pytest.raises(CollectError, match=rf"agent 'bea': info.*{message}"):
        vector.recv()


def test_what_is_no_environment_is_refused() -> None:
    class Broken(Meadow):
        agent_iter = AECEnv.agent_iter
        metadata: ClassVar[dict[str, Any]] = {"name": "broken", "is_parallelizable": True}

    with pytest.raises(ConfigError, match="has turns"):
        made(Broken)
    with pytest.raises(ConfigError, match="with possible_agents"):
        PettingZooEnv(gymnasium.make("CartPole-v1").unwrapped)


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, {"bea": np.zeros(3, np.float32)}, "environment 0 .* agent 'ann'.* observ"),
        (1, {}, "'ann'.* reward"),
        (1, {"ann": 0.0, "bea": "much", "cia": 0.0}, "'bea'.* reward.*'much'"),
        (1, {"ann": 0.0, "bea": np.nan, "cia": 0.0}, "'bea'.* finite"),
        (2, {"ann": 1, "bea": 0, "cia": 0}, "agent 'ann': 'terminated' is 1"),
        (4, {"ann": {"termination_reason": "bored"}}, "'bored'.* starved"),
    ],
)
def test_what_cannot_be_learned_from_is_named(position: int, value: Any, message: str) -> None:
    class Broken(Latecomer):
        def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
            outcome = super().reset()
            self.lives["ann"] = 1 if position == 4 else 5
            return outcome

        def step(self, actions: dict[str, int]) -> tuple[Any, ...]:
            outcome: list[Any] = list(super().step(actions))
            outcome[position] = value
            return tuple(outcome)

    vector = one_vector(lambda: made(Broken))
    vector.recv()
    eat(vector, 0, 0, 0)
    with pytest.raises(CollectError, match=message):
        vector.recv()


def test_an_environment_that_does_not_repeat_itself_begins_anew() -> None:
    class Moody(Meadow):
        mood = 0

        def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
            type(self).mood += 1
            return super().reset(self.mood)

    vector = one_vector(lambda: made(Moody))
    vector.recv()
    later = serial(lambda: made(Moody), count=1, blocks=1)
    assert not later.load_state_dict(vector.state_dict())
    arrival = later.recv()
    assert arrival.starts.all()
    assert arrival.acts.all()


class Guests(ParallelEnv):
    """Agents come and go by a plan: those that are there in each step of an episode.

    Each observes the step, and is paid 1 for each of its actions.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "guests"}
    possible_agents: ClassVar[list[str]] = ["ann", "bea"]
    plan: list[str]
    always_listed = False

    def observation_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Box(0, 100, (1,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space:
        return DONE

    def _come(self) -> None:
        self.agents = self.plan[self.time].split() if self.time < len(self.plan) else []

    def _of_all(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.agents, value)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        self.time = 0
        self._come()
        return self._of_all(np.zeros(1, np.float32)), self._of_all({})

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        self.time += 1
        self._come()
        seen = np.full(1, self.time, np.float32)
        outcome = (
            self._of_all(seen), self._of_all(1.0), self._of_all(False), self._of_all(False),
            self._of_all({}),
        )  # fmt: skip
        if self.always_listed:
            self.agents = list(self.possible_agents)
        return outcome


def planned(plan: Sequence[str], always_listed: bool = False) -> PettingZooEnv:
    env = Guests()
    env.plan, env.always_listed = list(plan), always_listed
    return PettingZooEnv(env)


def guests(plan: Sequence[str], always_listed: bool = False, **params: Any) -> VectorEnv:
    environment = CopiedEnvironment(
        "guests", lambda: planned(plan, always_listed), WrapperParams(**params)
    )
    vector = environment.vector(1, VectorLayout())
    vector.start(0)
    return vector


def played(vector: VectorEnv, count: int) -> list[TimeStep]:
    found = [snapshot(vector.recv())]
    for _ in range(count):
        eat(vector, 0, 0)
        found.append(snapshot(vector.recv()))
    return found


@pytest.mark.parametrize("always_listed", [False, True])
def test_whoever_leaves_every_dictionary_has_terminated(always_listed: bool) -> None:
    vector = guests(["ann bea", "ann bea", "ann", "ann", "ann"], always_listed)
    found = played(vector, 3)
    assert [each.acts[1] for each in found] == [True, True, False, False]
    assert [each.terminated[1] for each in found] == [False, False, True, False]
    assert [each.reward[1] for each in found] == [0, 1, 0, 0]
    assert [each.reward[0] for each in found] == [0, 1, 1, 1]
    assert vector.spec.reasons[found[2].reason[1]] == "terminated"


def test_an_agent_that_appears_in_a_repetition_chooses_its_first_action() -> None:
    (first, second, third) = played(guests(["ann"] * 3 + ["ann bea"] * 7, action_repeat=4), 2)
    assert (first.acts.tolist(), second.acts.tolist()) == ([True, False], [True, True])
    assert (second.starts.tolist(), second.reward.tolist()) == ([False, True], [3, 0])
    assert (third.starts.tolist(), third.reward.tolist()) == ([False, False], [4, 4])
    assert third.observation[:, 0].tolist() == [7, 7]


@pytest.mark.parametrize("frame_stack", [1, 2])
def test_episodes_in_which_agents_relay_are_cut_off(frame_stack: int) -> None:
    vector = guests(["ann", *["bea"] * 40], max_episode_steps=5, frame_stack=frame_stack)
    found = played(vector, 12)
    assert [each.observation[1, -1] for each in found[:11]] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0]
    assert [each.truncated[1] for each in found[:11]] == [False] * 5 + [True] + [False] * 4 + [True]


def test_a_relay_is_no_new_episode() -> None:
    # A second agent takes over in every step in which the first one leaves.
    relay = guests(["ann", "bea", "bea", "bea", "bea", "bea", "bea"], max_episode_steps=4)
    found = played(relay, 8)
    starts = [each.starts.tolist() for each in found[:5]]
    assert starts == [[True, False], [False, True], *[[False, False]] * 2, [True, False]]
    assert [each.truncated[1] for each in found] == [False] * 4 + [True] + [False] * 3 + [True]
    assert found[4].final_observation.tolist() == [[4]]


def test_an_agent_that_appears_does_not_end_the_first_episode() -> None:
    plan = ["ann", *["ann bea"] * 40]
    ends = []
    for number in range(8):  # Their first episodes are cut off after 1 to 9 steps.
        vector = SerialVectorEnv(
            [lambda: DesyncEnv(planned(plan), longest=9)],
            blocks=1, order="rotation", first=number,
        )  # fmt: skip
        vector.start(1)
        cut = [step for step, each in enumerate(played(vector, 12)) if each.truncated[0]]
        ends.append(cut)
    assert all(len(cut) == 1 and 1 <= cut[0] <= 9 for cut in ends)
    assert len({cut[0] for cut in ends}) > 2


class Tagged(Meadow):
    """Shows its mask as a part of what is seen, as board games of PettingZoo do."""

    def observation_space(self, agent: str) -> gymnasium.Space:
        mask = gymnasium.spaces.Box(0, 1, (2,), np.int8)
        return gymnasium.spaces.Dict({"action_mask": mask, "observation": SEEN})

    def see(self) -> dict[str, Any]:
        mask = np.array([1, self.time % 2 == 0], np.int8)
        seen = super().see()
        return {agent: {"observation": seen[agent], "action_mask": mask} for agent in seen}


def test_a_mask_in_the_observation_masks_and_is_not_observed() -> None:
    vector = one_vector(lambda: made(Tagged))
    assert (vector.spec.masks, vector.spec.observations.words) == (True, 3)
    arrival = snapshot(vector.recv())
    assert arrival.mask is not None
    assert arrival.mask.tolist() == [[True, True]] * 3
    eat(vector, 0, 0, 1)
    arrival = snapshot(vector.recv())
    assert arrival.mask is not None
    assert arrival.mask[arrival.acts].tolist() == [[True, False]] * int(arrival.acts.sum())
    eat(vector, 0, 0, 1)
    with pytest.raises(CollectError, match=r"agent 'cia': .*observation\['action_mask'\] excludes"):
        vector.recv()
