"""Policies that were learned in copies of a world, as others of the framework ask for them."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.protocols import WorldModel
from empo_rollout.policy import Networks
from empo_world_environments.observation import WorldObservation

AT_ONCE = 4096
"""Observations that a policy is asked about at the same time."""


class LearnedRobots:
    """The robots' policy that was learned; an ``empo_core.protocols.RobotPolicy``.

    Robots choose independently of each other.
    """

    def __init__(self, world: WorldModel, policy: Networks) -> None:
        """Act by a policy that was learned in this world.

        Raises:
            ValueError: if the policy has a memory, and no state says what would be in it.
        """
        self._world, self._sight = world, WorldObservation(world.spec, "robots")
        self._policy = forgetful(policy)

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state robot_action"]:
        """Probability of each joint robot action; robot 0 counts fastest."""
        spec, sight = self._world.spec, self._sight
        features, options = sight.features(states), sight.options(self._world.available(states))
        joint = torch.ones(len(states), 1, dtype=torch.float64)
        for learner, robot in enumerate(spec.robots):
            observation = sight.observation(features, steps_left, learner)
            policy = chances(self._policy, observation, options[:, learner], learner)
            policy = policy[:, : spec.num_actions[robot]]
            joint = (policy[:, :, None] * joint[:, None, :]).flatten(1)
        # Networks say slightly different things in batches of different sizes; single precision
        # does not promise more than that.
        return joint.to(torch.float32)


class UniformHumans:
    """Humans who act evenly at random; an ``empo_core.protocols.HumanPrior``."""

    def __init__(self, world: WorldModel) -> None:
        """Act in a world."""
        self._world, self._sight = world, WorldObservation(world.spec, "humans")

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Equal probability of every action that is available, whatever the goal."""
        spec = self._world.spec
        options = self._sight.options(self._world.available(states)).to(torch.float32)
        owner = [spec.humans.index(goal.human) for goal in spec.goals]
        return (options / options.sum(2, keepdim=True))[:, owner]


@torch.no_grad()
def chances(
    policy: Networks,
    observation: Float[Tensor, "row word"],
    options: Bool[Tensor, "row option"],
    learner: int,
) -> Float[Tensor, "row option"]:
    """Probability of each option, 0 where one is not available."""
    parts = [torch.zeros(0, options.shape[1], dtype=torch.float64)]
    choices = torch.arange(options.shape[1])[:, None, None]
    for first in range(0, len(observation), AT_ONCE):
        block, mask = observation[first : first + AT_ONCE], options[first : first + AT_ONCE]
        count = len(block)
        step = policy.step(
            block,
            policy.initial_memory(count),
            torch.ones(count, dtype=torch.bool),
            torch.full((count,), learner),
            mask,
        )
        log_prob = step.distribution.log_prob(choices.expand(-1, count, -1))
        parts.append(log_prob.T.to(torch.float64).exp().masked_fill(~mask, 0.0))
    probabilities = torch.cat(parts)
    return probabilities / probabilities.sum(1, keepdim=True)


def forgetful(policy: Networks) -> Networks:
    """The policy; one that is recurrent is refused.

    Raises:
        ValueError: if the policy has a memory.
    """
    if policy.memory_size:
        raise ValueError(
            "this policy has a memory of what it saw before, so a state alone does not say how it "
            "acts; learn one whose policy.network has none"
        )
    return policy
