"""Targets of all quantities for a batch of transitions, in five stages (seed 000).

``collect`` flattens the ragged successors and finds the distinct situations among them;
``encode`` looks up what networks read; ``forward`` asks every network once; ``scatter`` turns
values of successors into Q_r; ``attain`` does the same for V_h^e. None of them loops over
transitions, actions, humans, goals or successors, and successors are never padded.
``reference.py`` computes the same one state at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.protocols import Aggregator
from empo_core.types import Segments, WorldSpec
from empo_learning.stage_profile import StageProfile
from empo_phase2.experience import States, Transitions
from empo_phase2.goal_index import GoalIndex
from empo_phase2.profiles import HumanProfiles
from empo_phase2.quantities import Quantities, TimedStates, mean_value, policy_of
from empo_phase2.trajectories import Paths, along_q_r, along_v_h_e

LookUp = Callable[[Tensor], States]
"""What a replay knows about states, by id."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What targets depend on besides values.

    Attributes:
        gamma_h: The humans' discount now.
        gamma_r: The robot's discount now.
        beta_r: The exponent of the robot's policy now.
    """

    gamma_h: float
    gamma_r: float
    beta_r: float


@dataclass(frozen=True, slots=True)
class Collected:
    """The distinct situations of a batch, and where each occurs.

    Attributes:
        state: State id of each situation.
        steps_left: Its remaining steps.
        source: The situation that each transition starts from.
        item: The situation of each successor.
        path: The situations along each transition's trajectory, if any.
        pairs: The pair of each successor.
        prob: Its probability.
    """

    state: Int[Tensor, " distinct"]
    steps_left: Int[Tensor, " distinct"]
    source: Int[Tensor, " transition"]
    item: Int[Tensor, " item"]
    path: Int[Tensor, "transition step"] | None
    pairs: Segments
    prob: Float[Tensor, " item"]


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Values of the distinct situations, from one forward pass per network.

    Attributes:
        v_h_e: V_h^e of each slot.
        x_h: X_h of each human.
        u_r: U_r.
        q_r: Q_r; None where it is not learned.
        pi_r: The robots' policy; None where Q_r is not learned.
        v_r: V_r.
    """

    v_h_e: Float[Tensor, "distinct slot"]
    x_h: Float[Tensor, "distinct human"]
    u_r: Float[Tensor, " distinct"]
    q_r: Float[Tensor, "distinct robot_action"] | None
    pi_r: Float[Tensor, "distinct robot_action"] | None
    v_r: Float[Tensor, " distinct"]


