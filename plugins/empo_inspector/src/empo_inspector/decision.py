"""Decisions of an inspection: policies and values worked out from the values one step later.

Plain tensor arithmetic with the equations of ``empo_theory.equations``, whatever solved or learned
the values; the solvers' own numbers agree. Another theory answers "what if, just here".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.types import WorldSpec
from empo_theory.equations import (
    end_weight,
    human_policy,
    human_power,
    reward_weight,
    robot_policy,
    robot_reward,
)
from empo_theory.inspection import Inspection, LoopStep
from empo_theory.parameters import CompleteTheory

AT_ONCE = 1 << 21
"""Numbers per state, joint action and goal that are worked out at the same time."""


class Policies(NamedTuple):
    """Policies in some states at one time, from which an episode goes on.

    Attributes:
        q_m: Q_h^m of each goal's human; 0 where unavailable or not by equation (1)
            [state goal action].
        pi_h: The policy of each goal's human [state goal action].
        marginal: Each human's policy over its goals, by weight [state human action].
        chance: Probability of each profile [state profile].
        q_r: Q_r by which the robots act; NaN where unavailable [state robot_action].
        lookahead: Q_r one step ahead, equation (4); the same unless values are learned, or the
            robots are averse to risk [state robot_action].
        pi_r: The robots' policy [state robot_action].
        accrued: Expected weight of U_r under each joint robot action [state robot_action].
    """

    q_m: Float[Tensor, "state goal action"]
    pi_h: Float[Tensor, "state goal action"]
    marginal: Float[Tensor, "state human action"]
    chance: Float[Tensor, "state profile"]
    q_r: Float[Tensor, "state robot_action"]
    lookahead: Float[Tensor, "state robot_action"]
    pi_r: Float[Tensor, "state robot_action"]
    accrued: Float[Tensor, "state robot_action"]


class Outcomes(NamedTuple):
    """Values that policies lead to, in the same states.

    Attributes:
        q_e: V_h^e if the robots take an action now; NaN where unavailable
            [state robot_action goal].
        v_e: V_h^e [state goal].
        x_h: X_h [state human].
        u_r: U_r [state].
        v_r: V_r [state].
    """

    q_e: Float[Tensor, "state robot_action goal"]
    v_e: Float[Tensor, "state goal"]
    x_h: Float[Tensor, "state human"]
    u_r: Float[Tensor, " state"]
    v_r: Float[Tensor, " state"]


class Transitions(NamedTuple):
    """Transitions of some states, flat.

    Attributes:
        slot: ``(position * num_profiles + profile) * num_robot_actions + robot action``
            [transition].
        successor: State reached [transition].
        code: Position in the inspection's probabilities and durations [transition].
        prob: Probability under its joint action [transition].
    """

    slot: Int[Tensor, " transition"]
    successor: Int[Tensor, " transition"]
    code: Int[Tensor, " transition"]
    prob: Float[Tensor, " transition"]


@dataclass(frozen=True)
class Digits:
    """Parts of joint actions; a profile is a joint action of the humans.

    Attributes:
        slot: ``profile * num_robot_actions + robot action`` of each joint action [joint].
        human_action: Each human's action in each profile [human profile].
        robots: Each robot's action in each joint robot action [agent robot_action].
    """

    slot: Int[Tensor, " joint"]
    human_action: Int[Tensor, "human profile"]
    robots: Int[Tensor, "agent robot_action"]

    @classmethod
    def of(cls, spec: WorldSpec) -> Digits:
        """The digits of a world's joint actions, the first agent of each side fastest."""
        joint = torch.arange(spec.num_joint_actions)
        action = [joint // s % n for s, n in zip(spec.strides, spec.num_actions, strict=True)]
        slot, stride = torch.zeros_like(joint), 1
        for agent in (*spec.robots, *spec.humans):
            slot += stride * action[agent]
            stride *= spec.num_actions[agent]
        order, number = slot.argsort(), spec.num_robot_actions
        actions = torch.stack(action)
        return cls(
            slot,
            actions[list(spec.humans)][:, order[::number]],
            actions[list(spec.robots)][:, order[:number]],
        )


class OneStep:
    """Decisions in the states of an inspection, under its theory or another one."""

    def __init__(self, inspection: Inspection, theory: CompleteTheory | None = None) -> None:
        """Prepare.

        Args:
            inspection: States and values.
            theory: Parameters of these decisions; None takes those of the values. The values
                that follow stay as they are.
        """
        self.inspection = inspection
        self.spec = inspection.spec
        self.theory = theory = inspection.theory if theory is None else theory
        self.digits = Digits.of(self.spec)
        self._achieved = torch.from_numpy(inspection.achieved)
        self._goes_on = torch.from_numpy(np.diff(inspection.offsets[:: len(self.digits.slot)]) > 0)
        self.weight = torch.tensor([goal.weight for goal in self.spec.goals], dtype=torch.float64)
        self._goals = [list(self.spec.goals_of(human)) for human in self.spec.humans]
        counts = inspection.counts or (True,) * len(self.spec.humans)
        self.counted = torch.tensor(counts)
        self.counts_presence = theory.counting == "presence"
        lasts = torch.from_numpy(inspection.duration)
        rho_r = -math.log(theory.gamma_r)
        self._attained = self._achieved.double()
        self.end_reward = (
            self.reward(self._attained)[1]
            if self.counts_presence
            else torch.zeros(len(self._achieved)).double()
        )
        self._gamma_h, self._gamma_r = theory.gamma_h**lasts, theory.gamma_r**lasts
        self._accrued = torch.tensor(
            [reward_weight(rho_r, duration, theory.accrual) for duration in lasts.tolist()],
            dtype=torch.float64,
        )

    def achieved(self, states: Int[Tensor, " state"]) -> Bool[Tensor, "state goal"]:
        """Whether each state is in each goal."""
        return self._achieved[states]

    def alive(self, states: Int[Tensor, " state"], time: int) -> Bool[Tensor, " state"]:
        """States from which an episode goes on at a time [state]."""
        if self.spec.horizon is not None and time >= self.spec.horizon:
            return torch.zeros(len(states), dtype=torch.bool)
        return self._goes_on[states]

    def end_weight(self, time: int) -> float:
        """Weight of U_r in states where the episode is over at a time, if presence counts."""
        horizon = self.spec.horizon
        return end_weight(self.theory, None if horizon is None else horizon - time)

    def end_value(self, time: int) -> Float[Tensor, " state"]:
        """V_r of all states if the episode is over there at a time."""
        if not self.counts_presence:
            count = len(self._achieved)
            return torch.full((count,), self.theory.terminal_value, dtype=torch.float64)
        return self.end_weight(time) * self.end_reward

    def policies(self, states: Int[Tensor, " state"], time: int) -> Policies:
        """Policies in some states, from which an episode goes on, at a time.

        Raises:
            WorldError: if a state cannot be reached by then, or what follows it was left out.
        """
        per_state = len(self.digits.slot) * max(1, len(self.spec.goals))
        blocks = torch.split(states, max(1, AT_ONCE // per_state))
        blocks_of_policies = [self._policies(block, time) for block in blocks]
        return Policies(*(torch.cat(part) for part in zip(*blocks_of_policies, strict=True)))

    def outcomes(self, states: Int[Tensor, " state"], time: int, policies: Policies) -> Outcomes:
        """Values that policies, as ``policies`` returned them, lead to."""
        step = self.transitions(states)
        possible = self._possible(step, len(states))
        expected = self._expected(
            step, len(states), self._goal_value(step, self._after("v_e", time))
        )
        q_e = torch.zeros(len(states), possible.shape[2], len(self.spec.goals)).double()
        for human, goals in enumerate(self._goals):
            human_chance = policies.pi_h[:, goals][:, :, self.digits.human_action[human]]
            human_chance = human_chance * self._product(policies.marginal, without=human)[:, None]
            q_e[:, :, goals] = torch.einsum("sgp,sprg->srg", human_chance, expected[..., goals])
        v_e = torch.einsum("sr,srg->sg", policies.pi_r, q_e)
        if self.counts_presence:
            v_e = v_e.masked_fill(self._achieved[states], 1.0)
        x_h, u_r = self.reward(v_e)
        q_e = q_e.masked_fill(~possible.any(1)[..., None], math.nan)
        return Outcomes(q_e, v_e, x_h, u_r, self.value(u_r, policies))

    def next_v_e(self, time: int) -> Float[Tensor, "state goal"]:
        """V_h^e of all states one step after a time; as at the end where the episode is over."""
        return self._after("v_e", time)

    def value(self, u_r: Float[Tensor, " state"], policies: Policies) -> Float[Tensor, " state"]:
        """V_r by equation (9), one step ahead."""
        gain = u_r[:, None] * policies.accrued + policies.lookahead.nan_to_num()
        return (policies.pi_r * gain).sum(1)

    def bellman_remainder(
        self, states: Int[Tensor, " state"], time: int, policies: Policies
    ) -> Float[Tensor, " state"]:
        """V_r minus what equation (9) makes of the values one step later; 0 unless learned."""
        position = self._position(time)
        v_r, v_e = (
            torch.from_numpy(values[position])[states]
            for values in (self.inspection.v_r, self.inspection.v_e)
        )
        return v_r - self.value(self.reward(v_e)[1], policies)

    def reward(
        self, v_e: Float[Tensor, "state goal"]
    ) -> tuple[Float[Tensor, "state human"], Float[Tensor, " state"]]:
        """X_h, equation (7), and U_r, equation (8), by V_h^e."""
        theory = self.theory
        powers = [
            human_power(v_e[:, goals], self.weight[goals], theory.zeta, theory.x_agg)
            for goals in self._goals
        ]
        x_h = torch.stack(powers, 1)
        floored = x_h.clamp(min=self.inspection.x_h_floor)
        counted = floored[:, self.counted]
        return x_h, robot_reward(counted, theory.xi, theory.eta, theory.u_agg)

    def transitions(self, states: Int[Tensor, " state"]) -> Transitions:
        """All transitions of some states.

        Raises:
            WorldError: if a transition leads to a state that was left out.
        """
        inspection, joint = self.inspection, len(self.digits.slot)
        pairs = (states[:, None] * joint + torch.arange(joint)).flatten().numpy()
        begin = inspection.offsets[pairs]
        length = inspection.offsets[pairs + 1] - begin
        pair = np.repeat(np.arange(len(pairs)), length)
        items = np.arange(len(pair)) + (begin - np.cumsum(length) + length)[pair]
        successor = torch.from_numpy(inspection.successor[items].astype(np.int64))
        if bool((successor < 0).any()):
            raise WorldError("states that follow this one were left out of the inspection")
        slots = (torch.arange(len(states))[:, None] * joint + self.digits.slot).flatten()
        code = torch.from_numpy(inspection.code[items].astype(np.int64))
        return Transitions(
            slots[torch.from_numpy(pair)], successor, code, torch.from_numpy(inspection.prob)[code]
        )

    def discount(self, step: Transitions) -> Float[Tensor, " transition"]:
        """The robot's discount during each transition."""
        return self._gamma_r[step.code]

    def accrued(self, step: Transitions) -> Float[Tensor, " transition"]:
        """What U_r counts during each transition."""
        return self._accrued[step.code]

    def follow(
        self,
        states: Int[Tensor, " state"],
        chance: Float[Tensor, "state profile"],
        mass: Float[Tensor, "state process robot_action"],
        *,
        discounted: bool = True,
    ) -> tuple[Int[Tensor, " reached"], Float[Tensor, "reached process"]]:
        """The states that follow, and the mass of some processes there.

        Args:
            states: States from which an episode goes on.
            chance: Probability of each profile of the humans.
            mass: The mass of each process on each joint robot action.
            discounted: Discount the mass as the robots do.
        """
        moves = self.transitions(states)
        spread = chance[:, :, None, None] * mass.transpose(1, 2)[:, None]
        share = moves.prob * self.discount(moves) if discounted else moves.prob
        flow = spread.flatten(0, 2)[moves.slot] * share[:, None]
        there = flow.abs().sum(1) > 0
        reached, place = torch.unique(moves.successor[there], return_inverse=True)
        total = torch.zeros(len(reached), mass.shape[1]).double()
        return reached, total.index_add_(0, place, flow[there])

    def _policies(self, states: Int[Tensor, " state"], time: int) -> Policies:
        step, size = self.transitions(states), len(states)
        v_r = self._after("v_r", time)[step.successor]
        if bool(v_r.isnan().any()):
            raise WorldError(f"{self.spec.name!r} cannot be in that state after {time} steps")
        possible = self._possible(step, size)
        pi_h, q_m = self._humans(states, time, step, possible)
        marginal = self._marginals(pi_h)
        chance = self._product(marginal)
        payoff = torch.stack([self.discount(step) * v_r, self._accrued[step.code]], 1)
        expected = torch.einsum("sp,sprk->ksr", chance, self._expected(step, size, payoff))
        lookahead, accrued = expected.unbind()
        robots, learned = possible.any(1), self.inspection.q_r
        lookahead = lookahead.masked_fill(~robots, math.nan)
        q_r = (
            lookahead
            if learned is None
            else torch.from_numpy(learned[self._position(time)])[states]
        )
        pi_r = robot_policy(q_r, self.theory.beta_r * self.theory.rho, robots)
        return Policies(q_m, pi_h, marginal, chance, q_r, lookahead, pi_r, accrued)

    def _position(self, time: int) -> int:
        """Position of a time among those of the values."""
        return 0 if self.spec.horizon is None else time - self.inspection.first_time

    def _after(self, name: Literal["v_r", "v_e", "v_m"], time: int) -> Tensor:
        """A value of all states one step after a time; as at the end where the episode is over."""
        inspection, goes_on = self.inspection, self._goes_on
        position = self._position(time + 1)
        if position >= len(inspection.v_r):
            position, goes_on = 0, torch.zeros_like(goes_on)
        values = torch.from_numpy(getattr(inspection, name)[position])
        if values.ndim == 1:
            return values.where(goes_on, self.end_value(time + 1))
        if self.counts_presence:
            return values.where(goes_on[:, None], self._attained)
        return values.masked_fill(~goes_on[:, None], 0.0)

    def _goal_value(
        self, step: Transitions, value: Float[Tensor, "state goal"]
    ) -> Float[Tensor, "transition goal"]:
        """1 where a transition achieves a goal, else the discounted value that follows.

        Where presence counts, that value is 1 in a goal, and discounted, too.
        """
        later = self._gamma_h[step.code, None] * value[step.successor]
        if self.counts_presence:
            return later
        return later.masked_fill(self._achieved[step.successor], 1.0)

    def _expected(
        self, step: Transitions, size: int, payoff: Float[Tensor, "transition kind"]
    ) -> Float[Tensor, "state profile robot_action kind"]:
        """Expected payoffs over the successors of every joint action; 0 where there are none."""
        total = torch.zeros(size * len(self.digits.slot), payoff.shape[1]).double()
        total.index_add_(0, step.slot, step.prob[:, None] * payoff)
        return total.view(size, self.digits.human_action.shape[1], -1, payoff.shape[1])

    def _possible(self, step: Transitions, size: int) -> Bool[Tensor, "state profile robot_action"]:
        count = torch.bincount(step.slot, minlength=size * len(self.digits.slot))
        return (count > 0).view(size, self.digits.human_action.shape[1], -1)

    def _humans(
        self,
        states: Int[Tensor, " state"],
        time: int,
        step: Transitions,
        possible: Bool[Tensor, "state profile robot_action"],
    ) -> tuple[Float[Tensor, "state goal action"], Float[Tensor, "state goal action"]]:
        """Policies, equation (2), and Q_h^m, equation (1), of each goal's human."""
        inspection, actions = (
            self.inspection,
            max(self.spec.num_actions[h] for h in self.spec.humans),
        )
        q_m = torch.zeros(len(states), len(self.spec.goals), actions).double()
        if inspection.pi_h is not None:
            return torch.from_numpy(inspection.pi_h[self._position(time)])[states], q_m
        expected = self._expected(
            step, len(states), self._goal_value(step, self._after("v_m", time))
        )
        reply = self._reply(expected, possible)
        is_possible = possible.any(2)
        pi_h = torch.zeros_like(q_m)
        for human, goals in enumerate(self._goals):
            human_action = self.digits.human_action[human]
            total = torch.zeros(len(states), actions, len(goals)).double()
            total.index_add_(1, human_action, reply[..., goals])
            ways = (
                torch.zeros(len(states), actions)
                .double()
                .index_add_(1, human_action, is_possible.double())
            )
            q = (total / ways.clamp(min=1)[..., None]).transpose(1, 2)
            done = self._achieved[states][:, goals]
            q_m[:, goals], pi_h[:, goals] = q, _choice(self.theory, q, ways > 0, done)
        return pi_h, q_m

    def _reply(
        self,
        expected: Float[Tensor, "state profile robot_action goal"],
        possible: Bool[Tensor, "state profile robot_action"],
    ) -> Float[Tensor, "state profile goal"]:
        """The robots' reply that humans expect to each profile; 0 where it cannot happen."""
        if self.theory.robot_model == "optimistic":
            reply = expected.masked_fill(~possible[..., None], -math.inf).amax(2)
        elif self.theory.robot_model == "even":
            ways = possible.sum(2).clamp(min=1)
            reply = expected.masked_fill(~possible[..., None], 0.0).sum(2) / ways[..., None]
        else:
            reply = expected.masked_fill(~possible[..., None], math.inf).amin(2)
        return reply.masked_fill(~possible.any(2)[..., None], 0.0)

    def _marginals(
        self, pi_h: Float[Tensor, "state goal action"]
    ) -> Float[Tensor, "state human action"]:
        """Each human's policy averaged over its goals by weight."""
        mixed = [
            torch.einsum("g,sga->sa", self.weight[goals] / self.weight[goals].sum(), pi_h[:, goals])
            for goals in self._goals
        ]
        return torch.stack(mixed, 1)

    def _product(
        self, marginal: Float[Tensor, "state human action"], without: int | None = None
    ) -> Float[Tensor, "state profile"]:
        """Probability of each profile, one human's part perhaps left out."""
        chance = torch.ones(len(marginal), self.digits.human_action.shape[1]).double()
        for human, human_action in enumerate(self.digits.human_action):
            if human != without:
                chance = chance * marginal[:, human][:, human_action]
        return chance


class KeptLoop:
    """The closed loop worked out from an inspection; see ``empo_theory.inspection.ClosedLoop``."""

    def __init__(self, step: OneStep) -> None:
        self._step = step

    def follow(
        self,
        states: Int64[np.ndarray, " state"],
        time: int,
        mass: Float64[np.ndarray, "state process"],
    ) -> LoopStep:
        """What follows some states, given by number, at a time, with the mass that is there.

        Raises:
            WorldError: if what follows one of them was left out.
        """
        step, inspection = self._step, self._step.inspection
        places = torch.from_numpy(np.searchsorted(inspection.number, states))
        alive = step.alive(places, time)
        v_e, accrued = np.zeros((len(states), len(self._step.spec.goals))), np.zeros(len(states))
        if step.counts_presence:
            v_e[~alive.numpy()] = step.achieved(places[~alive]).numpy()
        if not bool(alive.any()):
            return LoopStep(alive.numpy(), v_e, accrued, states[:0], mass[:0])
        here, policies = places[alive], step.policies(places[alive], time)
        position = 0 if step.spec.horizon is None else time - inspection.first_time
        v_e[alive.numpy()] = inspection.v_e[position][here.numpy()]
        accrued[alive.numpy()] = (policies.pi_r * policies.accrued).sum(1).numpy()
        both = torch.from_numpy(mass)[alive][:, :, None] * policies.pi_r[:, None]
        reached, there = step.follow(here, policies.chance, both)
        return LoopStep(
            alive.numpy(), v_e, accrued, inspection.number[reached.numpy()], there.numpy()
        )


def _choice(
    theory: CompleteTheory,
    q: Float[Tensor, "state goal action"],
    available: Bool[Tensor, "state action"],
    done: Bool[Tensor, "state goal"],
) -> Float[Tensor, "state goal action"]:
    """Equation (2); the first available action where a goal is achieved already."""
    beta, nu = (
        torch.full(q.shape[:2], float(symbol), dtype=torch.float64)
        for symbol in (theory.beta_h, theory.nu)
    )
    habit = (available.double() / available.sum(1, keepdim=True))[:, None].expand_as(q)
    policy = human_policy(q, beta, available[:, None].expand_as(q), nu, habit)
    idle = torch.nn.functional.one_hot(available.double().argmax(1), q.shape[2])
    return torch.where(done[..., None], idle[:, None].double(), policy)
