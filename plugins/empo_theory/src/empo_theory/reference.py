"""The nine equations of the paper in plain Python, one state at a time; the oracle of all solvers.

Source: arXiv 2508.00159v2, Table 1. Works for any world with a horizon, or without one that ends by
itself. Nothing here is fast. The paper's (7) and (8) are ``x_agg: sum`` and ``u_agg: sum``.

``h`` is a human, ``g`` a position in ``spec.goals``, ``p`` a probability, ``d`` a duration. A joint
action is a number as in ``WorldModel.transitions``, to which agent ``k`` adds ``spec.strides[k]``
times its action; ``a_r`` is the share of the robots, ``a`` that of some humans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import torch
from torch import Tensor

from empo_core.protocols import HumanPrior, RobotPolicy, WorldModel
from empo_theory.parameters import CompleteTheory

State = tuple[int, ...]
Policy = dict[int, float]
OfGoal = Callable[[State, int], float]
"""A number that depends on the state and on the goal."""
Believed = Callable[[State, int, int], Sequence[tuple[float, Sequence[int]]]]
"""What a human believes of the others in a state, given its own action: probabilities and actions.

One action is there for each agent, -1 for the human itself and for robots.
"""
TIE = 1e-12
"""Values that differ from the best by no more, relative to values above 1, are best, too."""


@dataclass(frozen=True)
class Values:
    """Values and policies of a state: by goal, human, or share ``a_r`` of the joint action.

    ``v_m`` is NaN where a prior says how humans act; where a policy says how robots act, ``q_r``
    and ``pi_r`` have only what they may do.
    """

    v_m: dict[int, float]
    pi_h: dict[int, Policy]
    v_e: dict[int, float]
    x_h: dict[int, float]
    u_r: float
    q_r: dict[int, float]
    pi_r: Policy
    v_r: float


Outcome = tuple[float, float, Values, list[bool]]
"""Probability and duration of a transition, values in the next state, and which goals that has."""


class Reference:
    """Values of a world, computed when they are first asked for.

    Args:
        world: A world that has a horizon, or ends by itself.
        theory: Parameters of the equations.
        prior: How humans act; None computes it by equations (1)-(3).
        habit: The habitual policy of equation (2); None takes every available action alike.
        robots: How robots act; None computes it by equations (4) and (5).
        boundary: Values that are known already, by state and steps left.
        min_power: X_h counts as at least this in equation (8).
        believed: What humans believe of each other in (1); None takes available actions alike.
        beta_h: Rationality in (2), in place of the theory's.
        nu: Weight of the habit in (2), in place of the theory's.
    """

    def __init__(
        self, world: WorldModel, theory: CompleteTheory,
        prior: HumanPrior | None = None, habit: HumanPrior | None = None,
        robots: RobotPolicy | None = None, *,
        boundary: Mapping[tuple[State, int | None], Values] | None = None, min_power: float = 0.0,
        believed: Believed | None = None, beta_h: OfGoal | None = None, nu: OfGoal | None = None,
    ) -> None:  # fmt: skip
        self._world, self._theory, self._prior, self._habit = world, theory, prior, habit
        self._robots, self._min_power, self._believed = robots, min_power, believed
        self._beta_h = beta_h or (lambda state, g: float(theory.beta_h))
        self._nu = nu or (lambda state, g: theory.nu)
        self._values = dict(boundary or {})

    def at(self, state: State, steps_left: int | None) -> Values:
        """Values of a state, given as the words of its row, with some steps left.

        ``steps_left`` is None where the world has no horizon.
        """
        if (state, steps_left) not in self._values:
            self._values[state, steps_left] = self._solve(state, steps_left)
        return self._values[state, steps_left]

    def _solve(self, state: State, steps_left: int | None) -> Values:
        world, spec, theory = self._world, self._world.spec, self._theory
        strides = spec.strides
        row = torch.tensor([state], dtype=spec.state_dtype)
        available = [[a for a, is_available in enumerate(agent) if is_available]
                     for agent in world.available(row)[0].tolist()]  # fmt: skip
        if steps_left == 0 or not all(available):
            zeros = dict.fromkeys(range(len(spec.goals)), 0.0)
            return Values(zeros, {}, zeros, {}, 0.0, {}, {}, theory.terminal_value)
        even = [dict.fromkeys(actions, 1 / len(actions)) for actions in available]
        outcomes = self._outcomes(row, None if steps_left is None else steps_left - 1)

        def profiles(policies: dict[int, Policy]) -> list[tuple[int, float]]:
            """What agents that act independently may do together, and with which probability."""
            return [
                (sum(strides[k] * a for k, (a, _) in zip(policies, choice, strict=True)),
                 math.prod(p for _, p in choice))
                for choice in product(*(policy.items() for policy in policies.values()))
                if all(p for _, p in choice)
            ]  # fmt: skip

        def expected_payoff(joint: int, g: int, value: str) -> float:
            """E over s' of U + (1 - U) gamma_h^d V: what reaching s' is worth to a goal."""
            return sum((p * (1.0 if achieved[g] else theory.gamma_h**d * getattr(after, value)[g])
                        for p, d, after, achieved in outcomes[joint]), 0.0)  # fmt: skip

        def others(h: int, a_h: int) -> list[tuple[int, float]]:
            """What a human expects of the other humans: even chances, or what it believes."""
            if self._believed is None:
                return profiles({k: even[k] for k in spec.humans if k != h})
            return [(sum(strides[k] * a for k, a in enumerate(actions) if a >= 0), p)
                    for p, actions in self._believed(state, h, a_h)]  # fmt: skip

        time = torch.tensor([steps_left or 1])
        prior = None if self._prior is None else self._prior.policy(row, time)[0].tolist()
        pi_r = None if self._robots is None else self._robot_policy(self._robots.policy(row, time))
        may = [a_r for a_r, _ in profiles({r: even[r] for r in spec.robots})]
        robots = pi_r or may
        extreme = min if theory.robot_model == "pessimistic" else max
        v_m, pi_h = dict[int, float](), dict[int, Policy]()
        for g, goal in enumerate(spec.goals):
            h = goal.human
            if prior is not None:
                v_m[g], pi_h[g] = math.nan, {a_h: prior[g][a_h] for a_h in available[h]}
                continue
            q_m = {a_h: sum(p * extreme(expected_payoff(a + strides[h] * a_h + a_r, g, "v_m")
                                        for a_r in may) for a, p in others(h, a_h))
                   for a_h in available[h]}  # (1)  # fmt: skip
            pi_h[g] = self._human_policy(q_m, state, steps_left, g)  # (2)
            v_m[g] = sum(pi_h[g][a_h] * q_m[a_h] for a_h in q_m)  # (3)
            if world.achieved(row)[0, g]:  # It was paid for on arrival. V_h^e is not 0 then.
                v_m[g], pi_h[g] = 0.0, {a_h: float(a_h == available[h][0]) for a_h in q_m}

        mean = dict[int, Policy]()  # Of each human over its goals.
        for h in spec.humans:
            weight = {g: spec.goals[g].weight for g in spec.goals_of(h)}
            mean[h] = {a_h: sum(weight[g] * pi_h[g][a_h] for g in weight) / sum(weight.values())
                       for a_h in available[h]}  # fmt: skip
        ends = {a_r: [(p * p_after, d, after.v_r) for a, p in profiles(mean)
                      for p_after, d, after, _ in outcomes[a + a_r]] for a_r in robots}  # fmt: skip
        q_r = {a_r: sum(p * theory.gamma_r**d * v for p, d, v in ends[a_r])
               for a_r in robots}  # (4)  # fmt: skip
        if pi_r is None:
            pi_r = softmax({a_r: -theory.beta_r * math.log(-q) for a_r, q in q_r.items()})  # (5)
        v_e = {g: sum(pi_r[a_r] * p * expected_payoff(a + a_r, g, "v_e")
                      for a, p in profiles(mean | {goal.human: pi_h[g]}) for a_r in robots)
               for g, goal in enumerate(spec.goals)}  # (6)  # fmt: skip
        weights = [goal.weight if theory.x_agg == "weighted" else 1.0 for goal in spec.goals]
        x_h = {h: sum(weights[g] * v_e[g] ** theory.zeta for g in spec.goals_of(h))
               for h in spec.humans}  # (7)  # fmt: skip
        powers = [max(x, self._min_power) for x in x_h.values()]
        lack = sum(x**-theory.xi if x else math.inf for x in powers)
        u_r = -((lack / (len(x_h) if theory.u_agg == "mean" else 1)) ** theory.eta)  # (8)
        accrued = {a_r: self._accrued([(p, d) for p, d, _ in ends[a_r]]) for a_r in robots}
        v_r = sum(pi_r[a_r] * (u_r * accrued[a_r] + q_r[a_r]) for a_r in robots)  # (9)
        return Values(v_m, pi_h, v_e, x_h, u_r, q_r, pi_r, v_r)

    def _outcomes(self, row: Tensor, left: int | None) -> list[list[Outcome]]:
        """What each joint action may lead to from a state."""
        following = self._world.transitions(row)
        duration = following.duration
        outcomes = [
            (p, d, self.at(tuple(after), left), achieved)
            for p, d, after, achieved in zip(
                following.prob.tolist(),
                [1.0] * len(following.prob) if duration is None else duration.tolist(),
                following.states.tolist(),
                self._world.achieved(following.states).tolist(),
                strict=True,
            )
        ]
        return [outcomes[i:j] for i, j in pairwise(following.offsets.tolist())]

    def _human_policy(self, q_m: Policy, state: State, steps_left: int | None, g: int) -> Policy:
        """Equation (2): Boltzmann-rational, blended with a habit."""
        beta, nu, best = self._beta_h(state, g), self._nu(state, g), max(q_m.values())
        if math.isinf(beta):
            ties = [a_h for a_h, q in q_m.items() if q >= best - TIE * max(1.0, abs(best))]
            rational = {a_h: (a_h in ties) / len(ties) for a_h in q_m}
        else:
            rational = softmax({a_h: beta * (q - best) for a_h, q in q_m.items()})
        habit = dict.fromkeys(q_m, 1 / len(q_m))
        if self._habit is not None:
            row = torch.tensor([state], dtype=self._world.spec.state_dtype)
            policy = self._habit.policy(row, torch.tensor([steps_left or 1]))[0, g]
            habit = dict(enumerate(policy.tolist()))
        return {a_h: nu * habit[a_h] + (1 - nu) * rational[a_h] for a_h in q_m}

    def _robot_policy(self, chances: Tensor) -> Policy:
        """What robots may do, by the probability [1 robot_action] of each joint action."""
        spec = self._world.spec
        shares = ([spec.strides[r] * a for a in range(spec.num_actions[r])]
                  for r in reversed(spec.robots))  # The first robot counts fastest.  # fmt: skip
        policy = zip(product(*shares), chances[0].tolist(), strict=True)
        return {sum(actions): p for actions, p in policy if p}

    def _accrued(self, ends: Sequence[tuple[float, float]]) -> float:
        """What U_r counts in (9): once, or the mean integral of gamma_r^t over the transition."""
        rho = -math.log(self._theory.gamma_r)
        if self._theory.accrual == "discrete":
            return 1.0
        return sum(p * (d if rho == 0 else -math.expm1(-rho * d) / rho) for p, d in ends)


def softmax(logits: Policy) -> Policy:
    """Probabilities proportional to the exponentials."""
    largest = max(logits.values())
    powers = {a: math.exp(logit - largest) for a, logit in logits.items()}
    return {a: power / sum(powers.values()) for a, power in powers.items()}
