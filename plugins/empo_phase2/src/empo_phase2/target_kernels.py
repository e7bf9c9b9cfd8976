# mypy: disable-error-code="no-any-return"
"""Targets of Q_r and V_h^e in one compiled loop over the transitions of a batch.

The equations are those of ``targets``, which tests compare with it. All numbers that add up are
in double precision.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_core.compilation import compiled, inlined
from empo_phase2.quantities import LEAST_Q

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Known(NamedTuple):
    """Timed states, and their values by target networks; ``[situation ...]`` each.

    ``v_r`` holds for the exponent in ``beta_r`` where it is in closed form; ``q_r`` has no columns
    where it is.
    """

    layout: Ints
    alive: Flags
    achieved: Flags
    available: Flags
    v_h_e: Floats
    x_h: Floats
    u_r: Floats
    q_r: Floats
    v_r: Floats
    beta_r: Floats


class Batch(NamedTuple):
    """Transitions: as in ``experience.Transitions``, and the situation of each occurrence.

    ``distinct`` numbers the batch's timed states, those where transitions start before successors;
    ``place`` says which of ``Known`` each of these is.
    """

    distinct: NDArray[np.int32]
    place: Ints
    human_policy: NDArray[np.float32]
    goal: Ints
    action: Ints
    offsets: Ints
    prob: NDArray[np.float32]


class People(NamedTuple):
    """The humans: actions in each profile; human, share, weight and existence of each goal slot."""

    action: Ints
    human: Ints
    share: Floats
    weight: Floats
    exists: Flags


class Setting(NamedTuple):
    """Parameters; ``floor`` is negative where errors of all actions count alike."""

    gamma_h: float
    gamma_r: float
    beta_r: float
    terminal_value: float
    floor: float
    model_based: bool
    is_v_r_learned: bool
    looks_ahead: bool


class Found(NamedTuple):
    """Room for results, and for what is known of humans in between."""

    q_r: Floats
    q_r_weight: Floats
    pi_r: Floats
    v_h_e: Floats
    v_h_e_weight: Floats
    mean: Floats
    chance: Floats


@compiled
def timed_keys(
    state: Ints, steps_left: Ints, successor: Ints, offsets: Ints, step: int, span: int, keys: Ints
) -> None:
    """Numbers of the timed states where transitions start and of their successors, in ``keys``."""
    count = len(state)
    pairs = (len(offsets) - 1) // max(1, count)
    for t in range(count):
        keys[t, 0] = state[t] * span + steps_left[t]
        for item in range(offsets[t * pairs], offsets[(t + 1) * pairs]):
            keys[count + item, 0] = successor[item] * span + steps_left[t] - step


@inlined
def put_policy(
    q_r: Floats, line: int, available: Flags, state: int, beta_r: float, pi_r: Floats, out: int
) -> None:
    """The robots' policy, equation (5), in a line of ``pi_r``; see ``quantities.policy_of``."""
    actions = q_r.shape[1]
    exists = False
    for a in range(actions):
        exists |= available[state, a]
    top = -math.inf
    for a in range(actions):
        logit = -math.inf
        if available[state, a] or not exists:
            q = q_r[line, a]
            logit = -beta_r * math.log(LEAST_Q * -1.0 if q > LEAST_Q else -q)
        pi_r[out, a] = logit
        top = max(top, logit)
    total = 0.0
    for a in range(actions):
        pi_r[out, a] = math.exp(pi_r[out, a] - top)
        total += pi_r[out, a]
    for a in range(actions):
        pi_r[out, a] /= total


@inlined
def value_robot(known: Known, i: int, setting: Setting, pi_r: Floats) -> float:
    """Bring V_r of a situation up to date, equation (9); returns 0, or NaN where that is wrong.

    A line of ``pi_r`` is overwritten.
    """
    wrong = 0.0
    for s in range(known.v_h_e.shape[1]):
        wrong += 0.0 * known.v_h_e[i, s]
    if known.alive[i]:
        wrong += 0.0 * known.u_r[i]
        for h in range(known.x_h.shape[1]):
            wrong += 0.0 * known.x_h[i, h]
        for a in range(known.q_r.shape[1]):
            if known.available[i, a]:
                wrong += 0.0 * known.q_r[i, a]
        if not setting.is_v_r_learned:
            put_policy(known.q_r, i, known.available, i, setting.beta_r, pi_r, 0)
            value = known.u_r[i]
            for a in range(known.q_r.shape[1]):
                if pi_r[0, a] != 0.0:
                    value += pi_r[0, a] * known.q_r[i, a]
            known.v_r[i] = value
    elif not setting.is_v_r_learned:
        known.v_r[i] = setting.terminal_value
    known.beta_r[i] = setting.beta_r
    return wrong + 0.0 * known.v_r[i]


@inlined
def put_mean_actions(batch: Batch, people: People, t: int, layout: int, mean: Floats) -> None:
    """Each human's action probabilities on average over its goals, in ``mean``."""
    slots, actions = batch.human_policy.shape[1], batch.human_policy.shape[2]
    for h in range(mean.shape[0]):
        for a in range(actions):
            mean[h, a] = 0.0
    for s in range(slots):
        h = people.human[s]
        for a in range(actions):
            mean[h, a] += people.share[layout, s, h] * batch.human_policy[t, s, a]


