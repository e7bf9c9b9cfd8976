"""What can follow in many environments at once: asks the world once where it can."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.types import Successors
from empo_phase2.successions import PairOrder, pick


class Outlook:
    """Successors to be recorded, and those of what is really done."""

    def __init__(
        self, world: WorldModel, order: PairOrder, *, all_profiles: bool, model_based: bool
    ) -> None:
        """Prepare for a world.

        Args:
            world: Who is asked.
            order: The order of pairs.
            all_profiles: Whether all joint actions of the humans are recorded.
            model_based: Whether all robot actions are recorded.
        """
        self._world, self._order = world, order
        self._all_profiles, self._model_based = all_profiles, model_based

    def recorded(
        self, rows: Int[Tensor, "env word"], expected: Int[Tensor, "env human"]
    ) -> Successors:
        """What is to be recorded: nothing yet where only a sample will be.

        Args:
            rows: Where the environments are.
            expected: What the humans are said to do, where that matters.
        """
        if self._all_profiles:
            return self._order.arranged(self._checked(self._world.transitions(rows)), len(rows))
        if self._model_based:
            return self._under_every_robot_action(rows, expected)
        nothing = torch.zeros(len(rows) * self._order.robot_actions + 1, dtype=torch.int64)
        return Successors(nothing, rows[:0], torch.zeros(0, dtype=torch.float64))

    def around(
        self,
        rows: Int[Tensor, "env word"],
        recorded: Successors,
        expected: Int[Tensor, "env human"],
        human: Int[Tensor, "env human"],
    ) -> Successors:
        """What can follow each robot action, given what the humans really do.

        Args:
            rows: Where the environments are.
            recorded: What ``recorded`` said.
            expected: What the humans are said to do.
            human: What they really do.
        """
        if self._all_profiles:
            return pick(recorded, self._pairs(human).flatten())
        if self._model_based and torch.equal(expected, human):
            return recorded
        return self._under_every_robot_action(rows, human)

    def after(
        self,
        rows: Int[Tensor, "env word"],
        recorded: Successors,
        expected: Int[Tensor, "env human"],
        human: Int[Tensor, "env human"],
        robot: Int[Tensor, " env"],
    ) -> Successors:
        """What can follow what everybody really does; arguments as for ``around``."""
        here = torch.arange(len(robot))
        if self._all_profiles:
            return pick(recorded, self._pairs(human)[here, robot])
        if self._model_based and torch.equal(expected, human):
            return pick(recorded, here * self._order.robot_actions + robot)
        return self.under(rows, human, robot)

    def under(
        self,
        rows: Int[Tensor, "env word"],
        human: Int[Tensor, "env human"],
        robot: Int[Tensor, " env"],
    ) -> Successors:
        """What can follow one joint action of everybody in each environment."""
        return self._checked(self._world.transitions(rows, self._order.actions(human, robot)))

    def _under_every_robot_action(self, rows: Tensor, human: Tensor) -> Successors:
        every = rows.repeat_interleave(self._order.robot_actions, 0)
        actions = self._order.under_every_robot_action(human)
        return self._checked(self._world.transitions(every, actions))

    def _pairs(self, human: Tensor) -> Int[Tensor, "env robot_action"]:
        """Where the successors of each robot action lie among those of all profiles."""
        number = self._order.robot_actions
        first = torch.arange(len(human)) * self._order.profiles + self._order.profile(human)
        return (first * number)[:, None] + torch.arange(number)

    def _checked(self, successors: Successors) -> Successors:
        """The same successors.

        Raises:
            SolveError: Transitions take other times than one step.
        """
        duration = successors.duration
        if duration is not None and bool((duration != 1).any()):
            raise SolveError(
                f"transitions of {self._world.spec.name!r} take up to {float(duration.max()):g} "
                "steps, but values are learned for steps of equal length; use algorithm 'exact'"
            )
        return successors
