"""Assistance via empowerment (Du et al. 2020) in kitchens: the human gets room to move.

The reward of a state is the logarithm of a variance: of where a human ends, and of what it holds
then, that takes some steps evenly at random beside a robot that stays. As in the original, the
variance is that of a number of rollouts. The robot takes the action with the best expected reward
of the next state, and any of several that are equal. The human's next action is expected as the
benchmark's planner has it, with a goal drawn evenly: the robot cannot see it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from empo_benchmarks.overcooked import kernel
from empo_benchmarks.overcooked.kitchen import ACTIONS, COOK_WORDS, DISH, HELD, PLACE
from empo_benchmarks.overcooked.world import OvercookedWorld
from empo_core.protocols import HumanPrior

FLOOR = 1e-3
"""Added to variances: that of a human who is locked in is 0."""


def ave_robot(
    world: OvercookedWorld, prior: HumanPrior, *, steps: int, rollouts: int, seed: int
) -> Callable[[Tensor, int], Tensor]:
    """The robot's policy; all states of a step are judged by the same random human actions."""
    choices = len(ACTIONS)

    def act(states: Tensor, step: int) -> Tensor:
        chance = prior.policy(states, torch.full((len(states),), 1)).mean(1).double().numpy()
        after, _ = kernel.successors(world.kitchen, states.numpy(), None)
        distinct, where = np.unique(after, axis=0, return_inverse=True)
        random = np.random.default_rng([seed, step]).integers(choices, size=(rollouts, steps))
        reward = rewards(world, distinct, random)[where].reshape(-1, choices, choices)
        q = torch.from_numpy(np.einsum("eh,ehr->er", chance, reward))
        best = (q >= q.max(1, keepdim=True).values - 1e-9).double()
        return best / best.sum(1, keepdim=True)

    return act


def rewards(world: OvercookedWorld, rows: np.ndarray, random: np.ndarray) -> np.ndarray:
    """Log variance of the human's column, row and each kind of thing that it may hold [state].

    Args:
        world: The kitchen.
        rows: States.
        random: The human's actions in each rollout [rollout, step].
    """
    kitchen, items = world.kitchen, np.arange(DISH + world.kitchen.onions + 1)
    ends = np.empty((len(random), len(rows), 2 + len(items)))
    actions = np.zeros((len(rows), 2), np.int64)
    for number, sequence in enumerate(random):
        now = rows
        for actions[:, 1] in sequence:
            now, _ = kernel.successors(kitchen, now, actions)
        human = now[:, COOK_WORDS : 2 * COOK_WORDS].astype(np.int64)
        ends[number, :, :2] = np.stack(kitchen.at(kitchen.floor[human[:, PLACE]]), 1)
        ends[number, :, 2:] = human[:, HELD, None] == items
    found: np.ndarray = np.log(ends.var(0).sum(1) + FLOOR)
    return found
