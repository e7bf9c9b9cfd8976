"""Goals as a learner indexes them: human by human, the same positions in every world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec
from empo_worlds.ensemble import members_of


@dataclass(frozen=True, slots=True)
class GoalIndex:
    """Padded list of all humans' goals, the same length in every world of an ensemble.

    A position of this list is called a *slot*: it belongs to one human, and to one goal of that
    human in each world, or to none where a world has fewer goals than another.

    Attributes:
        human: Position in ``spec.humans`` of each slot's human, ascending.
        goal: Position in ``spec.goals`` of each slot's goal in each world; -1 where it has none.
        weight: Weight of each slot's goal in each world; 0 where it has none.
    """

    human: Int[Tensor, " slot"]
    goal: Int[Tensor, "layout slot"]
    weight: Float[Tensor, "layout slot"]

    @classmethod
    def of(cls, spec: WorldSpec, worlds: Sequence[WorldSpec] = ()) -> GoalIndex:
        """The index of a world's goals: human by human, in the order of ``spec.goals``.

        Args:
            spec: The world; of an ensemble the union, whose goals are those of its worlds in turn.
            worlds: The worlds of the ensemble; none where there is only one world.
        """
        first, goals_of = 0, []
        for member in worlds or (spec,):
            goals_of.append([[first + g for g in member.goals_of(human)] for human in spec.humans])
            first += len(member.goals)
        width = [max(len(goals[k]) for goals in goals_of) for k in range(len(spec.humans))]
        goal = torch.tensor(
            [
                [
                    g
                    for k, indices in enumerate(goals)
                    for g in indices + [-1] * (width[k] - len(indices))
                ]
                for goals in goals_of
            ],
            dtype=torch.int64,
        )
        weights = [goal.weight for goal in spec.goals]
        weight_of = torch.tensor([*weights, 0.0], dtype=torch.float64)  # Read by the goal -1.
        human = torch.arange(len(width)).repeat_interleave(torch.tensor(width))
        return cls(human, goal, weight_of[goal])

    def to(self, device: torch.device | str) -> GoalIndex:
        """The same index on a device."""
        return GoalIndex(self.human.to(device), self.goal.to(device), self.weight.to(device))

    def __len__(self) -> int:
        """Number of slots."""
        return self.human.shape[0]

    def belongs(self, humans: int) -> Bool[Tensor, "slot human"]:
        """True where a slot is a human's, for the first so many humans."""
        return self.human[:, None] == torch.arange(humans, device=self.human.device)

    def by_slot(
        self, of_goal: Bool[Tensor, "state goal"], layout: Int[Tensor, " state"]
    ) -> Bool[Tensor, "state slot"]:
        """A statement about goals, per slot; False where a world has no goal for a slot."""
        goal = self.goal[layout.long()]
        return of_goal.gather(1, goal.clamp(min=0)) & (goal >= 0)


def goal_index_of(world: WorldModel) -> GoalIndex:
    """The goals of a world or an ensemble, by slot."""
    return GoalIndex.of(world.spec, [member.spec for member in members_of(world)])
