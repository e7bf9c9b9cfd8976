"""A solved world as policies that can be played, and as a reward."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_exact.solution import Solution
from empo_worlds.queries import by_steps_left


class SolvedRobots:
    """The robots' policy of a solved world; see ``empo_core.protocols.RobotPolicy``."""

    def __init__(self, solution: Solution) -> None:
        self._solution = solution

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state robot_action"]:
        """Probability of each joint robot action."""
        return by_steps_left(self._solution.robot_policies, states, steps_left)


class SolvedHumans:
    """The humans of a solved world; see ``empo_core.protocols.HumanPrior``."""

    def __init__(self, solution: Solution) -> None:
        self._solution = solution

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human."""
        return by_steps_left(self._at, states, steps_left)

    def _at(self, states: Tensor, steps_left: int) -> Tensor:
        policies = self._solution.policies_of(states, steps_left, lambda solved: solved.pi_h)
        return torch.from_numpy(policies.copy())


class SolvedPower:
    """U_r of a solved world; see ``empo_core.protocols.IntrinsicReward``."""

    def __init__(self, solution: Solution) -> None:
        self._solution = solution

    def __call__(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, " state"]:
        """U_r of states from which an episode goes on.

        Raises:
            SolveError: if no episode is ever in one of them with so many steps left.
        """
        return by_steps_left(self._at, states, steps_left)

    def _at(self, states: Tensor, steps_left: int) -> Tensor:
        power = self._solution.policies_of(states, steps_left, lambda solved: solved.u_r)
        return torch.from_numpy(power.copy())
