"""The question that a certificate answers: a world, policies in it, and the theory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from empo_core.errors import SolveError
from empo_core.protocols import HumanPrior, RobotPolicy, WorldModel
from empo_core.types import WorldSpec
from empo_theory.parameters import TheoryParams
from empo_worlds.roles import check_humans


@dataclass(frozen=True)
class Question:
    """Everything that the values in question depend on.

    Attributes:
        world: The world.
        robots: The policy that is certified.
        humans: How humans act for each goal.
        theory: Parameters of equations (4)-(9).
        accrual: Whether U_r counts once per transition, or accrues during it.
        counts: The humans, by agent index, whose power U_r counts; None: all.
    """

    world: WorldModel
    robots: RobotPolicy
    humans: HumanPrior
    theory: TheoryParams = field(default_factory=TheoryParams)
    accrual: Literal["discrete", "continuous"] = "discrete"
    counts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse a world in which power, or the average of a human's policies, is undefined.

        Raises:
            UnsuitableWorldError: if the world has no human, or a human without goals.
            SolveError: if all goals of a human have weight 0, or the theory is one whose values are
                not bounded here.
        """
        for key, value, only in (
            ("counting", self.theory.counting, "arrival"),
            ("rho", self.theory.rho, 1),
        ):
            if value != only:
                raise SolveError(
                    f"theory.{key} is {value}: certificates bound the values of {key}: {only} only"
                )
        check_humans(self.world.spec)
        for human, weights in zip(self.spec.humans, self.weights, strict=True):
            if not weights.sum() > 0:
                raise SolveError(
                    f"all goals of {self.spec.agents[human].name} (agent {human}) of "
                    f"{self.spec.name!r} have weight 0, so its policy has no average over them. "
                    "Give one of them a positive weight."
                )

    @property
    def spec(self) -> WorldSpec:
        """The world's specification."""
        return self.world.spec

    @property
    def num_actions(self) -> int:
        """The most actions that a human has."""
        return max(self.spec.num_actions[human] for human in self.spec.humans)

    @property
    def occupancy_discount(self) -> float:
        """By what occupancy is discounted in a step of duration 1; 1 where there is a horizon.

        Without one, episodes may never end, and what is far away counts little in any value.
        """
        theory = self.theory
        return 1.0 if self.spec.horizon is not None else max(theory.gamma_h, theory.gamma_r)

    @cached_property
    def goals(self) -> tuple[list[int], ...]:
        """Positions in ``spec.goals`` of each human's goals."""
        return tuple(list(self.spec.goals_of(human)) for human in self.spec.humans)

    @cached_property
    def counted(self) -> list[int]:
        """Positions in ``spec.humans`` of the humans whose power U_r counts."""
        counts = self.spec.humans if self.counts is None else self.counts
        return [position for position, human in enumerate(self.spec.humans) if human in counts]

    @cached_property
    def order(self) -> Int64[np.ndarray, " goal"]:
        """Positions in ``spec.goals`` of all goals, human by human."""
        return np.array([goal for goals in self.goals for goal in goals], np.int64)

    @cached_property
    def first_goal(self) -> list[int]:
        """The first goal of each human in ``order``, and the number of all."""
        return [sum(map(len, self.goals[:human])) for human in range(len(self.goals) + 1)]

    @cached_property
    def weights(self) -> tuple[Float64[np.ndarray, " _goal"], ...]:
        """Weight of each goal, for each human."""
        return tuple(
            np.array([self.spec.goals[goal].weight for goal in goals]) for goals in self.goals
        )

    @property
    def sum_operations(self) -> int:
        """Operations behind a computed probability of everybody's actions."""
        return sum(2 * len(goals) + 2 for goals in self.goals) + len(self.spec.agents) + 2
