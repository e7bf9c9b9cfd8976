"""Playing episodes with the solved policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from empo_core.errors import SolveError
from empo_exact.chain import marginals

if TYPE_CHECKING:
    from empo_exact.result import ExactResult


def play(
    result: ExactResult, generator: torch.Generator, goals: Mapping[int, int]
) -> list[tuple[int, tuple[int, ...] | None]]:
    """One episode; see ``ExactResult.rollout``.

    Raises:
        SolveError: A goal does not exist or belongs to another human.
    """
    spec, game = result.spec, result.problem.game
    for human, goal in goals.items():
        if goal not in spec.goals_of(human):
            raise SolveError(
                f"goal {goal} is not one of agent {human}'s; those are {spec.goals_of(human)}"
            )
    state, time = 0, 0
    episode: list[tuple[int, tuple[int, ...] | None]] = []
    while result.alive(np.array([state]), time)[0]:
        policies = result.policies(time, np.array([state]))
        average = marginals(result, policies.pi_h)
        actions = [0] * len(spec.agents)
        for h, human in enumerate(spec.humans):
            chosen = average[h][0]
            if human in goals:
                chosen = policies.pi_h[
                    0, : game.num_actions[h], result.problem.places[goals[human]]
                ]
            actions[human] = _draw(chosen, generator)
        joint = _draw(policies.pi_r[0], generator)
        for robot in spec.robots:
            joint, actions[robot] = divmod(joint, spec.num_actions[robot])
        episode.append((state, tuple(actions)))
        pair = state * spec.num_joint_actions
        pair += sum(a * stride for a, stride in zip(actions, spec.strides, strict=True))
        first, last = int(result.graph.offsets[pair]), int(result.graph.offsets[pair + 1])
        item = first + _draw(result.graph.prob[result.graph.code[first:last]], generator)
        state = int(result.graph.successor[item])
        # Without a horizon, time does not matter and stays 0.
        time += result.horizon is not None
    episode.append((state, None))
    return episode


def _draw(prob: np.ndarray, generator: torch.Generator) -> int:
    return int(torch.multinomial(torch.from_numpy(prob.copy()), 1, generator=generator))
