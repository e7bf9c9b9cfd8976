"""Costs of trajectories that follow a decision, by which robots averse to risk choose.

Source: arXiv 2608.08240. The cost of a trajectory is Y = c U + gamma_r^D Y', where U is -U_r, D the
duration of its first transition, c what U_r counts during it, and Y' the cost of what follows. A
robot ranks its actions by the mean of (gamma_r^D Y')^rho, and that is no sum over steps or goals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from empo_inspector.decision import OneStep, Policies, Transitions

NUM_SAMPLES = 1000
"""Trajectories after each action."""
HIGH = 0.9
"""The quantile that is told beside the mean."""


@dataclass(frozen=True)
class Costs:
    """Discounted costs gamma_r^D Y' of what follows some joint robot actions.

    Attributes:
        expected: Their exact means [action].
        samples: Those of sampled trajectories, with the policies of humans and robots
            [action sample].
    """

    expected: Float64[np.ndarray, " action"]
    samples: Float64[np.ndarray, "action sample"]

    @property
    def mean(self) -> Float64[np.ndarray, " action"]:
        """Means over the sampled trajectories."""
        mean: Float64[np.ndarray, " action"] = self.samples.mean(1)
        return mean

    @property
    def high(self) -> Float64[np.ndarray, " action"]:
        """The costs that nine in ten of the sampled trajectories do not exceed."""
        high: Float64[np.ndarray, " action"] = np.quantile(self.samples, HIGH, axis=1)
        return high


def costs(
    step: OneStep,
    state: int,
    time: int,
    policies: Policies,
    actions: tuple[int, ...],
    num_samples: int = NUM_SAMPLES,
) -> Costs:
    """Costs of what follows each of some joint robot actions, the same in every call.

    Args:
        step: Decisions in all states that can follow.
        state: Position of the state.
        time: Steps of the episode so far.
        policies: Policies in that state.
        actions: The joint robot actions; the number of an action is the seed of its trajectories.
        num_samples: How many trajectories to sample after each.
    """
    samples = [_sample(step, state, time, policies, action, num_samples) for action in actions]
    return Costs(-policies.lookahead[0, list(actions)].numpy(), np.array(samples))


def _sample(
    step: OneStep, state: int, time: int, policies: Policies, action: int, num_samples: int
) -> Float64[np.ndarray, " sample"]:
    """Discounted costs of sampled trajectories after one joint robot action."""
    random = np.random.default_rng(action)
    cost, factor = np.zeros(num_samples), np.ones(num_samples)
    going, places = np.arange(num_samples), np.full(num_samples, state)
    reward = np.zeros(step.inspection.num_states)  # What the state itself counts is no cost after.
    certain = torch.nn.functional.one_hot(torch.tensor([action]), policies.pi_r.shape[1]).double()
    now = policies._replace(pi_r=certain)
    while True:
        distinct, position = np.unique(places, return_inverse=True)
        moves = step.transitions(torch.from_numpy(distinct))
        drawn = _draw(moves, now, position, random.random(len(places)))
        cost[going] -= factor[going] * step.accrued(moves)[drawn].numpy() * reward[places]
        factor[going] *= step.discount(moves)[drawn].numpy()
        places = moves.successor[drawn].numpy().astype(np.int64)
        reward = step.reward(step.next_v_e(time))[1].numpy()
        time += step.spec.horizon is not None
        alive = step.alive(torch.from_numpy(places), time).numpy()
        over = going[~alive]
        cost[over] -= factor[over] * step.end_value(time).numpy()[places[~alive]]
        going, places = going[alive], places[alive]
        if not len(going):
            return cost
        now = step.policies(torch.from_numpy(np.unique(places)), time)


def _draw(
    moves: Transitions,
    policies: Policies,
    position: Int64[np.ndarray, " sample"],
    uniform: Float64[np.ndarray, " sample"],
) -> Tensor:
    """A transition of each trajectory, by the chance of its joint action and of chance itself.

    Args:
        moves: All transitions of some states, state by state.
        policies: Policies in these states.
        position: The position of each trajectory's state among them.
        uniform: A random number of each trajectory, from 0 to below 1.
    """
    joint = policies.chance[:, :, None] * policies.pi_r[:, None]
    chance = (joint.flatten()[moves.slot] * moves.prob).numpy()
    state = (moves.slot // joint[0].numel()).numpy()
    bounds = np.searchsorted(state, np.arange(len(joint) + 1))
    total = np.concatenate([[0.0], chance.cumsum()])
    low, high = total[bounds[position]], total[bounds[position + 1]]
    item = np.searchsorted(total, low + uniform * (high - low), side="right") - 1
    return torch.from_numpy(np.clip(item, bounds[position], bounds[position + 1] - 1))
