"""Occupancies, power and baselines on Disempower-Grid, compiled.

Successors are certain: ``successor[state, joint]``, where the joint action counts the user's
action fastest, then the bystander's, then the assistant's.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int8, Int32, Int64

from empo_worlds.compilation import compiled

HUMAN_ACTIONS = 5
PAIRS = HUMAN_ACTIONS**2
TIE = 1e-12
"""Values that differ by less than this share are equal, so that rounding breaks no ties."""

Successor = Int32[np.ndarray, "state joint"]
OfState = Float64[np.ndarray, " state"]
OfHuman = Float64[np.ndarray, "state action"]
OfRobot = Float64[np.ndarray, "state robot"]


@compiled
def find_alike(successor: Successor, alike: Int8[np.ndarray, "state robot"]) -> None:
    """The first of the robot's actions that leads where an action does, whatever humans do."""
    for state in range(alike.shape[0]):
        for action in range(alike.shape[1]):
            alike[state, action] = action
            for first in range(action):
                is_alike = True
                for pair in range(PAIRS):
                    target = successor[state, PAIRS * action + pair]
                    if successor[state, PAIRS * first + pair] != target:
                        is_alike = False
                        break
                if is_alike:
                    alike[state, action] = first
                    break


@compiled
def merge(policy: OfRobot, alike: Int8[np.ndarray, "state robot"], merged: OfRobot) -> None:
    """Add chances of actions that lead to the same to that of the first of them."""
    for state in range(policy.shape[0]):
        for action in range(policy.shape[1]):
            merged[state, alike[state, action]] += policy[state, action]


@compiled
def random_walk(
    successor: Successor,
    now: Float64[np.ndarray, "state cell"],
    before: Float64[np.ndarray, "state cell"],
) -> None:
    """Chances one step earlier, where both humans act evenly and the assistant does nothing."""
    for state in range(before.shape[0]):
        for cell in range(now.shape[1]):
            total = 0.0
            for pair in range(PAIRS):
                total += now[successor[state, pair], cell]
            before[state, cell] = total / PAIRS


@compiled
def spread(
    successor: Successor,
    user: OfHuman,
    bystander: OfHuman,
    robot: OfRobot,
    visits: Float64[np.ndarray, "kind state"],
    after: Float64[np.ndarray, "kind state"],
) -> None:
    """Add to ``after`` where visits lead in a step; kinds of visits share the policies."""
    for state in range(user.shape[0]):
        if visits[0, state] == 0:
            continue
        for action in range(robot.shape[1]):
            if robot[state, action] == 0:
                continue
            for second in range(HUMAN_ACTIONS):
                both = robot[state, action] * bystander[state, second]
                if both == 0:
                    continue
                for first in range(HUMAN_ACTIONS):
                    chance = both * user[state, first]
                    joint = PAIRS * action + HUMAN_ACTIONS * second + first
                    target = successor[state, joint]
                    for kind in range(visits.shape[0]):
                        after[kind, target] += chance * visits[kind, state]


@compiled
def best_actions(
    successor: Successor,
    alike: Int8[np.ndarray, "state robot"],
    user: OfHuman,
    bystander: OfHuman,
    reward: OfState,
    value: OfState,
    discount: float,
    q: Float64[np.ndarray, " robot"],
    best: Int64[np.ndarray, " state"],
    before: OfState,
) -> None:
    """The assistant's best action for a reward of the next state, and what it is worth."""
    for state in range(user.shape[0]):
        highest = -np.inf
        for action in range(len(q)):
            q[action] = q[alike[state, action]]
            if alike[state, action] != action:
                continue
            total = 0.0
            for second in range(HUMAN_ACTIONS):
                for first in range(HUMAN_ACTIONS):
                    joint = PAIRS * action + HUMAN_ACTIONS * second + first
                    target = successor[state, joint]
                    chance = user[state, first] * bystander[state, second]
                    total += chance * (reward[target] + discount * value[target])
            q[action] = total
            highest = max(highest, total)
        for action in range(len(q)):
            if q[action] >= highest - TIE * (1 + abs(highest)):
                best[state] = action
                break
        before[state] = highest


@compiled
def attainable(
    successor: Successor,
    policy: Float64[np.ndarray, "state action goal"],
    mean_policy: Float64[np.ndarray, "human state action"],
    robot: OfRobot,
    payoff: Float64[np.ndarray, "state goal"],
    scratch: Float64[np.ndarray, "action goal"],
    now: Float64[np.ndarray, "state goal"],
) -> None:
    """Equation (6) under a given robot, which may be no solution.

    Args:
        successor: The successors.
        policy: Policy of each goal's human, the first half of the goals the user's.
        mean_policy: Policies of user and bystander over all their goals.
        robot: The assistant's policy.
        payoff: 1 where a goal is achieved, elsewhere its discounted value a step later.
        scratch: Working memory.
        now: The values.
    """
    goals = payoff.shape[1]
    cells = goals // 2
    for state in range(policy.shape[0]):
        for own in range(HUMAN_ACTIONS):
            for goal in range(goals):
                scratch[own, goal] = 0.0
        for action in range(robot.shape[1]):
            if robot[state, action] == 0:
                continue
            for second in range(HUMAN_ACTIONS):
                for first in range(HUMAN_ACTIONS):
                    joint = PAIRS * action + HUMAN_ACTIONS * second + first
                    target = successor[state, joint]
                    of_bystander = robot[state, action] * mean_policy[1, state, second]
                    of_user = robot[state, action] * mean_policy[0, state, first]
                    for goal in range(cells):
                        scratch[first, goal] += of_bystander * payoff[target, goal]
                    for goal in range(cells, goals):
                        scratch[second, goal] += of_user * payoff[target, goal]
        for goal in range(goals):
            now[state, goal] = 0.0
        for own in range(HUMAN_ACTIONS):
            for goal in range(goals):
                now[state, goal] += policy[state, own, goal] * scratch[own, goal]


@compiled
def expected_next(
    successor: Successor, mean_policy: Float64[np.ndarray, "human state action"], robot: OfRobot,
    later: OfState, now: OfState,
) -> None:  # fmt: skip
    """The expectation of a number of the next state, humans over all their goals."""
    for state in range(robot.shape[0]):
        total = 0.0
        for action in range(robot.shape[1]):
            if robot[state, action] == 0:
                continue
            for second in range(HUMAN_ACTIONS):
                for first in range(HUMAN_ACTIONS):
                    joint = PAIRS * action + HUMAN_ACTIONS * second + first
                    chance = mean_policy[0, state, first] * mean_policy[1, state, second]
                    total += robot[state, action] * chance * later[successor[state, joint]]
        now[state] = total
