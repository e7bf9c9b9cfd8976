"""Rollouts are what happened, whatever the order of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from policy_shapes import policy_params

from empo_core.protocols.environments import TimeStep
from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.gymnasium_vector import GymnasiumVectorEnv
from empo_environments.serial import SerialVectorEnv
from empo_learning.episode_returns import EpisodeReturns
from empo_learning.timers import Timers
from empo_rollout.buffer import Rollout, SegmentBuffer
from empo_rollout.collector import RolloutCollector
from empo_rollout.params import ComputeParams, PolicyParams, RolloutParams
from empo_rollout.plan import VecPlan
from empo_rollout.policy import Networks, build_policy
from empo_rollout.ppo import Ppo, Updater
from empo_rollout.ppo_params import PpoParams


class Counting(gymnasium.Env[np.ndarray, np.int64]):
    """Shows (episode's name, step); pays the step times the action; ends or is cut off.

    Episodes that end succeed, and those that are cut off fail.
    """

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self) -> None:
        self.episode, self.steps, self.length = 0, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode = int(self.np_random.integers(10_000))
        self.steps, self.length = 0, int(self.np_random.integers(1, 6))
        return self._seen(), {}

    def step(self, action: np.int64) -> Any:
        self.steps += 1
        over = self.steps >= self.length
        cut = over and self.length % 2 == 0
        info = {"success": not cut} if over else {}
        return self._seen(), float(self.steps * action), over and not cut, cut, info

    def _seen(self) -> np.ndarray:
        return np.array([self.episode, self.steps], np.float32)


def collecting(
    *,
    blocks: int,
    segments: int,
    tail: Any = "bootstrap",
    memory: str = "none",
    carry: bool = True,
    start: bool = True,
    episodes: EpisodeReturns | None = None,
) -> tuple[RolloutCollector, Networks]:
    envs = 4
    make = [lambda: GymnasiumEnv(Counting())] * envs
    vector = SerialVectorEnv(make, blocks=blocks, order="rotation")
    shape = policy_params(memory=memory, memory_size=5, hidden=[8], critic="shared")
    params = PolicyParams.model_validate(shape)
    generator = torch.Generator().manual_seed(1)
    policy = build_policy(params, vector.spec, generator=generator)
    plan = VecPlan(1, 1, blocks, envs, 5, segments, segments * 5)
    buffer = SegmentBuffer(vector.spec, plan, memory_size=policy.memory_size, tail=tail)
    torch.manual_seed(0)
    made = RolloutCollector(
        vector,
        policy,
        buffer,
        episodes or EpisodeReturns(vector.spec.num_agents),
        Timers(),
        compute=ComputeParams(),
        device=torch.device("cpu"),
        carry_memory=carry,
    )
    if start:
        made.start(3)
    return made, policy


def steps_of(rollout: Rollout, agent: int) -> Iterator[tuple[int, int]]:
    """Time and segment of each step of an agent, in the order in which it took them."""
    for segment in torch.nonzero(rollout.agent == agent)[:, 0].tolist():
        for time in range(len(rollout.reward)):
            yield time, segment


@pytest.mark.parametrize("memory", ["none", "lstm", "gru"])
@pytest.mark.parametrize(("blocks", "segments"), [(1, 4), (2, 4), (4, 6), (2, 8)])
def test_every_step_is_followed_by_what_it_led_to(blocks: int, segments: int, memory: str) -> None:
    made, _ = collecting(blocks=blocks, segments=segments, memory=memory)
    last: dict[int, torch.Tensor] = {}
    for version in range(3):
        rollout = made.collect(version)
        assert rollout.learnable.all()
        assert (rollout.version == version).all()
        for agent in range(4):
            for time, segment in steps_of(rollout, agent):
                seen = rollout.observation[time, segment].clone()
                if agent in last:
                    episode, step = last[agent].tolist()
                    assert seen[1] == 0 or seen.tolist() == [episode, step + 1]
                assert bool(rollout.starts[time, segment]) == (seen[1] == 0)
                action = float(rollout.action[time, segment, 0])
                assert rollout.reward[time, segment] == (float(seen[1]) + 1) * action
                last[agent] = seen


@pytest.mark.parametrize(("blocks", "segments"), [(1, 4), (2, 8)])
def test_episodes_are_those_of_the_rollouts(blocks: int, segments: int) -> None:
    episodes = EpisodeReturns(4, window=1000)
    made, _ = collecting(blocks=blocks, segments=segments, episodes=episodes)
    going_on = [(0.0, 0)] * 4
    expected: list[tuple[float, int]] = []
    ends = [0, 0]
    for version in range(8):
        rollout = made.collect(version)
        for agent in range(4):
            for place in steps_of(rollout, agent):
                total, length = going_on[agent]
                going_on[agent] = (total + float(rollout.reward[place]), length + 1)
                terminated, cut = bool(rollout.terminated[place]), bool(rollout.truncated[place])
                if terminated or cut:
                    ends[0 if terminated else 1] += 1
                    expected.append(going_on[agent])
                    going_on[agent] = (0.0, 0)
    found = zip(episodes.returns, episodes.lengths, strict=True)
    assert sorted(found) == sorted(expected)
    assert episodes.completed == len(expected)
    assert min(ends) > 0
    assert episodes.reasons.tolist() == ends
    assert [episodes.successes.count(1), episodes.successes.count(0)] == ends


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_values_that_follow_are_those_the_policy_gives(memory: str) -> None:
    made, policy = collecting(blocks=2, segments=8, memory=memory)
    made.collect(0)
    rollout = made.collect(1)
    assert (rollout.truncated & ~rollout.terminated).any()
    agent, goes_on = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.bool)
    for segment in range(8):
        remembered = rollout.memory[segment][None]
        for time in range(5):
            seen = rollout.observation[time, segment]
            starts = rollout.starts[time, segment][None]
            remembered = policy.step(seen[None], remembered, starts, agent).memory
            if rollout.terminated[time, segment]:
                assert rollout.next_value[time, segment] == 0
                continue
            after = seen + torch.tensor([0, 1])  # Also where the episode was cut off.
            value = policy.step(after[None], remembered, goes_on, agent).value
            torch.testing.assert_close(rollout.next_value[time, segment], value[0])


def test_with_a_dropped_tail_all_but_the_last_step_is_known() -> None:
    made, _ = collecting(blocks=2, segments=4, tail="drop")
    for version in range(3):
        rollout = made.collect(version)
        assert rollout.is_known[:-1].all()
        assert not rollout.is_known[-1].any()


@pytest.mark.parametrize("memory", ["lstm", "gru"])
@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("segments", [4, 8])
def test_nothing_has_changed_before_the_first_update(
    memory: str, carry: bool, segments: int
) -> None:
    made, policy = collecting(blocks=2, segments=segments, memory=memory, carry=carry)
    for version in range(3):
        rollout = made.collect(version)
        agent = torch.zeros_like(rollout.agent)
        with torch.no_grad():
            hidden, value, _ = policy.unroll(
                rollout.observation, rollout.memory, rollout.starts, agent
            )
            flat = policy.distribution(hidden.flatten(0, 1), agent.repeat(5))
            log_prob = flat.log_prob(rollout.action.flatten(0, 1)).view(5, -1)
        assert rollout.starts[1:].any()
        assert ((log_prob - rollout.log_prob).exp() - 1).abs().max() < 1e-5
        torch.testing.assert_close(value, rollout.value, rtol=0, atol=1e-5)


def test_a_memory_that_is_not_carried_begins_empty() -> None:
    made, _ = collecting(blocks=1, segments=4, memory="gru", carry=False)
    assert all(not made.collect(version).memory.any() for version in range(3))
    made, _ = collecting(blocks=1, segments=4, memory="gru")
    assert not made.collect(0).memory.any()
    assert made.collect(1).memory.any()


@pytest.mark.parametrize("tail", ["bootstrap", "drop"])
@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_collecting_goes_on_exactly_from_a_saved_state(tail: str, memory: str) -> None:
    one, _ = collecting(blocks=2, segments=6, tail=tail, memory=memory)
    other, _ = collecting(blocks=2, segments=6, tail=tail, memory=memory, start=False)
    one.collect(0)
    state = one.state_dict()
    random = torch.get_rng_state()
    expected = [snapshot(one.collect(version)) for version in (1, 2)]
    assert other.load_state_dict(state)
    torch.set_rng_state(random)
    for version, right in zip((1, 2), expected, strict=True):
        for mine, theirs in zip(snapshot(other.collect(version)), right, strict=True):
            assert torch.equal(mine, theirs)


def snapshot(rollout: Rollout) -> list[torch.Tensor]:
    names = ("observation", "action", "log_prob", "value", "reward", "next_value", "memory")
    return [getattr(rollout, name).clone() for name in names]


class Unseeing:
    """Environments that show NaN to agents that do not act."""

    def __init__(self, vector: GymnasiumVectorEnv) -> None:
        self.spec, self.start, self.send = vector.spec, vector.start, vector.send
        self._recv = vector.recv

    def recv(self) -> TimeStep:
        time_step = self._recv()
        observation = np.where(time_step.acts[:, None], time_step.observation, np.float32("nan"))
        return replace(time_step, observation=observation)


def test_what_agents_see_that_do_not_act_reaches_no_loss() -> None:
    vector = Unseeing(GymnasiumVectorEnv(lambda: gymnasium.make_vec("CartPole-v1", num_envs=4)))
    params = RolloutParams.model_validate(
        {
            "total_steps": 1,
            "num_envs": None,
            "environment": "gymnasium/CartPole-v1",
            "policy": policy_params(memory="gru", memory_size=5, hidden=[8], critic="shared"),
        }
    )
    generator = torch.Generator().manual_seed(1)
    policy = build_policy(params.policy, vector.spec, generator=generator)
    plan = VecPlan(1, 1, 1, 4, 64, 4, 256)
    made = RolloutCollector(
        vector,  # type: ignore[arg-type]
        policy,
        SegmentBuffer(vector.spec, plan, memory_size=policy.memory_size, tail="bootstrap"),
        EpisodeReturns(4),
        Timers(),
        compute=params.compute,
        device=torch.device("cpu"),
        carry_memory=True,
    )
    made.start(3)
    torch.manual_seed(0)
    rollout = made.collect(0)
    assert not rollout.valid.all()
    losses = [(Ppo(PpoParams()), 1.0)]
    updater = Updater(policy, losses, params, plan, vector.spec, device="cpu", generator=generator)
    assert updater.update(rollout, 0.0)["optim/minibatches"] == 1
