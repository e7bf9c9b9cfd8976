"""Copies of a world behind Gymnasium's vector interface, and with a name per agent."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import Error, InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel
from empo_core.types import AgentSpec, Goal, WorldSpec
from empo_testing.worlds import TinyWorld
from empo_world_environments.gym import WorldParallelVector

ID = "empo_world_environments.gym:Empo/World-v0"
COPIES = 64


class Doors(WorldModel):
    """Two robots, one with two actions and one with three; a human walks on where both go.

    A row is ``(cell,)``; the human gets one cell further when both robots choose action 1, and its
    goal is cell 2. Action 2 exists in cell 1 only. Nothing ends but by the horizon.
    """

    spec = WorldSpec(
        name="doors",
        agents=(
            AgentSpec(name="left", role="robot", actions=("shut", "open")),
            AgentSpec(name="human", role="human", actions=("go",)),
            AgentSpec(name="right", role="robot", actions=("shut", "open", "wave")),
        ),
        goals=(Goal(human=1, name="2", weight=1.0),),
        state_words=1,
        state_dtype=torch.int16,
        horizon=5,
    )

    def initial_state(self) -> Int[Tensor, " word"]:
        return torch.zeros(1, dtype=torch.int16)

    def available(self, states: Tensor) -> Bool[Tensor, "state agent action"]:
        actions = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]], dtype=torch.bool)
        available = actions.repeat(len(states), 1, 1)
        available[:, 2, 2] = states[:, 0] == 1
        return available

    def achieved(self, states: Tensor) -> Bool[Tensor, "state goal"]:
        return states >= 2

    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        return states + (actions[:, [0, 2]] == 1).all(1, keepdim=True).to(states.dtype)

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> object:
        raise AssertionError("copies must not ask for all successors")

    def describe(self, state: Tensor) -> str:
        return f"cell {state.tolist()}"


def made(world: WorldModel, num_envs: int = COPIES, **params: object) -> VectorEnv:
    return gymnasium.make_vec(ID, num_envs=num_envs, world=world, reward="goal", **params)


def drawn(masks: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """An available action per row."""
    return (random.random(masks.shape) * masks).argmax(-1)


def test_spaces_hold_what_is_shown_and_episodes_begin_anew_in_the_step_that_ends_them() -> None:
    envs = made(TinyWorld())
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert envs.single_action_space == gymnasium.spaces.Discrete(2)
    observations, infos = envs.reset(seed=3)
    random = np.random.default_rng(0)
    ended = 0
    for _ in range(30):
        assert envs.observation_space.contains(observations)
        before = observations
        observations, rewards, terminated, truncated, infos = envs.step(
            drawn(infos["action_mask"], random)
        )
        assert not truncated.any()
        assert rewards.dtype == np.float64
        assert (observations[terminated] == [0, 0, 1]).all()
        if terminated.any():
            assert (infos["_final_obs"] == terminated).all()
            last = np.stack(infos["final_obs"][terminated])
            # A step shorter than before, where the first state of the next episode is not.
            assert last[:, 2] == pytest.approx(before[terminated, 2] - 1 / 3, abs=1e-6)
            reasons = infos["final_info"]["reason"][terminated]
            names = {envs.unwrapped.reasons[reason] for reason in reasons}
            assert names <= {"terminal", "horizon", "goal"}
            ended += int(terminated.sum())
    assert ended > 5 * COPIES


def test_robots_are_paid_once_for_each_human_that_arrives() -> None:
    envs = made(TinyWorld())
    _, infos = envs.reset(seed=0)
    random = np.random.default_rng(0)
    paid = np.zeros(COPIES)
    totals: set[float] = set()
    for _ in range(60):
        _, rewards, terminated, _, infos = envs.step(drawn(infos["action_mask"], random))
        paid += rewards
        totals |= set(paid[terminated].tolist())
        if terminated.any():
            reasons = infos["final_info"]["reason"]
            all_arrived = terminated & (reasons == envs.unwrapped.reasons.index("goal"))
            assert (paid[all_arrived] == 2).all()
        paid[terminated] = 0
    assert totals == {0.0, 1.0, 2.0}


def test_one_actor_chooses_for_several_robots() -> None:
    envs = made(Doors(), num_envs=3)
    assert envs.single_action_space == gymnasium.spaces.MultiDiscrete([2, 3])
    observations, infos = envs.reset(seed=0)
    assert observations.tolist() == [[0, 1]] * 3
    assert infos["action_mask"].tolist() == [[1, 1, 1, 1, 0]] * 3
    actions = np.array([[1, 1], [1, 0], [0, 1]])
    observations, rewards, terminated, _, infos = envs.step(actions)
    assert observations[:, 0].tolist() == [1, 0, 0]
    assert infos["action_mask"][:, 4].tolist() == [1, 0, 0]
    _, rewards, terminated, _, infos = envs.step(actions)
    assert rewards.tolist() == [1, 0, 0]
    assert terminated.tolist() == [True, False, False]
    assert infos["final_obs"][0].tolist() == pytest.approx([2, 0.6])


def test_actions_that_are_not_available_are_refused() -> None:
    envs = made(Doors(), num_envs=2)
    with pytest.raises(ResetNeeded):
        envs.step(np.zeros((2, 2), np.int64))
    envs.reset(seed=0)
    for actions in ([[0, 0], [0, 2]], [[0, 0], [2, 0]], [[-1, 0], [0, 0]]):
        with pytest.raises(InvalidAction, match="copy"):
            envs.step(np.array(actions))
    with pytest.raises(InvalidAction, match="shape"):
        envs.step(np.zeros((1, 2), np.int64))
    with pytest.raises(InvalidAction, match="float"):
        envs.step(np.zeros((2, 2)))
    observations, *_ = envs.step(np.ones((2, 2), np.int64))  # Nobody has acted before.
    assert observations.tolist() == [[1, pytest.approx(0.8)]] * 2


def test_a_seed_says_everything_that_happens() -> None:
    def history(seed: int) -> list[list[list[float]]]:
        envs = made(TinyWorld())
        observations, infos = envs.reset(seed=seed)
        random = np.random.default_rng(0)
        rows = [observations.tolist()]
        for _ in range(10):
            observations, *_, infos = envs.step(drawn(infos["action_mask"], random))
            rows.append(observations.tolist())
        return rows

    assert history(1) == history(1) != history(2)


def test_a_human_sees_its_goal_and_is_paid_for_it() -> None:
    envs = made(Doors(), num_envs=2, learners="humans")
    assert envs.single_action_space == gymnasium.spaces.Discrete(1)
    observations, _ = envs.reset(seed=0)
    assert observations.shape == (2, 3)
    with pytest.raises(ConfigError, match=r"learners.*WorldParallelVector"):
        made(TinyWorld(), learners="humans")


def test_wrong_arguments_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^nonsense:"):
        made(Doors(), nonsense=1)
    with pytest.raises(ConfigError, match="nowhere"):
        gymnasium.make_vec(ID, world="nowhere/at-all", reward="goal")
    envs = made(Doors())
    with pytest.raises(Error, match="reset_mask"):
        envs.reset(options={"reset_mask": None})
    with pytest.raises(Error):
        envs.reset(seed=[1] * COPIES)


def test_agents_act_by_their_names() -> None:
    vector = WorldParallelVector(TinyWorld(), COPIES, reward="goal", learners="humans")
    assert vector.possible_agents == ["walker", "shouter"]
    assert vector.action_space("walker").n == 2
    assert vector.action_space("shouter").n == 3
    observations, infos = vector.reset(seed=5)
    random = np.random.default_rng(0)
    arrived = dict.fromkeys(vector.agents, 0.0)
    for _ in range(40):
        acts = {name: infos[name]["acts"].copy() for name in vector.agents}
        observations, rewards, terminated, truncated, infos = vector.step(
            {name: drawn(infos[name]["action_mask"], random) for name in vector.agents}
        )
        for name in vector.agents:
            info = infos[name]
            assert observations[name].shape == (COPIES, vector.observation_space(name).shape[0])
            assert info["action_mask"].shape == (COPIES, vector.action_space(name).n)
            assert not truncated[name].any()
            assert (info["_final_obs"] == terminated[name]).all()
            # Who pursues "inside" and arrived has it in the last observation.
            goal = vector.reasons.index("goal")
            assert ((rewards[name] == 1) == (acts[name] & (info["reason"] == goal))).all()
            arrived[name] += rewards[name].sum()
    assert min(arrived.values()) > 10
    with pytest.raises(InvalidAction, match="walker"):
        vector.step({"walker": np.zeros(COPIES, np.int64)})
    vector.close()