@dataclass(frozen=True, slots=True)
class BatchTargets:
    """What each quantity should be where the batch's transitions start.

    Attributes:
        sources: Where they start.
        q_r: Target of Q_r.
        q_r_weight: Weight of its error: 0 where an action does not exist or was not seen.
        pi_r: The robots' policy there.
        v_h_e: Target of V_h^e.
        v_h_e_weight: Weight of its error: 0 where a slot has no goal or was not pursued.
        x_h: Target of X_h; None where it is in closed form.
        u_r: Target of U_r; None where it is in closed form.
        v_r: Target of V_r; None where it is in closed form.
        distinct: How many situations the networks were asked about.
        items: How many successors there were.
        must_be_finite: By name, what all this was computed from, and what came out of it.
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
    must_be_finite: dict[str, Tensor]


def collect(batch: Transitions, spec: WorldSpec, paths: Paths | None = None) -> Collected:
    """Stage 1: the distinct (state, remaining steps) among sources and successors."""
    transitions, pairs = batch.state.shape[0], batch.offsets.shape[0] - 1
    index = torch.repeat_interleave(batch.offsets.diff())
    # Without a horizon no step is ever counted down.
    passed = 0 if spec.horizon is None else 1
    of_transition = index // max(1, pairs // max(1, transitions))
    states = [batch.state, batch.successor]
    steps = [batch.steps_left, batch.steps_left[of_transition] - passed]
    if paths is not None:
        states.append(paths.state.flatten())
        steps.append(paths.steps_left.flatten())
    span = (spec.horizon or 1) + 1
    keys = torch.cat(states).long() * span + torch.cat(steps)
    distinct, inverse = torch.unique(keys, return_inverse=True)
    source, item, *rest = inverse.split([part.shape[0] for part in states])
    return Collected(
        distinct // span,
        distinct % span,
        source,
        item,
        rest[0].view_as(paths.state) if paths is not None else None,
        Segments(index, pairs, batch.offsets),
        batch.prob,
    )


def encode(collected: Collected, look_up: LookUp) -> TimedStates:
    """Stage 2: what networks read of each distinct situation."""
    return TimedStates.of(look_up(collected.state), collected.steps_left)


def forward(situations: TimedStates, values: Quantities, beta_r: float) -> Forwarded:
    """Stage 3: all values of the distinct situations; each network is asked once."""
    q_r = pi_r = None
    if "q_r" in values.networks:
        q_r = values.q_r(situations)
        pi_r = policy_of(q_r, situations.states.available, beta_r)
    v_h_e = values.v_h_e(situations)
    x_h = values.x_h(situations, v_h_e)
    u_r = values.u_r(situations, x_h)
    return Forwarded(v_h_e, x_h, u_r, q_r, pi_r, values.v_r(situations, u_r, q_r, pi_r))


def scatter(
    v_r: Float[Tensor, " distinct"],
    collected: Collected,
    chance: Float[Tensor, "transition profile"],
    gamma_r: float,
    aggregate: Aggregator,
) -> Float[Tensor, "transition robot_action"]:
    """Stage 4: Q_r of every joint robot action, equation (4)."""
    pairs = aggregate(v_r[collected.item], collected.pairs, weight=collected.prob)
    transitions, profiles = chance.shape
    return gamma_r * torch.einsum("tp,tpr->tr", chance, pairs.view(transitions, profiles, -1))


def attain(
    worth: Float[Tensor, "item slot"],
    collected: Collected,
    chance: Float[Tensor, "transition profile slot"],
    pi_r: Float[Tensor, "transition robot_action"],
    aggregate: Aggregator,
) -> Float[Tensor, "transition slot"]:
    """Stage 5: V_h^e of every slot, equation (6), averaged over all robot actions.

    Args:
        worth: What reaching each successor is worth: 1 where the goal is achieved there, else
            the discounted V_h^e.
        collected: The successors.
        chance: How likely each profile is while the slot's human pursues the slot's goal.
        pi_r: The robots' policy.
        aggregate: Adds up the successors of each pair.
    """
    pairs = aggregate(worth, collected.pairs, weight=collected.prob)
    transitions, profiles, slots = chance.shape
    pairs = pairs.view(transitions, profiles, -1, slots)
    return (chance * torch.einsum("tr,tprs->tps", pi_r, pairs)).sum(1)


def look_ahead(
    states: States,
    transitions: Transitions,
    values: Quantities,
    profiles: HumanProfiles,
    gamma_r: float,
    aggregate: Aggregator,
) -> Float[Tensor, "transition robot_action"]:
    """Q_r where transitions start, in closed form: one step ahead of V_r, which is learned.

    Args:
        states: The states that occur in ``transitions``, by position.
        transitions: What can follow.
        values: Has V_r.
        profiles: How likely the humans' joint actions are.
        gamma_r: The robot's discount.
        aggregate: Adds up successors.
    """
    collected = collect(transitions, values.spec)
    situations = encode(collected, states.at)
    chance, _ = profiles.of(transitions, situations.states.layout[collected.source])
    return scatter(values.v_r(situations), collected, chance, gamma_r, aggregate)


class TargetComputer:
    """Computes the targets of batches, the same way for every batch."""

    def __init__(
        self,
        spec: WorldSpec,
        slots: GoalIndex,
        aggregate: Aggregator,
        *,
        model_based: bool,
        profile: StageProfile,
    ) -> None:
        """Prepare the computation.

        Args:
            spec: What state rows look like.
            slots: The goals.
            aggregate: Adds up successors.
            model_based: Whether all robot actions have successors; else only the taken one.
            profile: Measures the stages.
        """
        self._spec, self._slots, self._aggregate = spec, slots, aggregate
        self._model_based, self._profile = model_based, profile
        self._profiles = HumanProfiles(spec, slots)

    @torch.no_grad()
    def __call__(
        self,
        batch: Transitions,
        look_up: LookUp,
        values: Quantities,
        setting: Setting,
        paths: Paths | None = None,
    ) -> BatchTargets:
        """The targets of a batch according to some values; along ``paths`` where they are given."""
        stage = self._profile.stage
        with stage("stage1_collect"):
            collected = collect(batch, self._spec, paths)
        with stage("stage2_encode"):
            situations = encode(collected, look_up)
            sources = situations.at(collected.source)
        with stage("stage3_forward"):
            found = forward(situations, values, setting.beta_r)
        with stage("stage4_scatter"):
            chance, by_slot = self._profiles.of(batch, sources.states.layout)
            q_r = scatter(found.v_r, collected, chance, setting.gamma_r, self._aggregate)
            if found.q_r is not None and found.pi_r is not None:
                known, pi_r = found.q_r[collected.source], found.pi_r[collected.source]
            else:  # Looking ahead with V_r gives Q_r.
                known = q_r
                pi_r = policy_of(known, sources.states.available, setting.beta_r)
            q_r_weight = sources.states.available.to(q_r.dtype)
            if not self._model_based or (paths is not None and paths.of_q_r):
                q_r_weight = taken(batch, q_r)
            if paths is not None and paths.of_q_r and collected.path is not None:
                u_r, v_r = found.u_r[collected.path], found.v_r[collected.path]
                q_r = along_q_r(paths, u_r, v_r, setting.gamma_r)[:, None].expand_as(q_r)
        with stage("stage5_v_h_e"):
            worth = torch.where(situations.states.achieved, 1.0, setting.gamma_h * found.v_h_e)
            if paths is not None and paths.of_v_h_e and collected.path is not None:
                where = collected.path[..., None], batch.goal[:, None, :]
                achieved, later = situations.states.achieved[where], found.v_h_e[where]
                v_h_e = along_v_h_e(paths, achieved, later, setting.gamma_h)
            else:
                acts = pi_r if self._model_based else taken(batch, q_r)
                v_h_e = self._attained(batch, worth, collected, by_slot, acts)
            v_h_e, v_h_e_weight = self._by_slot(v_h_e, batch, sources, paths)
        learned, start = values.networks, collected.source
        looked_at = _looked_at(batch, self._slots, situations, found) | {
            "the target of Q_r": torch.where(q_r_weight > 0, q_r, 0.0),
            "the target of V_h^e": torch.where(v_h_e_weight > 0, v_h_e, 0.0),
        }
        return BatchTargets(
            sources=sources,
            q_r=q_r,
            q_r_weight=q_r_weight,
            pi_r=pi_r,
            v_h_e=v_h_e,
            v_h_e_weight=v_h_e_weight,
            x_h=values.power(sources, found.v_h_e[start]) if "x_h" in learned else None,
            u_r=values.reward(found.x_h[start]) if "u_r" in learned else None,
            v_r=mean_value(found.u_r[start], known, pi_r) if "v_r" in learned else None,
            distinct=len(situations),
            items=len(collected.item),
            must_be_finite=looked_at,
        )

    def _attained(
        self,
        batch: Transitions,
        worth: Float[Tensor, "distinct slot"],
        collected: Collected,
        chance: Float[Tensor, "transition profile column"],
        pi_r: Float[Tensor, "transition robot_action"],
    ) -> Float[Tensor, "transition column"]:
        """V_h^e one step back: of all slots, or of those that the humans pursued."""
        if batch.human_policy.shape[1]:
            reached = worth[collected.item]
        else:
            goal = batch.goal[collected.pairs.index // pi_r.shape[1]]
            reached = worth[collected.item[:, None], goal]
        return attain(reached, collected, chance, pi_r, self._aggregate)

    def _by_slot(
        self,
        values: Float[Tensor, "transition column"],
        batch: Transitions,
        sources: TimedStates,
        paths: Paths | None,
    ) -> tuple[Float[Tensor, "transition slot"], Float[Tensor, "transition slot"]]:
        """Targets of slots and weights of their errors: 0 where a slot has no target."""
        weight = (self._slots.goal[sources.states.layout] >= 0).to(values.dtype)
        if batch.human_policy.shape[1] and (paths is None or not paths.of_v_h_e):
            return values, weight
        nothing = torch.zeros_like(weight)
        goal = batch.goal.long()
        return nothing.scatter(1, goal, values), nothing.scatter(1, goal, 1.0) * weight


def _looked_at(
    batch: Transitions, slots: GoalIndex, situations: TimedStates, found: Forwarded
) -> dict[str, Tensor]:
    """What targets are computed from, causes first; 0 where nobody reads it."""
    over = ~situations.alive
    looked_at = {
        "a successor's probability": batch.prob,
        "the humans' policy": batch.human_policy,
        "a goal's weight": slots.weight,
        "V_h^e": found.v_h_e,
        "X_h": found.x_h.masked_fill(over[:, None], 0.0),
        "U_r": found.u_r.masked_fill(over, 0.0),
    }
    if found.q_r is not None:
        missing = over[:, None] | ~situations.states.available
        looked_at["Q_r"] = found.q_r.masked_fill(missing, 0.0)
    # Last, for it may follow from all others.
    return looked_at | {"V_r": found.v_r}


def taken(
    batch: Transitions, like: Float[Tensor, "transition robot_action"]
) -> Float[Tensor, "transition robot_action"]:
    """1 at the joint robot action that was taken, 0 elsewhere."""
    return torch.zeros_like(like).scatter(1, batch.action.long()[:, None], 1.0)