@inlined
def put_chances(batch: Batch, people: People, t: int, p: int, found: Found) -> None:
    """Probability of a profile given that a slot's human pursues its goal, for each slot."""
    for s in range(batch.human_policy.shape[1]):
        own = people.human[s]
        chance = 1.0 * (batch.human_policy[t, s, people.action[p, own]])
        for h in range(people.action.shape[1]):
            if h != own:
                chance *= found.mean[h, people.action[p, h]]
        found.chance[s] = chance


@inlined
def put_q_r(
    batch: Batch, people: People, known: Known, t: int, gamma_r: float, found: Found
) -> None:
    """Q_r of all actions where a transition starts, equation (4)."""
    count, actions = found.q_r.shape
    profiles = len(people.action)
    is_sampled = batch.human_policy.shape[1] == 0
    for a in range(actions):
        found.q_r[t, a] = 0.0
    for p in range(profiles):
        chance = gamma_r
        if not is_sampled:
            for h in range(people.action.shape[1]):
                chance *= found.mean[h, people.action[p, h]]
        for a in range(actions):
            pair = (t * profiles + p) * actions + a
            worth = 0.0
            for item in range(batch.offsets[pair], batch.offsets[pair + 1]):
                here = batch.place[batch.distinct[count + item]]
                worth += batch.prob[item] * known.v_r[here]
            found.q_r[t, a] += chance * worth


@inlined
def put_weights(batch: Batch, known: Known, t: int, i: int, setting: Setting, found: Found) -> None:
    """Weights of the errors of Q_r, see ``targets.decision_weight``; the policy where it acts."""
    actions = found.q_r.shape[1]
    number, total = 0, 0.0
    for a in range(actions):
        exists = known.available[i, a]
        weight = exists * (found.pi_r[t, a] * (1 - found.pi_r[t, a]) + setting.floor)
        if setting.floor < 0:
            weight = 1.0 * exists
        number += exists
        total += weight
        found.q_r_weight[t, a] = weight
    mean = total / max(number, 1)
    for a in range(actions):
        if setting.floor >= 0:
            if mean > 0:
                found.q_r_weight[t, a] /= max(mean, 1e-12)
            else:
                found.q_r_weight[t, a] = known.available[i, a]
        if not setting.model_based and a != batch.action[t]:
            found.q_r_weight[t, a] = 0.0


@inlined
def put_v_h_e(
    batch: Batch, people: People, known: Known, t: int, setting: Setting, found: Found
) -> None:
    """V_h^e of each slot where a transition starts, equation (6)."""
    count, actions = found.q_r.shape
    slots, profiles = found.v_h_e.shape[1], len(people.action)
    is_sampled = batch.human_policy.shape[1] == 0
    for s in range(slots):
        found.v_h_e[t, s] = 0.0
        found.chance[s] = 0.0
    for h in range(batch.goal.shape[1]):
        found.chance[batch.goal[t, h]] = 1.0
    for p in range(profiles):
        if not is_sampled:
            put_chances(batch, people, t, p, found)
        for a in range(actions):
            acts = found.pi_r[t, a]
            if not setting.model_based:
                acts = 1.0 * (a == batch.action[t])
            pair = (t * profiles + p) * actions + a
            for item in range(batch.offsets[pair], batch.offsets[pair + 1]):
                here = batch.place[batch.distinct[count + item]]
                chance = acts * batch.prob[item]
                for s in range(slots):
                    worth = setting.gamma_h * known.v_h_e[here, s]
                    if known.achieved[here, s]:
                        worth = 1.0
                    found.v_h_e[t, s] += found.chance[s] * chance * worth
    layout = known.layout[batch.place[batch.distinct[t]]]
    for s in range(slots):
        asked = not is_sampled or found.chance[s] > 0.0
        found.v_h_e_weight[t, s] = 1.0 * (asked and people.exists[layout, s])


@compiled
def put_targets(batch: Batch, people: People, known: Known, setting: Setting, found: Found) -> bool:
    """Fill in the targets of a batch; returns False where a value or target is not finite."""
    wrong = 0.0
    for layout in range(people.weight.shape[0]):
        for s in range(people.weight.shape[1]):
            wrong += 0.0 * people.weight[layout, s]
    for distinct in range(len(batch.place)):
        i = batch.place[distinct]
        if known.beta_r[i] != setting.beta_r:
            wrong += value_robot(known, i, setting, found.pi_r)
    for t in range(len(found.q_r)):
        i = batch.place[batch.distinct[t]]
        if batch.human_policy.shape[1] > 0:
            put_mean_actions(batch, people, t, known.layout[i], found.mean)
        put_q_r(batch, people, known, t, setting.gamma_r, found)
        if setting.looks_ahead:
            put_policy(found.q_r, t, known.available, i, setting.beta_r, found.pi_r, t)
        else:
            put_policy(known.q_r, i, known.available, i, setting.beta_r, found.pi_r, t)
        put_weights(batch, known, t, i, setting, found)
        put_v_h_e(batch, people, known, t, setting, found)
        for a in range(found.q_r.shape[1]):
            if found.q_r_weight[t, a] != 0.0:
                wrong += 0.0 * found.q_r[t, a]
        for s in range(found.v_h_e.shape[1]):
            if found.v_h_e_weight[t, s] != 0.0:
                wrong += 0.0 * found.v_h_e[t, s]
    return wrong == 0.0
