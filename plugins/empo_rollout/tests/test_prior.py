"""What was learned in copies of a world acts as the framework asks humans and robots to."""

from __future__ import annotations

import pytest
import torch

from empo_core.protocols import HumanPrior, RobotPolicy, WorldModel
from empo_core.testing.human_prior import HumanPriorTests
from empo_core.testing.worlds import TinyWorld
from empo_core.types import AgentSpec, WorldSpec
from empo_rollout.empowerment.playback import LearnedHumans, LearnedRobots
from empo_rollout.params import PolicyParams
from empo_rollout.policies.networks import Networks, build_policy
from empo_rollout.vectors.world import WorldVector


def untrained(vector: WorldVector, **given: object) -> Networks:
    """A policy with opinions, for the copies of a vector."""
    policy = build_policy(
        PolicyParams.model_validate({"hidden": [8], **given}),
        vector.interface,
        generator=torch.Generator().manual_seed(1),
    )
    for network in policy.each:
        torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(2))
    return policy


def reward(states: torch.Tensor, steps_left: torch.Tensor) -> torch.Tensor:
    return -1.0 * steps_left


class TestLearnedHumans(HumanPriorTests):
    @pytest.fixture(params=["shared", "separate"])
    def prior(self, world: WorldModel, request: pytest.FixtureRequest) -> HumanPrior:
        vector = WorldVector(world, copies=1, learners="humans")
        return LearnedHumans(world, untrained(vector, agents=request.param), 0.1)


def test_the_prior_does_what_the_policy_did_in_the_copies() -> None:
    world = TinyWorld()
    vector = WorldVector(world, copies=3, learners="humans")
    policy = untrained(vector)
    vector.start(0)
    arrival = vector.recv()
    step = policy.step(
        torch.from_numpy(arrival.observation),
        policy.initial_memory(6),
        torch.from_numpy(arrival.starts),
        torch.arange(6) % 2,
        torch.from_numpy(arrival.mask),
    )
    prior = LearnedHumans(world, policy).policy(world.initial_state()[None], 3)[0]
    for slot in range(6):
        human, wanted = slot % 2, int(arrival.observation[slot, 5:].argmax())
        goal = wanted if human == 0 else 2
        for option in range(3):
            expected = step.distribution.log_prob(torch.full((6, 1), option))[slot].exp()
            assert float(prior[goal, option]) == pytest.approx(float(expected), abs=1e-6)


def test_exploration_mixes_in_even_chances() -> None:
    world = TinyWorld()
    policy = untrained(WorldVector(world, copies=1, learners="humans"))
    states = torch.tensor([[0, 0], [1, 0]], dtype=torch.int16)
    plain, mixed, even = (
        LearnedHumans(world, policy, exploration).policy(states, 2) for exploration in (0, 0.25, 1)
    )
    torch.testing.assert_close(mixed, 0.75 * plain + 0.25 * even)
    assert even[0, 2].tolist() == pytest.approx([1 / 3] * 3)
    assert even[1, 2].tolist() == [0.5, 0.5, 0.0]


class TwoRobots(TinyWorld):
    """The door, at which the shouter is a robot as well."""

    @property
    def spec(self) -> WorldSpec:
        from dataclasses import replace

        base = super().spec
        shouter = AgentSpec(name="shouter", role="robot", actions=("wait", "go", "shout"))
        agents = (*base.agents[:2], shouter)
        return replace(base, agents=agents, goals=base.goals[:2])


@pytest.mark.parametrize("agents", ["shared", "separate"])
def test_robots_choose_independently_and_the_first_counts_fastest(agents: str) -> None:
    world = TwoRobots()
    vector = WorldVector(world, copies=1, reward=reward)
    policy = untrained(vector, agents=agents)
    robots = LearnedRobots(world, policy)
    assert isinstance(robots, RobotPolicy)
    states = torch.tensor([[0, 0], [1, 0]], dtype=torch.int16)
    joint = robots.probabilities(states, torch.tensor([3, 1]))
    assert joint.shape == (2, 6)
    torch.testing.assert_close(joint.sum(1), torch.ones(2, dtype=torch.float64))
    grid = joint.view(2, 3, 2)
    product = grid.sum(1)[:, None, :] * grid.sum(2)[:, :, None]
    torch.testing.assert_close(grid, product)
    # The door is open in the second state: nobody opens it, nobody shouts.
    assert grid[1, :, 1].tolist() == [0, 0, 0]
    assert grid[1, 2].tolist() == [0, 0]
    vector.start(0)
    arrival = vector.recv()
    step = policy.step(
        torch.from_numpy(arrival.observation),
        policy.initial_memory(2),
        torch.from_numpy(arrival.starts),
        torch.arange(2),
        torch.from_numpy(arrival.mask),
    )
    for option in range(3):
        expected = step.distribution.log_prob(torch.full((2, 1), option)).exp()
        assert float(grid.sum(2)[0, option]) == pytest.approx(float(expected[1]), abs=1e-6)
        if option < 2:
            assert float(grid.sum(1)[0, option]) == pytest.approx(float(expected[0]), abs=1e-6)


def test_no_states_give_no_answers() -> None:
    world = TinyWorld()
    robots = LearnedRobots(world, untrained(WorldVector(world, copies=1, reward=reward)))
    none = torch.zeros(0, 2, dtype=torch.int16)
    assert robots.probabilities(none, torch.zeros(0, dtype=torch.int64)).shape == (0, 2)


def test_a_policy_with_memory_cannot_be_asked_about_single_states() -> None:
    world = TinyWorld()
    vector = WorldVector(world, copies=1, reward=reward)
    policy = untrained(vector, memory="gru", critic="shared", memory_size=4)
    with pytest.raises(ValueError, match="has a memory.*policy.memory: none"):
        LearnedRobots(world, policy)
