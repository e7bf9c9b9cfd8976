"""Goals as the learner counts them, human by human, and which worlds can be learned in at all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.types import WorldSpec
from empo_phase2.experience import GoalSlots


def goal_slots(spec: WorldSpec, worlds: Sequence[WorldSpec] = ()) -> GoalSlots:
    """The goal slots of a world: human by human, in the order of ``spec.goals``.

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
            [g for k, own in enumerate(goals) for g in own + [-1] * (width[k] - len(own))]
            for goals in goals_of
        ],
        dtype=torch.int64,
    )
    weight_of = torch.tensor([goal.weight for goal in spec.goals] + [0.0], dtype=torch.float64)
    human = torch.arange(len(width)).repeat_interleave(torch.tensor(width))
    return GoalSlots(human, goal, weight_of[goal])


def by_slot(
    of_goal: Bool[Tensor, "state goal"], layout: Int[Tensor, " state"], slots: GoalSlots
) -> Bool[Tensor, "state slot"]:
    """What is said of goals, said of slots; False where a world has no goal for a slot."""
    goal = slots.goal[layout.long()]
    return of_goal.gather(1, goal.clamp(min=0)) & (goal >= 0)


def check_world(spec: WorldSpec) -> None:
    """Refuse worlds in which there is nothing to learn.

    Raises:
        SolveError: Humans, robots or goals are missing, or an agent has no role.
    """
    roles = ", ".join(f"{agent.name}: {agent.role}" for agent in spec.agents)
    for role, indices in (("human", spec.humans), ("robot", spec.robots)):
        if not indices:
            raise SolveError(
                f"{spec.name!r} has no {role} ({roles}), so there is nothing to learn. "
                f"Give an agent the role {role!r} in the world."
            )
    for index, agent in enumerate(spec.agents):
        if agent.role == "other":
            raise SolveError(
                f"{agent.name} (agent {index}) of {spec.name!r} is neither human nor robot, so "
                "nothing says how it acts. Give it a role in the world."
            )
    for human in spec.humans:
        if not any(spec.goals[goal].weight > 0 for goal in spec.goals_of(human)):
            what = "goals of weight 0 only" if spec.goals_of(human) else "no goals"
            raise SolveError(
                f"{spec.agents[human].name} (agent {human}) of {spec.name!r} has {what}, so its "
                "power is undefined. Add goals to the world."
            )
