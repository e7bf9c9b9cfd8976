"""Episodes under the solved policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import torch

from empo_core.errors import SolveError
from empo_exact.chain import marginals
from empo_exact.solution import Solution

Episode: TypeAlias = list[tuple[int, tuple[int, ...] | None]]
"""State numbers, each with the joint action taken there; None at the end."""


def play(solution: Solution, generator: torch.Generator, goals: Mapping[int, int]) -> Episode:
    """One episode; see ``ExactResult.rollout``.

    Raises:
        SolveError: if a goal does not exist or belongs to another human.
    """
    spec = solution.spec
    for human, goal in goals.items():
        if goal not in spec.goals_of(human):
            raise SolveError(
                f"goal {goal} is not one of agent {human}'s; those are {spec.goals_of(human)}"
            )
    state = 0 if len(solution.start) == 1 else _draw(solution.start, generator)
    time = 0
    episode: Episode = []
    now, null = solution, dict[int, int]()  # Once robots have failed, they do nothing else.
    while solution.alive(np.array([state]), time)[0]:
        policies = now.policies_in(state, time)
        average = marginals(now, policies.pi_h)
        actions = [0] * len(spec.agents)
        for h, human in enumerate(spec.humans):
            chosen = average[h][0]
            if human in goals:
                chosen = policies.pi_h[0, goals[human], : spec.num_actions[human]]
            actions[human] = _draw(chosen, generator)
        if now is solution:
            joint = _draw(policies.pi_r[0], generator)
            for robot in spec.robots:
                joint, actions[robot] = divmod(joint, spec.num_actions[robot])
        for robot, action in null.items():
            actions[robot] = action
        episode.append((state, tuple(actions)))
        pair = state * spec.num_joint_actions
        pair += sum(a * stride for a, stride in zip(actions, spec.strides, strict=True))
        first, last = int(solution.graph.offsets[pair]), int(solution.graph.offsets[pair + 1])
        item = first + _draw(solution.graph.prob[solution.graph.code[first:last]], generator)
        state = int(solution.graph.successor[item])
        if solution.failed is not None and now is solution:
            fails = 1.0 - solution.problem.working[solution.graph.code[item]]
            if float(torch.rand((), generator=generator, dtype=torch.float64)) < fails:
                now, null = solution.failed, null_actions_of(solution.failed, solution)
        # Without a horizon, time does not matter and stays 0.
        time += solution.horizon is not None
    episode.append((state, None))
    return episode


def null_actions_of(failed: Solution, solution: Solution) -> dict[int, int]:
    """The only action of each robot that has failed, by agent, among those of working robots."""
    agents = zip(solution.spec.agents, failed.spec.agents, strict=True)
    actions = [working.actions.index(broken.actions[0]) for working, broken in agents]
    return {robot: actions[robot] for robot in solution.spec.robots}


def _draw(prob: np.ndarray, generator: torch.Generator) -> int:
    return int(torch.multinomial(torch.from_numpy(prob.copy()), 1, generator=generator))
