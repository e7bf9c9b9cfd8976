"""Values in one timed state at a time, as the equations say: slow, and easy to believe.

Equations are those of the paper: pi_r (5), X_h (7), U_r (8), V_r (9). Where an episode is over,
V_r is ``terminal_value`` and V_h^e is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.protocols import ValueNetwork
from empo_core.types import Quantity, ValueQuery, WorldSpec
from empo_phase2.experience import States
from empo_phase2.goal_index import GoalIndex
from empo_phase2.params import Phase2Theory
from empo_phase2.warmup import ScheduledTheory

LookUp = Callable[[Int[Tensor, " distinct"]], States]


@dataclass(frozen=True, slots=True)
class StateValues:
    """Outputs of all networks in one timed state; None for quantities that are not learned.

    Attributes:
        layout: The world it is in.
        is_over: Whether the episode is over.
        achieved: Whether each slot's goal is achieved.
        available: Whether each joint robot action exists.
        v_h_e: V_h^e of each slot; 0 where the slot has no goal.
        x_h: X_h of each human.
        u_r: U_r.
        q_r: Q_r of each joint robot action.
        v_r: V_r.
    """

    layout: int
    is_over: bool
    achieved: list[bool]
    available: list[bool]
    v_h_e: list[float]
    x_h: list[float] | None
    u_r: float | None
    q_r: list[float] | None
    v_r: float | None


@dataclass(frozen=True)
class ReferenceValues:
    """The equations for one timed state.

    Attributes:
        spec: What state rows look like.
        goals: The goals, by slot.
        theory: Exponents and conventions.
        networks: The learned quantities.
        setting: Discounts and the exponent of the policy now.
    """

    spec: WorldSpec
    goals: GoalIndex
    theory: Phase2Theory
    networks: Mapping[Quantity, ValueNetwork]
    setting: ScheduledTheory

    @cached_property
    def owner(self) -> list[int]:
        """Position of each slot's human."""
        return [int(human) for human in self.goals.human]

    @cached_property
    def goal(self) -> list[list[int]]:
        """Goal of each slot in each world; negative where there is none."""
        return [[int(goal) for goal in row] for row in self.goals.goal]

    @cached_property
    def weight(self) -> list[list[float]]:
        """Its weight."""
        return [[float(weight) for weight in row] for row in self.goals.weight]

    @torch.no_grad()
    def asked_one_by_one(
        self, timed_states: Sequence[tuple[int, int]], look_up: LookUp
    ) -> list[StateValues]:
        """Values in each timed state, from one call of each network for each of them."""
        return [self.asked_together([one], look_up)[0] for one in timed_states]

    @torch.no_grad()
    def asked_together(
        self, timed_states: Sequence[tuple[int, int]], look_up: LookUp
    ) -> list[StateValues]:
        """The same from one call of each network."""
        states = look_up(torch.tensor([state for state, _ in timed_states]))
        left = torch.tensor([steps for _, steps in timed_states])
        layout, humans = states.layout.tolist(), self.spec.humans
        owner, goals = self.owner, self.goal
        asked_goals = [
            (i, slot)
            for i in range(len(timed_states))
            for slot in range(len(owner))
            if goals[layout[i]][slot] >= 0
        ]
        asked_humans = [(i, k) for i in range(len(timed_states)) for k in range(len(humans))]
        plain = ValueQuery(states.rows, left)
        questions: dict[Quantity, ValueQuery] = {
            "v_h_e": ValueQuery(
                states.rows,
                left,
                human=torch.tensor([humans[owner[slot]] for _, slot in asked_goals]),
                goal=torch.tensor([goals[layout[i]][slot] for i, slot in asked_goals]),
                state=torch.tensor([i for i, _ in asked_goals]),
            ),
            "x_h": ValueQuery(
                states.rows,
                left,
                human=torch.tensor([humans[k] for _, k in asked_humans]),
                state=torch.tensor([i for i, _ in asked_humans]),
            ),
            "u_r": plain,
            "q_r": plain,
            "v_r": plain,
        }
        answers = {q: net(questions[q]).tolist() for q, net in self.networks.items()}
        v_h_e = [[0.0] * len(owner) for _ in timed_states]
        for (i, slot), answer in zip(asked_goals, answers["v_h_e"], strict=True):
            v_h_e[i][slot] = answer[0]
        each = len(humans)
        terminal, achieved = states.terminal.tolist(), states.achieved.tolist()
        available, steps = states.available.tolist(), left.tolist()
        return [
            StateValues(
                layout=layout[i],
                is_over=terminal[i] or steps[i] == 0,
                achieved=achieved[i],
                available=available[i],
                v_h_e=v_h_e[i],
                x_h=[x[0] for x in answers["x_h"][i * each : (i + 1) * each]]
                if "x_h" in answers
                else None,
                u_r=answers["u_r"][i][0] if "u_r" in answers else None,
                q_r=answers["q_r"][i] if "q_r" in answers else None,
                v_r=answers["v_r"][i][0] if "v_r" in answers else None,
            )
            for i in range(len(timed_states))
        ]

    def v_h_e(self, at: StateValues, slot: int) -> float:
        """V_h^e of a slot."""
        return 0.0 if at.is_over else at.v_h_e[slot]

    def power(self, at: StateValues, human: int) -> float:
        """Equation (7): sum over g of w_g V_h^e(g)^zeta."""
        total = 0.0
        for slot, owner in enumerate(self.owner):
            if owner != human or self.goal[at.layout][slot] < 0:
                continue
            weighted = self.theory.x_agg == "weighted"
            weight = self.weight[at.layout][slot] if weighted else 1.0
            total += weight * self.v_h_e(at, slot) ** self.theory.zeta
        return total

    def reward(self, at: StateValues) -> float:
        """Equation (8): -(mean or sum over h of X_h^-xi)^eta, no X_h below its floor."""
        total = 0.0
        for human in range(len(self.spec.humans)):
            x_h = self.power(at, human) if at.x_h is None else at.x_h[human]
            total += max(x_h, self.theory.x_h_floor) ** -self.theory.xi
        if self.theory.u_agg == "mean":
            total /= len(self.spec.humans)
        return -(total**self.theory.eta)

    def u_r(self, at: StateValues) -> float:
        """U_r, learned or in closed form."""
        return self.reward(at) if at.u_r is None else at.u_r

    def policy(self, q_r: Sequence[float], available: Sequence[bool]) -> list[float]:
        """Equation (5): pi_r proportional to (-Q_r)^-beta_r."""
        logits = [
            -self.setting.beta_r * math.log(-q) if ok else -math.inf
            for q, ok in zip(q_r, available, strict=True)
        ]
        largest = max(logits)
        powers = [math.exp(logit - largest) for logit in logits]
        return [each / sum(powers) for each in powers]

    def mean_value(self, at: StateValues, q_r: Sequence[float], pi_r: Sequence[float]) -> float:
        """Equation (9): U_r + sum over a of pi_r(a) Q_r(a)."""
        mean = 0.0
        for pi, q in zip(pi_r, q_r, strict=True):
            if pi > 0:
                mean += pi * q
        return self.u_r(at) + mean

    def v_r(self, at: StateValues) -> float:
        """V_r, learned or in closed form."""
        if at.is_over:
            return self.theory.terminal_value
        if at.v_r is not None:
            return at.v_r
        assert at.q_r is not None, "Q_r or V_r must be learned"
        return self.mean_value(at, at.q_r, self.policy(at.q_r, at.available))
