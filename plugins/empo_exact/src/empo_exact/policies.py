"""A solved world as policies that can be played, and as a reward."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_exact.solution import Solution


class SolvedRobots:
    """The robots' policy of a solved world; see ``empo_core.protocols.RobotPolicy``."""

    def __init__(self, solution: Solution) -> None:
        self._solution = solution

    def probabilities(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state robot_action"]:
        """Probability of each joint robot action."""
        chances = torch.zeros(
            (len(states), self._solution.spec.num_robot_actions), dtype=torch.float64
        )
        for left in torch.unique(steps_left).tolist():
            same = steps_left == left
            chances[same] = self._solution.robot_policies(states[same], left)
        return chances


class SolvedHumans:
    """The humans of a solved world; see ``empo_core.protocols.HumanPrior``."""

    def __init__(self, solution: Solution) -> None:
        self._solution = solution

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human."""
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
            SolveError: No episode is ever in one of them with so many steps left.
        """
        power = torch.zeros(len(states), dtype=torch.float64)
        for left in torch.unique(steps_left).tolist():
            same = steps_left == left
            rewards = self._solution.policies_of(states[same], left, lambda solved: solved.u_r)
            power[same] = torch.from_numpy(rewards)
        return power
