"""A robot that infers the human's goal from where the human goes, and helps it to get there.

It has a list of goals, a belief over them, and a model of the human for each. Bayes' rule updates
the belief after each step. The robot then takes the action that is best on average over the belief
if the goal were revealed right after it (QMDP: Littman, Cassandra and Kaelbling 1995; hindsight
optimisation: Javdani, Srinivasa and Bagnell 2015). Values of each goal are exact, by value
iteration over all states, which a board of 5 x 5 cells with up to four boxes allows.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int, Int32, Int64
from torch import Tensor

from empo_benchmarks.blocks.inference_kernel import sweep
from empo_benchmarks.blocks.params import GoalInferenceParams
from empo_benchmarks.blocks.ranks import Ranks
from empo_benchmarks.blocks.world import BlocksWorld
from empo_core.errors import ConfigError, WorldError
from empo_core.protocols import HumanPrior

STATES_AT_ONCE = 4096
PRECISION = 1e-6
"""Largest change of a value in the last sweep, as a share of the largest possible value."""
TIE = 1e-3
"""Values that differ by less count as equal, in steps.

Value iteration leaves 0.0004 steps open with discount 0.95, by which no action must be chosen.
"""

Belief = Float64[np.ndarray, "item goal"]


class GoalInference:
    """Beliefs about the human's goal, and the robot's best actions under them.

    The human's model is a prior that does not depend on the steps left. The goal counts each step
    after which the human is in it, discounted; goals of the list are goals of the world, by index.

    Attributes:
        values: V(s, g), the most discounted steps in goal g that can be expected from state s if
            the robot knows g; states by their number.
    """

    values: Float32[np.ndarray, "state goal"]

    def __init__(self, params: GoalInferenceParams, world: BlocksWorld, prior: HumanPrior) -> None:
        """Solve the world for each goal.

        Args:
            params: The discount.
            world: The world; its horizon has no effect.
            prior: How a human with each goal acts, whatever the number of steps left.

        Raises:
            ConfigError: if the prior does not say that it is the same at all times.
            WorldError: if states and actions are too many for the tables.
        """
        if not getattr(prior, "is_stationary", False):
            raise ConfigError(
                f"inferring goals needs a human_prior that is the same at all times; "
                f"{type(prior).__name__} depends on the steps left; take greedy-distance or "
                "softmax-distance"
            )
        self._world, self._discount = world, params.discount
        self._ranks = Ranks(world.board.cells, world.board.boxes)
        self._robots = world.spec.num_robot_actions
        count, joint = self._ranks.count, self._robots * world.spec.num_human_actions
        if count * joint >= 1 << 31:
            raise WorldError(
                f"{world.spec.name}: {count} states with {joint} joint actions are too many to "
                "infer goals by tables; use a smaller board or fewer boxes"
            )
        self._prior = prior
        chance = np.empty((count, world.spec.num_human_actions, world.board.cells), np.float32)
        after = np.empty((count, self._robots, world.spec.num_human_actions), np.int32)
        for first in range(0, count, STATES_AT_ONCE):
            part = slice(first, first + STATES_AT_ONCE)
            rows = self._ranks.unrank(np.arange(first, min(first + STATES_AT_ONCE, count)))
            chance[part] = self._chances(torch.from_numpy(rows))
            after[part] = self._successors(torch.from_numpy(rows))
        self.values = np.zeros((count, world.board.cells), np.float32)
        self._solve(chance, after)

    def updated(
        self,
        belief: Belief,
        before: Int[Tensor, "item word"],
        after: Int[Tensor, "item word"],
    ) -> Belief:
        """The belief once the human's step was seen: by Bayes' rule, from where it ended.

        Blocked moves look like staying. A belief stays as it was where no goal that it holds
        possible explains the step. Boxes have moved as well, which tells nothing.

        Args:
            belief: Probabilities of the goals; 0 for those that are not in the list.
            before: Rows of the world.
            after: Rows of a step later.
        """
        still = torch.zeros(len(before), 1, dtype=torch.int64)
        likelihood = np.zeros_like(belief)
        chance = self._chances(before).astype(np.float64)
        for action in range(chance.shape[1]):
            joint = torch.cat([torch.full_like(still, action), still], 1)
            ends = self._world.transitions(before, joint).states[:, 0] == after[:, 0]
            likelihood += ends.numpy()[:, None] * chance[:, action]
        posterior = belief * likelihood
        total = posterior.sum(1, keepdims=True)
        return np.where(total > 0, posterior / np.where(total > 0, total, 1), belief)

    def action_values(
        self, belief: Belief, states: Int[Tensor, "item word"]
    ) -> Float64[np.ndarray, "item robot_action"]:
        """Discounted steps in the goal after each action, on average over the belief."""
        weighted = self._chances(states) * belief[:, None, :]
        payoff = self._payoff[self._successors(states)]
        values: Float64[np.ndarray, "item robot_action"]
        values = np.einsum("sag,srag->sr", weighted, payoff)
        return values

    def actions(
        self, belief: Belief, states: Int[Tensor, "item word"]
    ) -> Int64[np.ndarray, " item"]:
        """The best action of the robot; of equally good ones the first, which is ``still``."""
        values = self.action_values(belief, states)
        first: Int64[np.ndarray, " item"]
        first = (values >= values.max(1, keepdims=True) - TIE).argmax(1)
        return first

    def _solve(
        self,
        chance: Float32[np.ndarray, "state human_action goal"],
        after: Int32[np.ndarray, "state robot_action human_action"],
    ) -> None:
        """V(s, g) = max_r sum_h pi(h | s, g) u(s', g), with u(s, g) = [s in g] + discount V(s, g).

        In ``_payoff`` is u. Values rise from what a human gets that is in its goal.
        """
        cells, discount = self._world.board.cells, self._discount
        in_goal = np.repeat(np.eye(cells, dtype=np.float32), len(after) // cells, 0)
        # A human in its goal stays: no sweep has to find that out.
        self.values += in_goal / (1 - discount)
        former, expected = np.empty_like(self.values), np.empty(cells, np.float32)
        while True:
            former[:] = self.values
            self._payoff = in_goal + np.float32(discount) * former
            sweep(chance, after, self._payoff, expected, self.values)
            if np.abs(self.values - former).max() <= PRECISION / (1 - discount):
                break
        self._payoff = in_goal + np.float32(discount) * self.values

    def _chances(
        self, states: Int[Tensor, "item word"]
    ) -> Float32[np.ndarray, "item human_action goal"]:
        """The human's probabilities with each goal."""
        policy = self._prior.policy(states, torch.ones(len(states), dtype=torch.int64))
        return policy.transpose(1, 2).numpy().astype(np.float32)

    def _successors(
        self, states: Int[Tensor, "item word"]
    ) -> Int32[np.ndarray, "item robot_action human_action"]:
        """Numbers of all successors."""
        numbers = self._ranks.rank(self._world.transitions(states).states.numpy())
        return numbers.astype(np.int32).reshape(len(states), self._robots, -1)
