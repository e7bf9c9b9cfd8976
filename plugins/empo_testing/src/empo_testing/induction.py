"""Exact values of small worlds, computed the plainest way: backward induction on dense arrays.

For tests of worlds and priors that have known values. It keeps every state under every joint
action in memory and loops over time, humans and goals; a solver for larger worlds is a plugin.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.protocols import HumanPrior, WorldModel
from empo_core.threads import torch_threads
from empo_testing.exploration import joint_actions
from empo_theory.equations import (
    human_policy,
    human_power,
    reward_weight,
    robot_policy,
    robot_reward,
)
from empo_theory.parameters import CompleteTheory


@dataclass(frozen=True)
class Values:
    """Values and policies at one time, rows as in ``Induction.states``; void at terminal ones."""

    v_m: Float[Tensor, "state goal"]
    policy_h: Float[Tensor, "state goal action"]
    v_e: Float[Tensor, "state goal"]
    x_h: Float[Tensor, "state human"]
    u_r: Float[Tensor, " state"]
    q_r: Float[Tensor, "state robot_action"]
    policy_r: Float[Tensor, "state robot_action"]
    v_r: Float[Tensor, " state"]


class Induction:
    """Values of a world of at most a few thousand states at every time up to its horizon."""

    def __init__(
        self, world: WorldModel, theory: CompleteTheory, prior: HumanPrior | None = None
    ) -> None:
        """Solve the world.

        Args:
            world: Must have a horizon.
            theory: Parameters of the equations.
            prior: How humans act; None computes it by equations (1)-(3).
        """
        horizon = world.spec.horizon
        if horizon is None:
            raise ValueError("backward induction needs a horizon")
        self.world = world
        self._theory = theory
        self._prior = prior
        self.states, self._next = reachable(world)
        found = world.transitions(self.states)
        spec = world.spec
        self._pair = torch.repeat_interleave(
            torch.arange(found.num_pairs), found.offsets.long().diff()
        )
        self._prob = found.prob.double()
        self._duration = torch.ones_like(self._prob) if found.duration is None else found.duration
        self._live = (found.offsets.diff() > 0).view(len(self.states), -1).any(1)
        self._allowed = world.available(self.states)
        self._achieved = world.achieved(self.states)
        joint = joint_actions(spec)
        self._digit = joint.unbind(1)
        self._possible = self._allowed[:, torch.arange(joint.shape[1]), joint].all(2)
        self.values: list[Values] = []
        with torch_threads(1):
            for steps_left in range(1, horizon + 1):
                after = self.values[-1] if self.values else None
                self.values.append(self._before(after, steps_left))

    def at(self, row: Int[Tensor, " word"], steps_left: int) -> tuple[int, Values]:
        """The position of a state, and the values with so many steps left."""
        position = int((self.states == row).all(1).nonzero()[0, 0])
        return position, self.values[steps_left - 1]

    def _expected(self, payoff: Float[Tensor, " item"]) -> Float[Tensor, "state joint"]:
        """Expectation over the successors of every pair."""
        total = torch.zeros(len(self.states) * self.world.spec.num_joint_actions).double()
        return total.index_add(0, self._pair, self._prob * payoff).view(len(self.states), -1)

    def _attainment(
        self, goal: int, after: Float[Tensor, " state"]
    ) -> Float[Tensor, "state joint"]:
        """E[1 if the goal is achieved, else the discounted value after]."""
        later = self._theory.gamma_h**self._duration * after[self._next]
        return self._expected(torch.where(self._achieved[self._next, goal], 1.0, later))

    def _before(self, after: Values | None, steps_left: int) -> Values:
        theory, spec, size = self._theory, self.world.spec, len(self.states)
        zero = torch.zeros(size, len(spec.goals)).double()
        v_m_after = zero if after is None else after.v_m
        v_e_after = zero if after is None else after.v_e
        v_r_after = torch.full((size,), theory.terminal_value, dtype=torch.float64)
        if after is not None:
            v_r_after = torch.where(self._live, after.v_r, v_r_after)
        v_m, policy = self._phase_1(v_m_after, steps_left)
        marginal = self._marginals(policy)

        q = self._expected(theory.gamma_r**self._duration * v_r_after[self._next])
        humans = self._product({h: marginal[h] for h in spec.humans})
        q_r, robot_allowed = self._by_robot(humans * q)
        policy_r = robot_policy(
            q_r.where(robot_allowed, -torch.ones(())), theory.beta_r, robot_allowed
        )
        chosen = policy_r.nan_to_num()[:, self._index(spec.robots)]
        v_e = zero.clone()
        for g, goal in enumerate(spec.goals):
            own = {h: marginal[h] for h in spec.humans} | {goal.human: policy[:, g]}
            v_e[:, g] = (chosen * self._product(own) * self._attainment(g, v_e_after[:, g])).sum(1)
        weight = torch.tensor([goal.weight for goal in spec.goals], dtype=torch.float64)
        x_h = torch.stack(
            [
                human_power(v_e[:, list(own)], weight[list(own)], theory.zeta, theory.x_agg)
                for own in map(spec.goals_of, spec.humans)
            ],
            1,
        )
        u_r = robot_reward(x_h, theory.xi, theory.eta, theory.u_agg)
        rho = -math.log(theory.gamma_r)
        lasting = torch.tensor(
            [reward_weight(rho, duration, theory.accrual) for duration in self._duration.tolist()],
            dtype=torch.float64,
        )
        accrued = (chosen * humans * self._expected(lasting)).sum(1)
        v_r = u_r * accrued + (policy_r * q_r).nan_to_num().sum(1)
        return Values(v_m, policy, v_e, x_h, u_r, q_r, policy_r, v_r)

    def _phase_1(
        self, after: Float[Tensor, "state goal"], steps_left: int
    ) -> tuple[Float[Tensor, "state goal"], Float[Tensor, "state goal action"]]:
        spec = self.world.spec
        v_m = torch.zeros(len(self.states), len(spec.goals)).double()
        policy = torch.zeros(*v_m.shape, max(spec.num_actions)).double()
        if self._prior is not None:
            policy[self._live] = self._prior.policy(self.states[self._live], steps_left).double()
            return v_m, policy
        uniform = self._allowed.double() / self._allowed.sum(2, keepdim=True).clamp(min=1)
        for g, goal in enumerate(spec.goals):
            h = goal.human
            payoff = self._attainment(g, after[:, g])
            # For each joint action of the humans the worst one of the robots.
            index = self._index(spec.humans)
            payoff = payoff.where(self._possible, torch.tensor(float("inf")).double())
            number = int(index.max()) + 1
            worst = torch.stack([payoff[:, index == k].amin(1) for k in range(number)], 1)
            others = {k: uniform[:, k] for k in spec.humans if k != h}
            chance = torch.zeros_like(worst)
            chance[:, index] = self._product(others)
            weighed = torch.where(chance > 0, chance * worst, 0.0)
            q = torch.zeros(len(self.states), max(spec.num_actions)).double()
            own = torch.zeros_like(index[: worst.shape[1]])
            own[index] = self._digit[h]
            q = q.index_add(1, own, weighed)
            allowed = self._allowed[:, h]
            beta = torch.full((len(self.states),), float(self._theory.beta_h), dtype=torch.float64)
            chosen = human_policy(q.where(allowed, torch.zeros(())), beta, allowed).nan_to_num()
            done = self._achieved[:, g]
            first = torch.zeros_like(chosen)
            first[:, 0] = 1.0
            policy[:, g] = torch.where(done[:, None], first, chosen)
            v_m[:, g] = (
                (chosen * q.where(allowed, torch.zeros(()))).sum(1).where(~done, torch.zeros(()))
            )
        return v_m, policy

    def _marginals(self, policy: Float[Tensor, "state goal action"]) -> dict[int, Tensor]:
        """Each human's policy, averaged over its goals by weight."""
        spec = self.world.spec
        marginal = {}
        for h in spec.humans:
            own = list(spec.goals_of(h))
            weight = torch.tensor([spec.goals[g].weight for g in own], dtype=torch.float64)
            marginal[h] = (policy[:, own] * weight[:, None]).sum(1) / weight.sum()
        return marginal

    def _product(self, policies: dict[int, Tensor]) -> Float[Tensor, "state joint"]:
        """Probability of the given agents' part of every joint action."""
        joint = torch.ones(len(self.states), self.world.spec.num_joint_actions).double()
        for agent, policy in policies.items():
            joint = joint * policy[:, self._digit[agent]]
        return joint

    def _index(self, agents: Sequence[int]) -> Int[Tensor, " joint"]:
        """Index of some agents' part of every joint action, the first of them fastest."""
        index, stride = torch.zeros(self.world.spec.num_joint_actions, dtype=torch.long), 1
        for agent in agents:
            index = index + stride * self._digit[agent]
            stride *= self.world.spec.num_actions[agent]
        return index

    def _by_robot(self, joint: Float[Tensor, "state joint"]) -> tuple[Tensor, Tensor]:
        """Sums over the humans' actions, and which joint robot actions are available."""
        index = self._index(self.world.spec.robots)
        number = int(index.max()) + 1
        total = joint.new_zeros(len(joint), number).index_add(1, index, joint)
        count = torch.zeros(len(joint), number).index_add(1, index, self._possible.float())
        return total, count > 0


def reachable(world: WorldModel) -> tuple[Int[Tensor, "state word"], Int[Tensor, " item"]]:
    """States within the horizon, and the position of each of their successors among them.

    Successors of states first met at the horizon may be missing; they point to state 0.
    """
    number = {tuple(world.initial_state().tolist()): 0}
    frontier = list(number)
    for _ in itertools.count() if world.spec.horizon is None else range(world.spec.horizon):
        if not frontier:
            break
        rows = torch.tensor(frontier, dtype=world.spec.state_dtype)
        found = [tuple(row) for row in world.transitions(rows).states.tolist()]
        frontier = [row for row in dict.fromkeys(found) if row not in number]
        number.update({row: len(number) + i for i, row in enumerate(frontier)})
    states = torch.tensor(list(number), dtype=world.spec.state_dtype)
    following = world.transitions(states).states.tolist()
    return states, torch.tensor([number.get(tuple(row), 0) for row in following], dtype=torch.long)
