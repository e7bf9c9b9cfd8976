"""A least power by single steps, in plain loops: what ``least_power`` is checked by."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float64

from empo_bounds.question import Question
from empo_worlds.samples import joint_actions

AT_ONCE = 256
"""States that the world and the prior are asked about at a time."""

Row = tuple[int, ...]


def plain_least_power(question: Question) -> tuple[float, int]:
    """The least X_h that follows from single steps, and how many states can be reached."""
    world, horizon = question.world, question.spec.horizon
    layer, min_power, time = [tuple(world.initial_state().tolist())], math.inf, 0
    reached = set(layer)
    while layer and time != horizon:
        later: dict[Row, None] = {}
        for first in range(0, len(layer), AT_ONCE):
            rows = torch.tensor(layer[first : first + AT_ONCE], dtype=world.initial_state().dtype)
            rows = rows[world.available(rows).flatten(1).any(1)]
            if not len(rows):
                continue
            reaches, successors = _one_step(question, rows)
            later.update(dict.fromkeys(successors))
            for left in [1] if horizon is None else range(1, horizon - time + 1):
                steps_left = torch.full((len(rows),), left)
                policy = question.humans.policy(rows, steps_left).detach().cpu().double().numpy()
                policy = policy / policy.sum(-1, keepdims=True)
                min_power = min(min_power, _least_power(question, policy, reaches))
        layer = [row for row in later if row not in reached]
        reached.update(layer)
        time += 1
    return min_power, len(reached)


def _one_step(
    question: Question, rows: torch.Tensor
) -> tuple[Float64[np.ndarray, "state goal action"], list[Row]]:
    """For goals on the world's axis and actions of their humans, the least chance of them."""
    spec, successors = question.spec, question.world.transitions(rows)
    achieved = question.world.achieved(successors.states).tolist()
    prob, offsets = successors.prob.double().tolist(), successors.offsets.tolist()
    actions = joint_actions(spec).tolist()
    worst = np.full((len(rows), len(spec.goals), max(spec.num_actions)), math.inf)
    for state in range(len(rows)):
        for joint, chosen in enumerate(actions):
            pair = state * len(actions) + joint
            items = range(offsets[pair], offsets[pair + 1])
            if not items:
                continue
            for goal, goal_spec in enumerate(spec.goals):
                total = sum(prob[item] for item in items if achieved[item][goal])
                action = chosen[goal_spec.human]
                worst[state, goal, action] = min(worst[state, goal, action], total)
    worst[np.isinf(worst)] = 0.0
    return worst, [tuple(row) for row in successors.states.tolist()]


def _least_power(
    question: Question,
    policy: Float64[np.ndarray, "state goal action"],
    reaches: Float64[np.ndarray, "state goal action"],
) -> float:
    """The least power of a human in some states at one time."""
    theory, min_power = question.theory, math.inf
    actions = min(policy.shape[2], reaches.shape[2])
    chance = (policy[:, :, :actions] * reaches[:, :, :actions]).sum(2)
    for goals, weights in zip(question.goals, question.weights, strict=True):
        factor = weights if theory.x_agg == "weighted" else np.ones(len(weights))
        min_power = min(min_power, float((factor * chance[:, goals] ** theory.zeta).sum(1).min()))
    return min_power
