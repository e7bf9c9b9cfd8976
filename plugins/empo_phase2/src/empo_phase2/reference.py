"""The learner's targets one number at a time, as the equations say: slow, and easy to believe.

Tests compare ``targets`` with it, and benchmarks measure both. Equations are those of the
paper: Q_r (4), pi_r (5), V_h^e (6), X_h (7), U_r (8), V_r (9). Where an episode is over,
V_r is ``terminal_value`` and V_h^e is 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.protocols import ValueNetwork
from empo_core.types import Quantity, ValueQuery, WorldSpec
from empo_phase2.experience import States, Transitions
from empo_phase2.goal_index import GoalIndex
from empo_phase2.params import Theory
from empo_phase2.targets import Setting
from empo_phase2.trajectories import Paths

LookUp = Callable[[Int[Tensor, " distinct"]], States]


@dataclass(frozen=True, slots=True)
class Moment:
    """One situation, and what the networks say about it; None where nothing is learned.

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


@dataclass(frozen=True, slots=True)
class Listed:
    """``Transitions`` as lists of numbers."""

    state: list[int]
    steps_left: list[int]
    human_policy: list[list[list[float]]]
    goal: list[list[int]]
    action: list[int]
    offsets: list[int]
    successor: list[int]
    prob: list[float]

    @classmethod
    def of(cls, batch: Transitions) -> Listed:
        """The same transitions."""
        return cls(**{f.name: getattr(batch, f.name).tolist() for f in fields(cls)})

    @property
    def samples_humans(self) -> bool:
        """Whether successors are those of one sampled profile."""
        return not self.human_policy[0]


@dataclass(frozen=True, slots=True)
class PlainTargets:
    """What ``BatchTargets`` holds, but nothing is None: targets nobody needs are there too."""

    q_r: Float[Tensor, "transition robot_action"]
    q_r_weight: Float[Tensor, "transition robot_action"]
    pi_r: Float[Tensor, "transition robot_action"]
    v_h_e: Float[Tensor, "transition slot"]
    v_h_e_weight: Float[Tensor, "transition slot"]
    x_h: Float[Tensor, "transition human"]
    u_r: Float[Tensor, " transition"]
    v_r: Float[Tensor, " transition"]


Moments = Mapping[tuple[int, ...], Moment]
"""By the keys of ``Reference.occasions``."""

SOURCE, ITEM, STEP = range(3)


