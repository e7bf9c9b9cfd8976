"""The nine equations of the paper in plain Python, one state at a time; the oracle of all solvers.

Source: arXiv 2508.00159v2, Table 1. Works for any world with a horizon, or without one that ends by
itself. Nothing here is fast. The paper's (7) and (8) are ``x_agg: sum`` and ``u_agg: sum``. What
its successor (arXiv 2608.08240) has besides is marked (F): ``counting: presence``, moments of the
robot's cost up to the order ``rho``, and robots that may fail for good.

``h`` is a human, ``g`` a position in ``spec.goals``, ``p`` a probability, ``d`` a duration. A joint
action is a number as in ``WorldModel.transitions``, to which agent ``k`` adds ``spec.strides[k]``
times its action; ``a_r`` is the share of the robots, ``a`` that of some humans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from statistics import fmean as mean

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
    and ``pi_r`` have only what they may do. ``moments`` are those of the robot's cost of orders 2
    and more.
    """

    v_m: dict[int, float]
    pi_h: dict[int, Policy]
    v_e: dict[int, float]
    x_h: dict[int, float]
    u_r: float
    q_r: dict[int, float]
    pi_r: Policy
    v_r: float
    moments: tuple[float, ...] = ()

    def moment(self, order: int) -> float:
        """The mean of the robot's cost to a power."""
        return (1.0, -self.v_r, *self.moments)[order]


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
        counts: The humans that (8) counts, by agent; None takes all.
        rate: The chance per unit of time that working robots fail for good, once they have acted.
        null: The share of the joint action that failed robots take; their first by default.
        failed: They have failed, and take it.
    """

    def __init__(
        self, world: WorldModel, theory: CompleteTheory,
        prior: HumanPrior | None = None, habit: HumanPrior | None = None,
        robots: RobotPolicy | None = None, *,
        boundary: Mapping[tuple[State, int | None], Values] | None = None, min_power: float = 0.0,
        believed: Believed | None = None, beta_h: OfGoal | None = None, nu: OfGoal | None = None,
        counts: Sequence[int] | None = None, rate: float = 0.0, null: int = 0, failed: bool = False,
    ) -> None:  # fmt: skip
        self._world, self._theory, self._prior, self._habit = world, theory, prior, habit
        self._robots, self._min_power, self._believed = robots, min_power, believed
        self._beta_h = beta_h or (lambda state, g: float(theory.beta_h))
        self._nu = nu or (lambda state, g: theory.nu)
        self._values = dict(boundary or {})
        self._counts = world.spec.humans if counts is None else counts
        self._rate, self._only = rate, [null] if failed else None
        self._failed = None if not rate else Reference(
            world, theory, prior, habit, min_power=min_power, believed=believed, beta_h=beta_h,
            nu=nu, counts=counts, null=null, failed=True,
        )  # fmt: skip

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
        achieved_here = world.achieved(row)[0].tolist()
        if steps_left == 0 or not all(available):
            return self._end(achieved_here, steps_left)
        even = [dict.fromkeys(actions, 1 / len(actions)) for actions in available]
        outcomes = self._outcomes(row, None if steps_left is None else steps_left - 1)
        is_presence, rho = theory.counting == "presence", theory.rho

        def profiles(policies: dict[int, Policy]) -> list[tuple[int, float]]:
            """What agents that act independently may do together, and with which probability."""
            return [
                (sum(strides[k] * a for k, (a, _) in zip(policies, choice, strict=True)),
                 math.prod(p for _, p in choice))
                for choice in product(*(policy.items() for policy in policies.values()))
                if all(p for _, p in choice)
            ]  # fmt: skip

        def expected_payoff(joint: int, g: int, value: str) -> float:
            """E over s' of U + (1 - U) gamma_h^d V: what reaching s' is worth to a goal.

            With presence (F), it is gamma_h^d (U + (1 - U) V), and V is 1 where U is.
            """
            return sum((p * (1.0 if achieved[g] and not is_presence
                             else theory.gamma_h**d * getattr(after, value)[g])
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
        may = self._only or [a_r for a_r, _ in profiles({r: even[r] for r in spec.robots})]
        robots = pi_r or may
        expected = {"pessimistic": min, "optimistic": max, "even": mean}[theory.robot_model]
        v_m, pi_h = dict[int, float](), dict[int, Policy]()
        for g, goal in enumerate(spec.goals):
            h = goal.human
            if prior is not None:
                v_m[g], pi_h[g] = math.nan, {a_h: prior[g][a_h] for a_h in available[h]}
                continue
            q_m = {a_h: sum(p * expected([expected_payoff(a + strides[h] * a_h + a_r, g, "v_m")
                                          for a_r in may]) for a, p in others(h, a_h))
                   for a_h in available[h]}  # (1)  # fmt: skip
            pi_h[g] = self._human_policy(q_m, state, steps_left, g)  # (2)
            v_m[g] = sum(pi_h[g][a_h] * q_m[a_h] for a_h in q_m)  # (3)
            if achieved_here[g]:  # It was paid for on arrival. V_h^e is not 0 then.
                v_m[g] = float(is_presence)
                pi_h[g] = {a_h: float(a_h == available[h][0]) for a_h in q_m}

        averaged = dict[int, Policy]()  # Of each human over its goals.
        for h in spec.humans:
            weight = {g: spec.goals[g].weight for g in spec.goals_of(h)}
            averaged[h] = {a_h: sum(weight[g] * pi_h[g][a_h] for g in weight) / sum(weight.values())
                           for a_h in available[h]}  # fmt: skip
        ends = {a_r: [(p * p_after, d, after) for a, p in profiles(averaged)
                      for p_after, d, after, _ in outcomes[a + a_r]] for a_r in robots}  # fmt: skip
        q_r = {a_r: -sum(p * theory.gamma_r**(rho * d) * after.moment(rho)
                         for p, d, after in ends[a_r]) ** (1 / rho)
               for a_r in robots}  # (4)  # fmt: skip
        if pi_r is None:
            pi_r = softmax({a_r: -theory.beta_r * rho * math.log(-q)
                            for a_r, q in q_r.items()})  # (5)  # fmt: skip
        v_e = {g: 1.0 if is_presence and achieved_here[g] else
                  sum(pi_r[a_r] * p * expected_payoff(a + a_r, g, "v_e")
                      for a, p in profiles(averaged | {goal.human: pi_h[g]}) for a_r in robots)
               for g, goal in enumerate(spec.goals)}  # (6)  # fmt: skip
        x_h, u_r = self._powers(v_e)  # (7), (8)
        moments = [
            sum(pi_r[a_r] * p * (self._accrued(d) * -u_r + theory.gamma_r**d * -after.v_r)
                for a_r in robots for p, d, after in ends[a_r])
            if order == 1 else
            sum(pi_r[a_r] * p * math.comb(order, j) * (self._accrued(d) * -u_r) ** (order - j)
                * theory.gamma_r ** (j * d) * after.moment(j)
                for a_r in robots for p, d, after in ends[a_r] for j in range(order + 1))
            for order in range(1, rho + 1)
        ]  # (9), and (F)  # fmt: skip
        return Values(v_m, pi_h, v_e, x_h, u_r, q_r, pi_r, -moments[0], tuple(moments[1:]))

    def _end(self, achieved: list[bool], steps_left: int | None) -> Values:
        """The values of a state where the episode is over, by the goals that it achieves."""
        theory, goals = self._theory, range(len(self._world.spec.goals))
        if theory.counting == "arrival":
            zeros, v_r = dict.fromkeys(goals, 0.0), theory.terminal_value
            moments = tuple((-v_r) ** order for order in range(2, theory.rho + 1))
            return Values(zeros, {}, zeros, {}, 0.0, {}, {}, v_r, moments)
        attained = {g: float(achieved[g]) for g in goals}  # (F), from here on.
        x_h, u_r = self._powers(attained)
        if theory.early_end == "stop":
            steps = 1.0
        elif steps_left is None:
            steps = 1 / (1 - theory.gamma_r)
        else:
            steps = sum(theory.gamma_r**step for step in range(steps_left + 1))
        v_r = u_r * self._accrued(1.0) * steps
        moments = tuple((-v_r) ** order for order in range(2, theory.rho + 1))
        return Values(attained, {}, attained, x_h, u_r, {}, {}, v_r, moments)

    def _powers(self, v_e: dict[int, float]) -> tuple[dict[int, float], float]:
        """X_h and U_r, (7) and (8)."""
        theory, spec = self._theory, self._world.spec
        weights = [goal.weight if theory.x_agg == "weighted" else 1.0 for goal in spec.goals]
        x_h = {h: sum(weights[g] * v_e[g] ** theory.zeta for g in spec.goals_of(h))
               for h in spec.humans}  # (7)  # fmt: skip
        powers = [max(x, self._min_power) for h, x in x_h.items() if h in self._counts]
        lack = sum(x**-theory.xi if x else math.inf for x in powers)
        people = len(powers) if theory.u_agg == "mean" else 1
        return x_h, -((lack / people) ** theory.eta)  # (8)

    def _outcomes(self, row: Tensor, left: int | None) -> list[list[Outcome]]:
        """What each joint action may lead to from a state."""
        following = self._world.transitions(row)
        duration = following.duration
        outcomes = [
            (p, d, self._after(tuple(after), left, d), achieved)
            for p, d, after, achieved in zip(
                following.prob.tolist(),
                [1.0] * len(following.prob) if duration is None else duration.tolist(),
                following.states.tolist(),
                self._world.achieved(following.states).tolist(),
                strict=True,
            )
        ]
        return [outcomes[i:j] for i, j in pairwise(following.offsets.tolist())]

    def _after(self, state: State, left: int | None, d: float) -> Values:
        """The values of a next state, for one who knows the chance that robots fail until then."""
        working = self.at(state, left)
        if self._failed is None:
            return working
        failed, chance = self._failed.at(state, left), 1 - (1 - self._rate) ** d  # (F)

        def mixed(value: float, other: float) -> float:
            return (1 - chance) * value + chance * other

        return replace(
            working,
            v_m={g: mixed(v, failed.v_m[g]) for g, v in working.v_m.items()},
            v_e={g: mixed(v, failed.v_e[g]) for g, v in working.v_e.items()},
            v_r=mixed(working.v_r, failed.v_r),
            moments=tuple(map(mixed, working.moments, failed.moments)),
        )

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

    def _accrued(self, d: float) -> float:
        """What U_r counts in (9): once, or the integral of gamma_r^t over the transition."""
        rho = -math.log(self._theory.gamma_r)
        if self._theory.accrual == "discrete":
            return 1.0
        return d if rho == 0 else -math.expm1(-rho * d) / rho


def softmax(logits: Policy) -> Policy:
    """Probabilities proportional to the exponentials."""
    largest = max(logits.values())
    powers = {a: math.exp(logit - largest) for a, logit in logits.items()}
    return {a: power / sum(powers.values()) for a, power in powers.items()}
