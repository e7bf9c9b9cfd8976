"""Joint actions in the order of recorded transitions, and successors of many environments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.types import Successors, WorldSpec
from empo_worlds.contract import successors_of
from empo_worlds.ragged import concatenate, select_pairs


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


class SuccessorQuery:
    """Asks a world for successors, as rarely as possible.

    An actor first asks for those that it records (``to_record``), then for those of the actions
    really taken, which are mostly among the recorded ones.
    """

    def __init__(
        self, world: WorldModel, order: JointActionOrder, *, all_profiles: bool, model_based: bool
    ) -> None:
        """Record all joint actions of the humans, and of the robots, or one of them."""
        self._world, self._order = world, order
        self._all_profiles, self._model_based = all_profiles, model_based

    def to_record(
        self, rows: Int[Tensor, "env word"], sampled: Int[Tensor, "env human"]
    ) -> Successors:
        """Successors to be recorded, by ``[env profile robot_action]``.

        All profiles; or the sampled one; or no successors at all, where an actor samples one.

        Args:
            rows: States of the environments.
            sampled: Humans' actions sampled from their prior; read where not all are recorded.
        """
        if self._all_profiles:
            return self._order.arranged(self._checked(successors_of(self._world, rows)), len(rows))
        if self._model_based:
            return self._under_every_robot_action(rows, sampled)
        nothing = torch.zeros(len(rows) * self._order.robot_actions + 1, dtype=torch.int64)
        return Successors(nothing, rows[:0], torch.zeros(0, dtype=torch.float64))

    def given_humans(
        self,
        rows: Int[Tensor, "env word"],
        recorded: Successors,
        sampled: Int[Tensor, "env human"],
        human: Int[Tensor, "env human"],
    ) -> Successors:
        """Successors of each robot action, by ``[env robot_action]``, given the humans' actions.

        Args:
            rows: States of the environments.
            recorded: The result of ``to_record``.
            sampled: The humans' actions that it was given.
            human: The humans' actions really taken, exploration included.
        """
        if self._all_profiles:
            return select_pairs(recorded, self._pairs(human).flatten())
        differs = (sampled != human).any(1)
        if not self._model_based or bool(differs.all()):
            return self._under_every_robot_action(rows, human)
        if not differs.any():
            return recorded
        others = self._under_every_robot_action(rows[differs], human[differs])
        number = self._order.robot_actions
        first = torch.arange(len(rows)) * number
        first[differs] = (len(rows) + torch.arange(int(differs.sum()))) * number
        pairs = (first[:, None] + torch.arange(number)).flatten()
        return select_pairs(concatenate([recorded, others]), pairs)

    def given_joint(
        self,
        rows: Int[Tensor, "env word"],
        recorded: Successors,
        sampled: Int[Tensor, "env human"],
        human: Int[Tensor, "env human"],
        robot: Int[Tensor, " env"],
    ) -> Successors:
        """Successors of the joint actions really taken, by ``[env]``; see ``given_humans``."""
        here = torch.arange(len(robot))
        if self._all_profiles:
            return select_pairs(recorded, self._pairs(human)[here, robot])
        if self._model_based and torch.equal(sampled, human):
            return select_pairs(recorded, here * self._order.robot_actions + robot)
        return self.under(rows, human, robot)

    def under(
        self,
        rows: Int[Tensor, "env word"],
        human: Int[Tensor, "env human"],
        robot: Int[Tensor, " env"],
    ) -> Successors:
        """Successors under one joint action of all agents in each environment, by ``[env]``."""
        return self._checked(successors_of(self._world, rows, self._order.actions(human, robot)))

    def _under_every_robot_action(self, rows: Tensor, human: Tensor) -> Successors:
        repeated = rows.repeat_interleave(self._order.robot_actions, 0)
        actions = self._order.under_every_robot_action(human)
        return self._checked(successors_of(self._world, repeated, actions))

    def _pairs(self, human: Tensor) -> Int[Tensor, "env robot_action"]:
        """Position of the successors of each robot action among those of all profiles."""
        number = self._order.robot_actions
        first = torch.arange(len(human)) * self._order.profiles + self._order.profile(human)
        return (first * number)[:, None] + torch.arange(number)

    def _checked(self, successors: Successors) -> Successors:
        """The same successors.

        Raises:
            SolveError: if transitions take other times than one step.
        """
        duration = successors.duration
        if duration is not None and bool((duration != 1).any()):
            raise SolveError(
                f"transitions of {self._world.spec.name!r} take up to {float(duration.max()):g} "
                "steps, but values are learned for steps of equal length; use algorithm 'exact'"
            )
        return successors


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
