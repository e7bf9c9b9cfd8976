"""Successors of many environments at once, under all, some or one joint action each."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.types import Successors
from empo_phase2.joint_actions import JointActionOrder
from empo_worlds.contract import successors_of
from empo_worlds.ragged import concatenate, select_pairs


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
