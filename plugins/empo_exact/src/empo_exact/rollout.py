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
    while solution.alive(np.array([state]), time)[0]:
        policies = solution.policies_in(state, time)
        average = marginals(solution, policies.pi_h)
        actions = [0] * len(spec.agents)
        for h, human in enumerate(spec.humans):
            chosen = average[h][0]
            if human in goals:
                chosen = policies.pi_h[0, goals[human], : spec.num_actions[human]]
            actions[human] = _draw(chosen, generator)
        joint = _draw(policies.pi_r[0], generator)
        for robot in spec.robots:
            joint, actions[robot] = divmod(joint, spec.num_actions[robot])
        episode.append((state, tuple(actions)))
        pair = state * spec.num_joint_actions
        pair += sum(a * stride for a, stride in zip(actions, spec.strides, strict=True))
        first, last = int(solution.graph.offsets[pair]), int(solution.graph.offsets[pair + 1])
        item = first + _draw(solution.graph.prob[solution.graph.code[first:last]], generator)
        state = int(solution.graph.successor[item])
        # Without a horizon, time does not matter and stays 0.
        time += solution.horizon is not None
    episode.append((state, None))
    return episode


def _draw(prob: np.ndarray, generator: torch.Generator) -> int:
    return int(torch.multinomial(torch.from_numpy(prob.copy()), 1, generator=generator))
