"""Policies learned in copies of a world, as robot policies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from policy_shapes import policy_params

from empo_core.protocols import HumanPrior, RobotPolicy, WorldModel
from empo_core.protocols.environments import TimeStep
from empo_core.types import AgentSpec
from empo_rollout.params import PolicyParams
from empo_rollout.policy import Networks, PolicyStep, build_policy
from empo_rollout.world_policies import LearnedRobots, UniformHumans
from empo_testing.human_prior import HumanPriorTests
from empo_testing.worlds import TinyWorld
from empo_world_environments.vector import WorldVectorEnv


def untrained(vector: WorldVectorEnv, **options: Any) -> Networks:
    """A policy with opinions, for the copies of a vector."""
    policy = build_policy(
        PolicyParams.model_validate(policy_params(**{"hidden": [8], **options})),
        vector.spec,
        generator=torch.Generator().manual_seed(1),
    )
    for network in policy.members:
        torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(2))
    return policy


def reward(states: torch.Tensor, steps_left: torch.Tensor) -> torch.Tensor:
    return -1.0 * steps_left


@torch.no_grad()
def acted(policy: Networks, arrival: TimeStep, agents: int) -> PolicyStep:
    """Step of a policy on an arrival from the copies."""
    rows = len(arrival.observation)
    assert arrival.mask is not None
    return policy.step(
        torch.from_numpy(arrival.observation),
        policy.initial_memory(rows),
        torch.from_numpy(arrival.starts),
        torch.arange(rows) % agents,
        torch.from_numpy(arrival.mask),
    )


class TestUniformHumans(HumanPriorTests):
    @pytest.fixture
    def prior(self, world: WorldModel) -> HumanPrior:
        return UniformHumans(world)


class TwoRobots(TinyWorld):
    """The door, at which the shouter is a robot as well."""

    def __init__(self) -> None:
        super().__init__()
        shouter = AgentSpec(name="shouter", role="robot", actions=("wait", "go", "shout"))
        agents = (*self.spec.agents[:2], shouter)
        self.spec = replace(self.spec, agents=agents, goals=self.spec.goals[:2])


@pytest.mark.parametrize("agents", ["shared", "separate"])
def test_robots_choose_independently_and_the_first_counts_fastest(agents: str) -> None:
    world = TwoRobots()
    vector = WorldVectorEnv(world, copies=1, reward=reward)
    policy = untrained(vector, agents=agents)
    robots = LearnedRobots(world, policy)
    assert isinstance(robots, RobotPolicy)
    states = torch.tensor([[0, 0], [1, 0]], dtype=torch.int16)
    joint = robots.policy(states, torch.tensor([3, 1]))
    assert joint.shape == (2, 6)
    torch.testing.assert_close(joint.sum(1), torch.ones(2))
    grid = joint.view(2, 3, 2)
    product = grid.sum(1)[:, None, :] * grid.sum(2)[:, :, None]
    torch.testing.assert_close(grid, product)
    # The door is open in the second state: nobody opens it, nobody shouts.
    assert grid[1, :, 1].tolist() == [0, 0, 0]
    assert grid[1, 2].tolist() == [0, 0]
    vector.start(0)
    arrival = vector.recv()
    step = acted(policy, arrival, 2)
    for option in range(3):
        expected = step.distribution.log_prob(torch.full((2, 1), option)).exp()
        assert float(grid.sum(2)[0, option]) == pytest.approx(float(expected[1]), abs=1e-6)
        if option < 2:
            assert float(grid.sum(1)[0, option]) == pytest.approx(float(expected[0]), abs=1e-6)


def test_no_states_give_no_answers() -> None:
    world = TinyWorld()
    robots = LearnedRobots(world, untrained(WorldVectorEnv(world, copies=1, reward=reward)))
    none = torch.zeros(0, 2, dtype=torch.int16)
    assert robots.policy(none, torch.zeros(0, dtype=torch.int64)).shape == (0, 2)


def test_a_policy_with_memory_cannot_be_asked_about_single_states() -> None:
    world = TinyWorld()
    vector = WorldVectorEnv(world, copies=1, reward=reward)
    policy = untrained(vector, memory="gru", critic="shared", memory_size=4)
    with pytest.raises(ValueError, match=r"memory.*policy\.network"):
        LearnedRobots(world, policy)
