"""Order of joint actions in recorded transitions, and sampling of actions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.types import Successors, WorldSpec
from empo_worlds.ragged import select_pairs


class JointActionOrder:
    """Order of (human profile, joint robot action) pairs: the robot action counts fastest.

    A *profile* is a joint action of all humans, the first human counting fastest.

    Attributes:
        profiles: Number of profiles.
        robot_actions: Number of joint actions of the robots.
        of_robots: The joint action of all agents for each joint robot action, action 0 for all
            agents that are no robots [robot_action agent].
    """

    def __init__(self, spec: WorldSpec) -> None:
        self.profiles, self.robot_actions = spec.num_human_actions, spec.num_robot_actions
        self._humans, self._robots = list(spec.humans), list(spec.robots)
        self.of_robots = _joint_actions(spec, spec.robots)
        self._spec = spec
        self._joint_actions = spec.num_joint_actions
        counts = [spec.num_actions[human] for human in spec.humans]
        self._human_strides = torch.tensor(
            [int(torch.tensor(counts[:k]).prod()) for k in range(len(counts))]
        )

    @cached_property
    def joint(self) -> Int[Tensor, " pair"]:
        """Index of the joint action of pair ``profile * robot_actions + robot_action``.

        Computed on first use: many humans together have more actions than fit into RAM.
        """
        strides = torch.tensor(self._spec.strides)
        of_humans = _joint_actions(self._spec, self._spec.humans)
        joint = (of_humans * strides).sum(1)[:, None] + (self.of_robots * strides).sum(1)
        return joint.flatten()

    def arranged(self, expanded: Successors, count: int) -> Successors:
        """The successors of ``count`` states under all joint actions, in this order."""
        first = torch.arange(count)[:, None] * self._joint_actions
        return select_pairs(expanded, (first + self.joint).flatten())

    def profile(self, human_action: Int[Tensor, "env human"]) -> Int[Tensor, " env"]:
        """Index of the profile in which each human takes the given action."""
        return (human_action * self._human_strides).sum(1)

    def actions(
        self, human_action: Int[Tensor, "env human"], robot_action: Int[Tensor, " env"]
    ) -> Int[Tensor, "env agent"]:
        """One action per agent."""
        actions = self.of_robots[robot_action]
        actions[:, self._humans] = human_action
        return actions

    def under_every_robot_action(
        self, human_action: Int[Tensor, "env human"]
    ) -> Int[Tensor, "pair agent"]:
        """One action per agent, for pair ``env * robot_actions + robot_action``."""
        actions = self.of_robots.repeat(len(human_action), 1)
        actions[:, self._humans] = human_action.repeat_interleave(self.robot_actions, 0)
        return actions


def _joint_actions(spec: WorldSpec, agents: Sequence[int]) -> Int[Tensor, "choice agent"]:
    """All joint actions of some agents, the first counting fastest; 0 for all other agents."""
    number = 1
    for agent in agents:
        number *= spec.num_actions[agent]
    actions = torch.zeros(number, len(spec.agents), dtype=torch.int64)
    remaining = torch.arange(number)
    for agent in agents:
        actions[:, agent] = remaining % spec.num_actions[agent]
        remaining = remaining // spec.num_actions[agent]
    return actions
