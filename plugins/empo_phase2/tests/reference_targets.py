"""Targets of learning one number at a time, as the equations say: slow, and easy to believe.

Tests compare ``empo_phase2.targets`` with it, and benchmarks measure both. Equations are those of
the paper: Q_r (4), V_h^e (6); the others are in ``reference_values``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from reference_values import LookUp, ReferenceValues, StateValues
from torch import Tensor

from empo_phase2.experience import Transitions


@dataclass(frozen=True, slots=True)
class Listed:
    """``Transitions`` as lists of numbers."""

    state: list[int]
    steps_left: list[int]
    human_policy: list[list[list[float]]]
    acts_for: list[list[bool]]
    behaviour: list[list[float]]
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
        """True if successors are those of one sampled profile."""
        return not self.human_policy[0]


@dataclass(frozen=True, slots=True)
class PlainTargets:
    """The fields of ``BatchTargets``, none of them None: targets of all quantities are there."""

    q_r: Float[Tensor, "transition robot_action"]
    q_r_weight: Float[Tensor, "transition robot_action"]
    pi_r: Float[Tensor, "transition robot_action"]
    v_h_e: Float[Tensor, "transition slot"]
    v_h_e_weight: Float[Tensor, "transition slot"]
    x_h: Float[Tensor, "transition human"]
    u_r: Float[Tensor, " transition"]
    v_r: Float[Tensor, " transition"]


Values = Mapping[tuple[int, ...], StateValues]
"""By the keys of ``ReferenceTargets.timed_states``."""

SOURCE, ITEM = range(2)


@dataclass(frozen=True)
class ReferenceTargets:
    """The targets of a batch of transitions.

    Attributes:
        equations: The equations for one timed state.
        model_based: Whether all robot actions have successors; else only the taken one.
    """

    equations: ReferenceValues
    model_based: bool

    def timed_states(self, batch: Listed) -> dict[tuple[int, ...], tuple[int, int]]:
        """State id and remaining steps wherever one occurs in a batch.

        Keys are ``(SOURCE, transition)`` and ``(ITEM, item)``.
        """
        found: dict[tuple[int, ...], tuple[int, int]] = {}
        pairs_each = (len(batch.offsets) - 1) // len(batch.state)
        for t, left in enumerate(batch.steps_left):
            found[SOURCE, t] = (batch.state[t], left)
            first = batch.offsets[t * pairs_each]
            last = batch.offsets[(t + 1) * pairs_each]
            # Without a horizon no time passes.
            after = left if self.equations.spec.horizon is None else left - 1
            for item in range(first, last):
                found[ITEM, item] = (batch.successor[item], after)
        return found

    def profiles(self, batch: Listed) -> list[tuple[int, ...]]:
        """The action of each human in each profile; an empty placeholder where sampled."""
        if batch.samples_humans:
            return [()]
        ranges = [
            range(self.equations.spec.num_actions[human]) for human in self.equations.spec.humans
        ]
        return [profile[::-1] for profile in itertools.product(*reversed(ranges))]

    def mean_chance(self, batch: Listed, t: int, layout: int, human: int, act: int) -> float:
        """Chance of an action, on average over the human's goals: w-weighted, normalised."""
        total, chance = 0.0, 0.0
        for slot, owner in enumerate(self.equations.owner):
            if owner == human:
                weight = self.equations.weight[layout][slot]
                total += weight
                chance += weight * batch.human_policy[t][slot][act]
        return chance / total

    def chance(
        self, batch: Listed, t: int, layout: int, profile: tuple[int, ...], slot: int | None
    ) -> float:
        """Chance of a profile, the slot's human pursuing its goal, all others any of theirs."""
        product = 1.0
        for human, act in enumerate(profile):
            if slot is not None and human == self.equations.owner[slot]:
                product *= batch.human_policy[t][slot][act]
            else:
                product *= self.mean_chance(batch, t, layout, human, act)
        return product

    def one_step(
        self,
        batch: Listed,
        t: int,
        values: Values,
        slot: int | None,
        payoff: Callable[[StateValues], float],
    ) -> list[float]:
        """Expectation of ``payoff`` after each joint robot action, over humans and successors."""
        actions, profiles = self.equations.spec.num_robot_actions, self.profiles(batch)
        layout = values[SOURCE, t].layout
        expected = [0.0] * actions
        for p, profile in enumerate(profiles):
            chance = self.chance(batch, t, layout, profile, slot)
            for action in range(actions):
                pair = (t * len(profiles) + p) * actions + action
                for item in range(batch.offsets[pair], batch.offsets[pair + 1]):
                    after = values[ITEM, item]
                    expected[action] += chance * batch.prob[item] * payoff(after)
        return expected

    def q_r_target(self, batch: Listed, t: int, values: Values) -> list[float]:
        """Equation (4): gamma_r times the expected V_r."""
        return self.one_step(
            batch,
            t,
            values,
            None,
            lambda after: self.equations.setting.gamma_r * self.equations.v_r(after),
        )

    def v_h_e_target(
        self, batch: Listed, t: int, slot: int, values: Values, pi_r: Sequence[float]
    ) -> float:
        """Equation (6): 1 where the goal is achieved next, else gamma_h times V_h^e."""

        def worth(after: StateValues) -> float:
            if after.achieved[slot]:
                return 1.0
            return self.equations.setting.gamma_h * self.equations.v_h_e(after, slot)

        expected = self.one_step(batch, t, values, slot, worth)
        if not self.model_based:
            return expected[batch.action[t]]
        return sum(pi * value for pi, value in zip(pi_r, expected, strict=True))

    def samples_policy(self, batch: Listed, t: int, pi_r: Sequence[float], uniform: float) -> bool:
        """Whether the action taken passes as a sample of the policy."""
        chances = batch.behaviour[t]
        most = max(pi / mu for pi, mu in zip(pi_r, chances, strict=True) if mu > 0)
        taken = batch.action[t]
        return chances[taken] > 0 and uniform * most < pi_r[taken] / chances[taken]

    def targets(self, batch: Listed, values: Values, uniform: Sequence[float]) -> PlainTargets:
        """All targets of a batch."""
        rows = [self._of_transition(batch, t, values, uniform[t]) for t in range(len(batch.state))]
        columns: Iterator[Tensor] = (
            torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)
        )
        return PlainTargets(*columns)

    def _of_transition(
        self, batch: Listed, t: int, values: Values, uniform: float
    ) -> tuple[list[float] | float, ...]:
        here, taken = values[SOURCE, t], batch.action[t]
        ahead = self.q_r_target(batch, t, values)
        sees_all = self.model_based and not batch.samples_humans
        q_r = ahead
        if not sees_all:
            assert here.q_r is not None, "without all successors Q_r must be learned"
            q_r = here.q_r
        pi_r = self.equations.policy(q_r, here.available)
        q_weight = [float(ok) for ok in here.available]
        is_policy = True
        if not self.model_based:
            q_weight = [float(action == taken) for action in range(len(q_r))]
            is_policy = self.samples_policy(batch, t, pi_r, uniform)
        v_h_e, v_weight = [], []
        for slot in range(len(self.equations.owner)):
            exists = self.equations.goal[here.layout][slot] >= 0
            counts = exists and batch.acts_for[t][slot] and is_policy
            v_weight.append(float(counts))
            if not counts:
                v_h_e.append(0.0)
            else:
                v_h_e.append(self.v_h_e_target(batch, t, slot, values, pi_r))
        x_h = [
            self.equations.power(here, human) for human in range(len(self.equations.spec.humans))
        ]
        v_r = self.equations.mean_value(here, q_r, pi_r)
        return ahead, q_weight, pi_r, v_h_e, v_weight, x_h, self.equations.reward(here), v_r

    def compute(
        self,
        batch: Transitions,
        look_up: LookUp,
        uniform: Sequence[float],
        *,
        together: bool = False,
    ) -> PlainTargets:
        """All targets of a batch; ``together`` asks each network once."""
        listed = Listed.of(batch)
        timed_states = self.timed_states(listed)
        ask = self.equations.asked_together if together else self.equations.asked_one_by_one
        values = ask(list(timed_states.values()), look_up)
        return self.targets(listed, dict(zip(timed_states, values, strict=True)), uniform)
