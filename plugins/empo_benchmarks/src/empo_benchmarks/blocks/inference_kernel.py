"""A sweep of value iteration for all goals at once, compiled."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int32

from empo_worlds.compilation import compiled


@compiled
def sweep(
    chance: Float32[np.ndarray, "state human_action goal"],
    after: Int32[np.ndarray, "state robot_action human_action"],
    payoff: Float32[np.ndarray, "state goal"],
    expected: Float32[np.ndarray, " goal"],
    values: Float32[np.ndarray, "state goal"],
) -> None:
    """Write the largest expected payoff, which is at least 0, over the robot's actions.

    ``expected`` is room for the payoffs of one action. Goals are innermost, several at a time.
    """
    states, robots, humans = after.shape
    goals = payoff.shape[1]
    for state in range(states):
        for goal in range(goals):
            values[state, goal] = 0
        for robot in range(robots):
            for goal in range(goals):
                expected[goal] = 0
            for human in range(humans):
                successor = after[state, robot, human]
                for goal in range(goals):
                    expected[goal] += chance[state, human, goal] * payoff[successor, goal]
            for goal in range(goals):
                values[state, goal] = max(values[state, goal], expected[goal])
