"""Regression targets of all quantities for a batch of transitions, in five batched stages.

1. ``collect``: the distinct timed states (state, steps left) among sources and successors.
2. ``encode``: rows and flags of each, looked up in the replay.
3. ``forward``: every network once, for each part of the distinct timed states that are new.
4. ``aggregate_q_r``: Q_r of every robot action from V_r of the successors, equation (4).
5. ``aggregate_v_h_e``: V_h^e of every goal from V_h^e of the successors, equation (6).

No stage loops over transitions, actions, humans, goals or successors, and successors are never
padded. ``tests/reference_targets.py`` computes the same one number at a time.

Where a transition has a sample instead of everything that could happen, each target is an unbiased
estimate of the same expectation, with W(s') = 1 if g holds in s' else gamma_h V_h^e(s', g):

* Humans sampled: a_H comes from ``profiles.HumanProfiles.sample``, which also says for which
  goals g it is a sample of what humans do while the one whose goal it is pursues it. Then

      Q_r(s, a_r)  ~ gamma_r sum_s' P(s' | s, a_r, a_H) V_r(s')                 for every a_r
      V_h^e(s, g)  ~ sum_a_r pi_r(s)(a_r) sum_s' P(s' | s, a_r, a_H) W(s')      for those g

* No model: in addition a_r comes from the behaviour policy mu, and s' from P(. | s, a_r, a_H). Then

      Q_r(s, a_r)  ~ gamma_r V_r(s')      for the a_r taken
      V_h^e(s, g)  ~ W(s')                where u max_a [pi_r(a) / mu(a)] < pi_r(a_r) / mu(a_r)

  with u ~ U[0, 1). This rejection test leaves actions distributed as pi_r, the policy of now,
  whatever robots explored (``samples_policy``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.protocols import Aggregator
from empo_core.types import Quantity, Segments, WorldSpec
from empo_phase2.experience import States, TimedStates, Transitions, steps_after
from empo_phase2.profiles import HumanProfiles
from empo_phase2.quantities import Quantities, TargetCache, policy_of
from empo_phase2.warmup import ScheduledTheory

LookUp = Callable[[Tensor], States]
"""From state ids ``[distinct]`` to the states that a replay keeps."""


@dataclass(frozen=True, slots=True)
class CollectedStates:
    """The distinct timed states of a batch, and the position of each occurrence among them.

    Attributes:
        key: A number for each distinct timed state, in rising order: its id and remaining steps.
        source: Where each transition starts.
        successor: Each successor.
        pairs: The (profile, robot action) pair of each successor.
        prob: Its probability within its pair.
    """

    key: Int[Tensor, " distinct"]
    source: Int[Tensor, " transition"]
    successor: Int[Tensor, " item"]
    pairs: Segments
    prob: Float[Tensor, " item"]


@dataclass(frozen=True, slots=True)
class BatchTargets:
    """Targets of each quantity in the timed states where a batch's transitions start.

    Attributes:
        sources: The timed states where they start.
        q_r: Target of Q_r.
        q_r_weight: Weight of its error: 0 where an action does not exist or was not seen.
        pi_r: The robots' policy there.
        v_h_e: Target of V_h^e.
        v_h_e_weight: Weight of its error: 0 where a slot has no goal or no sample.
        x_h: Target of X_h; None where it is in closed form.
        u_r: Target of U_r; None where it is in closed form.
        v_r: Target of V_r; None where it is in closed form.
        distinct: Number of distinct timed states.
        items: Number of successors.
    """

    sources: TimedStates
    q_r: Float[Tensor, "transition robot_action"]
    q_r_weight: Float[Tensor, "transition robot_action"]
    pi_r: Float[Tensor, "transition robot_action"]
    v_h_e: Float[Tensor, "transition slot"]
    v_h_e_weight: Float[Tensor, "transition slot"]
    x_h: Float[Tensor, "transition human"] | None
    u_r: Float[Tensor, " transition"] | None
    v_r: Float[Tensor, " transition"] | None
    distinct: int
    items: int


def collect(batch: Transitions, spec: WorldSpec) -> CollectedStates:
    """Stage 1: the distinct (state, remaining steps) among sources and successors."""
    transitions, pairs = batch.state.shape[0], batch.offsets.shape[0] - 1
    index = torch.repeat_interleave(batch.offsets.diff())
    of_transition = index // max(1, pairs // max(1, transitions))
    states = [batch.state, batch.successor]
    steps = [batch.steps_left, steps_after(batch.steps_left, spec)[of_transition]]
    keys = torch.cat(states).long() * _span(spec) + torch.cat(steps)
    distinct, inverse = torch.unique(keys, return_inverse=True)
    source, successor = inverse[:transitions], inverse[transitions:]
    return CollectedStates(distinct, source, successor, Segments(batch.offsets, index), batch.prob)


def encode(key: Int[Tensor, " distinct"], spec: WorldSpec, look_up: LookUp) -> TimedStates:
    """Stage 2: rows, flags and goals of each distinct timed state."""
    span = _span(spec)
    return TimedStates.of(look_up(key // span), key % span)


def _span(spec: WorldSpec) -> int:
    """Number of keys of timed states that each state has."""
    return (spec.horizon or 1) + 1


def aggregate_q_r(
    v_r: Float[Tensor, " item"],
    collected: CollectedStates,
    profile_prob: Float[Tensor, "transition profile"],
    gamma_r: float,
    aggregate: Aggregator,
) -> Float[Tensor, "transition robot_action"]:
    """Stage 4: Q_r(s, a_r) = gamma_r E_{a_H} E_{s'} V_r(s'), equation (4).

    Args:
        v_r: V_r of each successor s'.
        collected: The successors.
        profile_prob: Probability of each joint action a_H of the humans.
        gamma_r: The robot's discount.
        aggregate: Sums over the successors of each pair.
    """
    by_pair = aggregate(v_r, collected.pairs, weight=collected.prob)
    transitions, profiles = profile_prob.shape
    by_pair = by_pair.view(transitions, profiles, -1)
    return gamma_r * torch.einsum("tp,tpr->tr", profile_prob, by_pair)


def aggregate_v_h_e(
    payoff: Float[Tensor, "item slot"],
    collected: CollectedStates,
    profile_prob: Float[Tensor, "transition profile slot"],
    pi_r: Float[Tensor, "transition robot_action"],
    aggregate: Aggregator,
) -> Float[Tensor, "transition slot"]:
    """Stage 5: V_h^e(s, g) = E_{a_H | g} E_{a_r} E_{s'} [1 if g holds in s' else gamma_h V_h^e].

    This is equation (6); the robots' actions are averaged over, not maximised.

    Args:
        payoff: The bracket of each successor s'.
        collected: The successors.
        profile_prob: Probability of each joint action a_H of the humans while the slot's human
            pursues the slot's goal g.
        pi_r: The robots' policy.
        aggregate: Sums over the successors of each pair.
    """
    by_pair = aggregate(payoff, collected.pairs, weight=collected.prob)
    transitions, profiles, slots = profile_prob.shape
    by_pair = by_pair.view(transitions, profiles, -1, slots)
    return (profile_prob * torch.einsum("tr,tprs->tps", pi_r, by_pair)).sum(1)


def one_step_q_r(
    states: States,
    transitions: Transitions,
    quantities: Quantities,
    profiles: HumanProfiles,
    gamma_r: float,
) -> Float[Tensor, "transition robot_action"]:
    """Q_r where transitions start, in closed form from a learned V_r, equation (4).

    Args:
        states: The states that occur in ``transitions``, by position.
        transitions: Their successors.
        quantities: Those of which V_r is learned.
        profiles: Probabilities of the humans' joint actions.
        gamma_r: The robot's discount.
    """
    collected = collect(transitions, quantities.spec)
    timed = encode(collected.key, quantities.spec, states.at)
    profile_prob, _ = profiles.of(transitions, timed.layout[collected.source])
    v_r = torch.cat([quantities.v_r(part) for part in quantities.parts(timed)])
    successor_v_r, aggregate = v_r[collected.successor], quantities.aggregate
    return aggregate_q_r(successor_v_r, collected, profile_prob, gamma_r, aggregate)


class TargetComputer:
    """Computes the targets of batches: the five stages, one after the other."""

    def __init__(
        self,
        quantities: Quantities,
        *,
        model_based: bool,
        measure: Callable[[str], AbstractContextManager[object]] = nullcontext,
        advantage_floor: float | None = None,
        cache: TargetCache | None = None,
    ) -> None:
        """Prepare the computation.

        Args:
            quantities: Those of target networks.
            model_based: Whether all robot actions have successors; else only the taken one.
            measure: Given the name of each stage, measures what happens within its context.
            advantage_floor: Weigh errors of Q_r by the decisions that depend on them, and by this.
            cache: Values that are in it are read there, and others are put into it; None keeps
                none from one batch to the next.
        """
        self._quantities, self._cache, self._measure = quantities, cache, measure
        self._model_based, self._advantage_floor = model_based, advantage_floor
        self._profiles = HumanProfiles(quantities.spec, quantities.goals)

    @torch.no_grad()
    def __call__(
        self,
        batch: Transitions,
        look_up: LookUp,
        current: ScheduledTheory,
        uniform: Float[Tensor, " transition"] | None = None,
    ) -> BatchTargets:
        """The targets of a batch.

        Args:
            batch: The transitions.
            look_up: Gives states by id.
            current: Parameters of the theory that change, as they are now.
            uniform: Numbers in [0, 1) for the rejection test; needed without a model.

        Raises:
            NonFiniteError: if a value of a network is not finite.
        """
        measure, quantities = self._measure, self._quantities
        aggregate, learned = quantities.aggregate, quantities.networks
        with measure("stage1_collect"):
            collected = collect(batch, quantities.spec)
            source, successor = collected.source, collected.successor
        with measure("stage2_encode"):
            timed = encode(collected.key, quantities.spec, look_up)
            sources = timed.at(source)
        with measure("stage3_forward"):
            cache = TargetCache() if self._cache is None else self._cache
            values = cache.read(collected.key, lambda new: quantities.forward(timed.at(new)))
            if "v_r" not in values:
                u_r, q_r = values["u_r"], values["q_r"]
                pi_r = policy_of(q_r, timed.available, current.beta_r)
                values["v_r"] = quantities.closed_form_v_r(timed, u_r, q_r, pi_r)
        with measure("stage4_aggregate_q_r"):
            profile_prob, profile_prob_of_slot = self._profiles.of(batch, sources.layout)
            v_r = values["v_r"][successor]
            q_r = aggregate_q_r(v_r, collected, profile_prob, current.gamma_r, aggregate)
            # One step ahead is nearer than what is learned, where it is no sample; where it is,
            # Q_r is learned (``problem`` refuses anything else).
            source_q_r = q_r if batch.covers_profiles else values["q_r"][source]
            pi_r = policy_of(source_q_r, sources.available, current.beta_r)
            robot_action_prob, q_r_weight = pi_r, sources.available.to(q_r.dtype)
            if not self._model_based:
                # One-hot: only the action that was taken has successors.
                action = batch.action.long()[:, None]
                robot_action_prob = q_r_weight = torch.zeros_like(q_r).scatter(1, action, 1.0)
            if self._advantage_floor is not None:
                floor = self._advantage_floor
                q_r_weight = q_r_weight * decision_weight(pi_r, sources.available, floor)
        with measure("stage5_aggregate_v_h_e"):
            payoff = torch.where(timed.achieved, 1.0, current.gamma_h * values["v_h_e"])
            v_h_e = aggregate_v_h_e(
                payoff[successor], collected, profile_prob_of_slot, robot_action_prob, aggregate
            )
            has_goal = quantities.goals.goal[sources.layout] >= 0
            v_h_e_weight = (has_goal & batch.acts_for).to(v_h_e.dtype)
            if not self._model_based:
                assert uniform is not None
                v_h_e_weight *= samples_policy(batch, pi_r, uniform)[:, None]
        # Where they are learned, the other three have targets too: what they are in closed form.
        others: dict[Quantity, Tensor] = {}
        if "x_h" in learned:
            others["x_h"] = quantities.closed_form_x_h(sources, values["v_h_e"][source])
        if "u_r" in learned:
            others["u_r"] = quantities.closed_form_u_r(values["x_h"][source])
        if "v_r" in learned:
            u_r = values["u_r"][source]
            others["v_r"] = quantities.closed_form_v_r(sources, u_r, source_q_r, pi_r)
        return BatchTargets(
            sources=sources,
            q_r=q_r,
            q_r_weight=q_r_weight,
            pi_r=pi_r,
            v_h_e=v_h_e,
            v_h_e_weight=v_h_e_weight,
            x_h=others.get("x_h"),
            u_r=others.get("u_r"),
            v_r=others.get("v_r"),
            distinct=len(timed),
            items=len(collected.successor),
        )


def samples_policy(
    batch: Transitions,
    pi_r: Float[Tensor, "transition robot_action"],
    uniform: Float[Tensor, " transition"],
) -> Bool[Tensor, " transition"]:
    """True where the action taken is a sample of the policy: a rejection test.

    Actions that the behaviour policy never takes are left out.
    """
    behaviour = batch.behaviour.to(pi_r.dtype)
    ratio = torch.where(behaviour > 0, pi_r / behaviour.clamp(min=1e-38), 0.0)
    chosen_ratio = ratio.gather(1, batch.action.long()[:, None])[:, 0]
    return uniform.to(pi_r.dtype) * ratio.amax(1) < chosen_ratio


def decision_weight(
    pi_r: Float[Tensor, "transition robot_action"],
    available: Bool[Tensor, "transition robot_action"],
    floor: float,
) -> Float[Tensor, "transition robot_action"]:
    """Sensitivity of the policy to errors of each Q_r: pi (1 - pi) + floor.

    It is 1 on average over the actions that exist in a state, and 0 for others. Where the policy
    is certain and ``floor`` is 0, nothing would change it; then all count alike.
    """
    exists = available.to(pi_r.dtype)
    weight = exists * (pi_r * (1 - pi_r) + floor)
    mean = weight.sum(-1, keepdim=True) / exists.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(mean > 0, weight / mean.clamp(min=1e-12), exists)
