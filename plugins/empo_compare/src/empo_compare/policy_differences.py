"""Where two policies of a world differ, and how much that matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_theory.solved_world import SolvedWorld


@dataclass(frozen=True)
class PolicyDifference:
    """A state and time in which the robots' policies of two solutions differ.

    Attributes:
        steps_left: Steps left of the episode; 1 where the world has no horizon.
        state: The state row [word].
        occupancy: Expected visits to it in an episode of the first solution.
        distance: Total variation between the policies, from 0 to 1.
        first: The first solution's joint policy there [robot_action].
        second: The second's [robot_action].
    """

    steps_left: int
    state: Int[Tensor, " word"]
    occupancy: float
    distance: float
    first: Float[Tensor, " robot_action"]
    second: Float[Tensor, " robot_action"]

    @property
    def weight(self) -> float:
        """Occupancy times total variation."""
        return self.occupancy * self.distance


def policy_differences(
    first: SolvedWorld, second: SolvedWorld, max_states: int
) -> tuple[list[PolicyDifference], float]:
    """The state-times with the largest occupancy times total variation, and the sum over all.

    Raises:
        SolveError: if a solution does not know a state, or has not kept the values of some time.
    """
    differences: list[PolicyDifference] = []
    total = 0.0
    occupancy = first.occupancy()
    assert occupancy is not None
    for steps_left, states, visits in occupancy:
        policy = first.robot_policies(states, steps_left)
        other = second.robot_policies(states, steps_left)
        distance = (policy - other).abs().sum(-1) / 2
        weight = visits * distance
        total += float(weight.sum())
        best = weight.topk(min(max_states, len(weight))).indices
        differences += [
            PolicyDifference(
                steps_left, states[i], float(visits[i]), float(distance[i]), policy[i], other[i]
            )
            for i in best.tolist()
            if distance[i] > 0
        ]
        differences = sorted(differences, key=lambda difference: -difference.weight)[:max_states]
    return differences, total


def likeliest(policy: Float[Tensor, " robot_action"], names: Sequence[str]) -> str:
    """The policy's two likeliest actions, e.g. ``forward 0.90, left 0.05``."""
    best = torch.sort(policy, descending=True, stable=True).indices[:2].tolist()
    return ", ".join(f"{names[action]} {policy[action]:.2f}" for action in best)