@dataclass(frozen=True)
class Reference:
    """The equations, and what they need to know.

    Attributes:
        spec: What state rows look like.
        slots: The goals.
        theory: Exponents and conventions.
        networks: The learned quantities.
        setting: Discounts and the exponent of the policy now.
        model_based: Whether all robot actions have successors; else only the taken one.
    """

    spec: WorldSpec
    slots: GoalIndex
    theory: Theory
    networks: Mapping[Quantity, ValueNetwork]
    setting: Setting
    model_based: bool

    @cached_property
    def owner(self) -> list[int]:
        """Position of each slot's human."""
        return [int(human) for human in self.slots.human]

    @cached_property
    def goal(self) -> list[list[int]]:
        """Goal of each slot in each world; negative where there is none."""
        return [[int(goal) for goal in row] for row in self.slots.goal]

    @cached_property
    def weight(self) -> list[list[float]]:
        """Its weight."""
        return [[float(weight) for weight in row] for row in self.slots.weight]

    # Which situations occur.

    def occasions(
        self, batch: Listed, paths: Paths | None = None
    ) -> dict[tuple[int, ...], tuple[int, int]]:
        """State id and remaining steps wherever one occurs in a batch.

        Keys are ``(SOURCE, transition)``, ``(ITEM, item)`` and ``(STEP, transition, step)``.
        """
        found: dict[tuple[int, ...], tuple[int, int]] = {}
        pairs_each = (len(batch.offsets) - 1) // len(batch.state)
        for t, left in enumerate(batch.steps_left):
            found[SOURCE, t] = (batch.state[t], left)
            first = batch.offsets[t * pairs_each]
            last = batch.offsets[(t + 1) * pairs_each]
            # Without a horizon no time passes.
            after = left if self.spec.horizon is None else left - 1
            for item in range(first, last):
                found[ITEM, item] = (batch.successor[item], after)
            for step in range(int(paths.length[t]) if paths else 0):
                assert paths is not None
                left_then = int(paths.steps_left[t, step])
                found[STEP, t, step] = (int(paths.state[t, step]), left_then)
        return found

    # What the networks say.

    @torch.no_grad()
    def asked_one_by_one(
        self, situations: Sequence[tuple[int, int]], look_up: LookUp
    ) -> list[Moment]:
        """What is known of each situation, from one call of each network for each of them."""
        return [self.asked_together([situation], look_up)[0] for situation in situations]

    @torch.no_grad()
    def asked_together(
        self, situations: Sequence[tuple[int, int]], look_up: LookUp
    ) -> list[Moment]:
        """The same from one call of each network."""
        states = look_up(torch.tensor([state for state, _ in situations]))
        left = torch.tensor([steps for _, steps in situations])
        layout, humans = states.layout.tolist(), self.spec.humans
        owner, goals = self.owner, self.goal
        asked_goals = [
            (i, slot)
            for i in range(len(situations))
            for slot in range(len(owner))
            if goals[layout[i]][slot] >= 0
        ]
        asked_humans = [(i, k) for i in range(len(situations)) for k in range(len(humans))]
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
        v_h_e = [[0.0] * len(owner) for _ in situations]
        for (i, slot), answer in zip(asked_goals, answers["v_h_e"], strict=True):
            v_h_e[i][slot] = answer[0]
        each = len(humans)
        terminal, achieved = states.terminal.tolist(), states.achieved.tolist()
        available, steps = states.available.tolist(), left.tolist()
        return [
            Moment(
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
            for i in range(len(situations))
        ]

    # The equations for one situation.

    def v_h_e(self, moment: Moment, slot: int) -> float:
        """V_h^e of a slot."""
        return 0.0 if moment.is_over else moment.v_h_e[slot]

    def power(self, moment: Moment, human: int) -> float:
        """Equation (7): sum over g of w_g V_h^e(g)^zeta."""
        total = 0.0
        for slot, owner in enumerate(self.owner):
            if owner != human or self.goal[moment.layout][slot] < 0:
                continue
            weighted = self.theory.x_agg == "weighted"
            weight = self.weight[moment.layout][slot] if weighted else 1.0
            total += weight * self.v_h_e(moment, slot) ** self.theory.zeta
        return total

    def reward(self, moment: Moment) -> float:
        """Equation (8): -(mean or sum over h of X_h^-xi)^eta, no X_h below its floor."""
        total = 0.0
        for human in range(len(self.spec.humans)):
            x_h = self.power(moment, human) if moment.x_h is None else moment.x_h[human]
            total += max(x_h, self.theory.x_h_floor) ** -self.theory.xi
        if self.theory.u_agg == "mean":
            total /= len(self.spec.humans)
        return -(total**self.theory.eta)

    def u_r(self, moment: Moment) -> float:
        """U_r, learned or in closed form."""
        return self.reward(moment) if moment.u_r is None else moment.u_r

    def policy(self, q_r: Sequence[float], available: Sequence[bool]) -> list[float]:
        """Equation (5): pi_r proportional to (-Q_r)^-beta_r."""
        logits = [
            -self.setting.beta_r * math.log(-q) if ok else -math.inf
            for q, ok in zip(q_r, available, strict=True)
        ]
        largest = max(logits)
        powers = [math.exp(logit - largest) for logit in logits]
        return [each / sum(powers) for each in powers]

    def mean_value(self, moment: Moment, q_r: Sequence[float], pi_r: Sequence[float]) -> float:
        """Equation (9): U_r + sum over a of pi_r(a) Q_r(a)."""
        mean = 0.0
        for pi, q in zip(pi_r, q_r, strict=True):
            if pi > 0:
                mean += pi * q
        return self.u_r(moment) + mean

    def v_r(self, moment: Moment) -> float:
        """V_r, learned or in closed form."""
        if moment.is_over:
            return self.theory.terminal_value
        if moment.v_r is not None:
            return moment.v_r
        assert moment.q_r is not None, "Q_r or V_r must be learned"
        return self.mean_value(moment, moment.q_r, self.policy(moment.q_r, moment.available))

    # What the humans do.

    def profiles(self, batch: Listed) -> list[tuple[int, ...]]:
        """The action of each human in each profile; one that nobody reads where sampled."""
        if batch.samples_humans:
            return [()]
        ranges = [range(self.spec.num_actions[human]) for human in self.spec.humans]
        return [profile[::-1] for profile in itertools.product(*reversed(ranges))]

    def mean_chance(self, batch: Listed, t: int, layout: int, human: int, act: int) -> float:
        """How likely an action is on average over the human's goals: w-weighted, normalised."""
        total, chance = 0.0, 0.0
        for slot, owner in enumerate(self.owner):
            if owner == human:
                weight = self.weight[layout][slot]
                total += weight
                chance += weight * batch.human_policy[t][slot][act]
        return chance / total

    def chance(
        self, batch: Listed, t: int, layout: int, profile: tuple[int, ...], slot: int | None
    ) -> float:
        """How likely a profile is, its human pursuing a slot's goal, all others any of theirs."""
        product = 1.0
        for human, act in enumerate(profile):
            if slot is not None and human == self.owner[slot]:
                product *= batch.human_policy[t][slot][act]
            else:
                product *= self.mean_chance(batch, t, layout, human, act)
        return product

    # Targets.

    def one_step(
        self,
        batch: Listed,
        t: int,
        moments: Moments,
        slot: int | None,
        worth: Callable[[Moment], float],
    ) -> list[float]:
        """What is expected after each joint robot action: E over humans and successors."""
        actions, profiles = self.spec.num_robot_actions, self.profiles(batch)
        layout = moments[SOURCE, t].layout
        expected = [0.0] * actions
        for p, profile in enumerate(profiles):
            chance = self.chance(batch, t, layout, profile, slot)
            for action in range(actions):
                pair = (t * len(profiles) + p) * actions + action
                for item in range(batch.offsets[pair], batch.offsets[pair + 1]):
                    after = moments[ITEM, item]
                    expected[action] += chance * batch.prob[item] * worth(after)
        return expected

    def q_r_target(self, batch: Listed, t: int, moments: Moments) -> list[float]:
        """Equation (4): gamma_r times the expected V_r."""
        return self.one_step(
            batch, t, moments, None, lambda after: self.setting.gamma_r * self.v_r(after)
        )

    def v_h_e_target(
        self, batch: Listed, t: int, slot: int, moments: Moments, pi_r: Sequence[float]
    ) -> float:
        """Equation (6): 1 where the goal is achieved next, else gamma_h times V_h^e."""

        def worth(after: Moment) -> float:
            if after.achieved[slot]:
                return 1.0
            return self.setting.gamma_h * self.v_h_e(after, slot)

        expected = self.one_step(batch, t, moments, slot, worth)
        if not self.model_based:
            return expected[batch.action[t]]
        return sum(pi * value for pi, value in zip(pi_r, expected, strict=True))

    def q_r_along(self, paths: Paths, t: int, moments: Moments) -> float:
        """Discounted U_r of what followed, and V_r of the last state that is known."""
        total, discount = 0.0, 1.0
        for step in range(int(paths.length[t])):
            discount *= self.setting.gamma_r
            moment = moments[STEP, t, step]
            is_last = step == int(paths.length[t]) - 1
            total += discount * (self.v_r(moment) if is_last else self.u_r(moment))
        return total

    def v_h_e_along(self, paths: Paths, t: int, slot: int, moments: Moments) -> float:
        """1 where the goal was first achieved, else V_h^e of the last state known; discounted."""
        discount = 1.0
        for step in range(int(paths.length[t])):
            moment = moments[STEP, t, step]
            if moment.achieved[slot]:
                return discount
            discount *= self.setting.gamma_h
        return discount * self.v_h_e(moment, slot)

    def targets(self, batch: Listed, moments: Moments, paths: Paths | None = None) -> PlainTargets:
        """All targets of a batch."""
        rows = [self._of_transition(batch, t, moments, paths) for t in range(len(batch.state))]
        columns: Iterator[Tensor] = (
            torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)
        )
        return PlainTargets(*columns)

    def _of_transition(
        self, batch: Listed, t: int, moments: Moments, paths: Paths | None
    ) -> tuple[list[float] | float, ...]:
        here, taken = moments[SOURCE, t], batch.action[t]
        ahead = self.q_r_target(batch, t, moments)
        q_r = ahead if here.q_r is None else here.q_r
        pi_r = self.policy(q_r, here.available)
        q_weight = [float(ok) for ok in here.available]
        if not self.model_based or (paths and paths.of_q_r):
            q_weight = [float(action == taken) for action in range(len(q_r))]
        if paths and paths.of_q_r:
            ahead = [self.q_r_along(paths, t, moments)] * len(q_r)
        pursued = batch.goal[t]
        sees_all = not batch.samples_humans and not (paths and paths.of_v_h_e)
        v_h_e, v_weight = [], []
        for slot in range(len(self.owner)):
            exists = self.goal[here.layout][slot] >= 0
            counts = exists and (sees_all or slot in pursued)
            v_weight.append(float(counts))
            if not counts:
                v_h_e.append(0.0)
            elif paths and paths.of_v_h_e:
                v_h_e.append(self.v_h_e_along(paths, t, slot, moments))
            else:
                v_h_e.append(self.v_h_e_target(batch, t, slot, moments, pi_r))
        x_h = [self.power(here, human) for human in range(len(self.spec.humans))]
        v_r = self.mean_value(here, q_r, pi_r)
        return ahead, q_weight, pi_r, v_h_e, v_weight, x_h, self.reward(here), v_r

    def compute(
        self,
        batch: Transitions,
        look_up: LookUp,
        paths: Paths | None = None,
        *,
        together: bool = False,
    ) -> PlainTargets:
        """All targets of a batch; ``together`` asks each network once."""
        listed = Listed.of(batch)
        occasions = self.occasions(listed, paths)
        ask = self.asked_together if together else self.asked_one_by_one
        moments = ask(list(occasions.values()), look_up)
        return self.targets(listed, dict(zip(occasions, moments, strict=True)), paths)
