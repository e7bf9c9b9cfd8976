# mypy: disable-error-code="no-any-return"
"""Targets of Q_r and V_h^e in one compiled loop over the transitions of a batch.

The equations are those of ``targets``, which tests compare with it. All numbers that add up are
in double precision.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_phase2.quantities import LEAST_Q
from empo_worlds.compilation import compiled, inlined
from empo_worlds.row_table import find_slot

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Places = NDArray[np.int32]

VALUE, WEIGHT, POLICY = range(3)


class ValueTable(NamedTuple):
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
    """Transitions: as in ``experience.Transitions``, and their situations, which of ``ValueTable``.

    ``place`` has those where transitions start before successors; ``distinct`` has each once.
    ``uniform`` has a number per transition, or none where there is a model.
    """

    place: Places
    distinct: Places
    human_policy: NDArray[np.float32]
    acts_for: Flags
    behaviour: NDArray[np.float32]
    action: Ints
    offsets: Ints
    prob: NDArray[np.float32]
    uniform: Floats


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


class TargetArrays(NamedTuple):
    """Room for targets: Q_r, its weights and the policy; V_h^e and its weights.

    ``[transition robot_action]`` or ``[transition slot]`` each, in the precision of networks.
    """

    q_r: NDArray[Any]
    q_r_weight: NDArray[Any]
    pi_r: NDArray[Any]
    v_h_e: NDArray[Any]
    v_h_e_weight: NDArray[Any]


class Scratch(NamedTuple):
    """Room for the same of one transition in double precision, and chances of humans' actions.

    ``[3 robot_action]``, ``[2 slot]``, ``[human action]`` and ``[slot]``.
    """

    robot: Floats
    human: Floats
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


@compiled
def places(
    keys: Ints, rows: NDArray[np.uint64], slots: Places, is_listed: Flags, place: Places,
    distinct: Places,
) -> int:  # fmt: skip
    """Look up keys of timed states; returns how many are distinct, or -1 if one is unknown.

    Args:
        keys: The keys [occurrence 1].
        rows: All known keys [situation 1].
        slots: Their hash table, as in ``row_table``.
        is_listed: A False for each of them.
        place: Gets the position of each key.
        distinct: Gets every position once, in order of first occurrence.
    """
    count = 0
    for item in range(len(keys)):
        if item > 0 and keys[item, 0] == keys[item - 1, 0]:
            place[item] = place[item - 1]
            continue
        i = slots[find_slot(keys, item, rows, slots)] - 1
        if i < 0:
            return -1
        place[item] = i
        if not is_listed[i]:
            is_listed[i] = True
            distinct[count] = i
            count += 1
    return count


@inlined
def put_policy(robot: Floats, available: Flags, i: int, beta_r: float) -> None:
    """From Q_r to the robots' policy, equation (5), both in ``robot``.

    See ``quantities.policy_of``.
    """
    actions = robot.shape[1]
    exists = False
    for a in range(actions):
        exists |= available[i, a]
    top = -math.inf
    for a in range(actions):
        logit = -math.inf
        if available[i, a] or not exists:
            q = robot[POLICY, a]
            logit = -beta_r * math.log(-LEAST_Q if q > LEAST_Q else -q)
        robot[POLICY, a] = logit
        top = max(top, logit)
    total = 0.0
    for a in range(actions):
        robot[POLICY, a] = math.exp(robot[POLICY, a] - top)
        total += robot[POLICY, a]
    for a in range(actions):
        robot[POLICY, a] /= total


@inlined
def value_robot(table: ValueTable, i: int, setting: Setting, robot: Floats) -> float:
    """Bring V_r of a situation up to date, equation (9); returns 0, or NaN where that is wrong.

    The policy in ``robot`` is overwritten.
    """
    wrong = 0.0
    for s in range(table.v_h_e.shape[1]):
        wrong += 0.0 * table.v_h_e[i, s]
    if table.alive[i]:
        wrong += 0.0 * table.u_r[i]
        for h in range(table.x_h.shape[1]):
            wrong += 0.0 * table.x_h[i, h]
        for a in range(table.q_r.shape[1]):
            if table.available[i, a]:
                wrong += 0.0 * table.q_r[i, a]
        if not setting.is_v_r_learned:
            for a in range(table.q_r.shape[1]):
                robot[POLICY, a] = table.q_r[i, a]
            put_policy(robot, table.available, i, setting.beta_r)
            value = table.u_r[i]
            for a in range(table.q_r.shape[1]):
                if robot[POLICY, a] != 0.0:
                    value += robot[POLICY, a] * table.q_r[i, a]
            table.v_r[i] = value
    elif not setting.is_v_r_learned:
        table.v_r[i] = setting.terminal_value
    table.beta_r[i] = setting.beta_r
    return wrong + 0.0 * table.v_r[i]


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
def put_chances(batch: Batch, people: People, t: int, p: int, scratch: Scratch) -> None:
    """Probability of a profile given that a slot's human pursues its goal, for each slot."""
    for s in range(batch.human_policy.shape[1]):
        human = people.human[s]
        chance = 1.0 * (batch.human_policy[t, s, people.action[p, human]])
        for h in range(people.action.shape[1]):
            if h != human:
                chance *= scratch.mean[h, people.action[p, h]]
        scratch.chance[s] = chance


@inlined
def put_q_r(
    batch: Batch, people: People, table: ValueTable, t: int, gamma_r: float, scratch: Scratch
) -> None:
    """Q_r of all actions where a transition starts, equation (4)."""
    count, actions = len(batch.action), scratch.robot.shape[1]
    profiles = len(people.action)
    is_sampled = batch.human_policy.shape[1] == 0
    for a in range(actions):
        scratch.robot[VALUE, a] = 0.0
    for p in range(profiles):
        chance = gamma_r
        if not is_sampled:
            for h in range(people.action.shape[1]):
                chance *= scratch.mean[h, people.action[p, h]]
        for a in range(actions):
            pair = (t * profiles + p) * actions + a
            next_value = 0.0
            for item in range(batch.offsets[pair], batch.offsets[pair + 1]):
                here = batch.place[count + item]
                next_value += batch.prob[item] * table.v_r[here]
            scratch.robot[VALUE, a] += chance * next_value


@inlined
def put_weights(
    batch: Batch, table: ValueTable, t: int, i: int, setting: Setting, scratch: Scratch
) -> None:
    """Weights of the errors of Q_r, see ``targets.decision_weight``; the policy where it acts."""
    actions = scratch.robot.shape[1]
    number, total = 0, 0.0
    for a in range(actions):
        exists = table.available[i, a]
        acts = scratch.robot[POLICY, a]
        weight = exists * (acts * (1 - acts) + setting.floor)
        if setting.floor < 0:
            weight = 1.0 * exists
        number += exists
        total += weight
        scratch.robot[WEIGHT, a] = weight
    mean = total / max(number, 1)
    for a in range(actions):
        if setting.floor >= 0:
            if mean > 0:
                scratch.robot[WEIGHT, a] /= max(mean, 1e-12)
            else:
                scratch.robot[WEIGHT, a] = table.available[i, a]
        if not setting.model_based and a != batch.action[t]:
            scratch.robot[WEIGHT, a] = 0.0


@inlined
def evaluates_policy(batch: Batch, t: int, robot: Floats) -> bool:
    """The rejection test of ``targets.evaluates_policy``."""
    top = 0.0
    for a in range(robot.shape[1]):
        if batch.behaviour[t, a] > 0.0:
            top = max(top, robot[POLICY, a] / batch.behaviour[t, a])
    action = batch.action[t]
    if not batch.behaviour[t, action] > 0.0:
        return False
    return batch.uniform[t] * top < robot[POLICY, action] / batch.behaviour[t, action]


@inlined
def put_v_h_e(
    batch: Batch, people: People, table: ValueTable, t: int, setting: Setting, scratch: Scratch
) -> None:
    """V_h^e of each slot where a transition starts, equation (6)."""
    count, actions = len(batch.action), scratch.robot.shape[1]
    slots, profiles = scratch.human.shape[1], len(people.action)
    is_sampled = batch.human_policy.shape[1] == 0
    for s in range(slots):
        scratch.human[VALUE, s] = 0.0
        scratch.chance[s] = 1.0
    for p in range(profiles):
        if not is_sampled:
            put_chances(batch, people, t, p, scratch)
        for a in range(actions):
            acts = scratch.robot[POLICY, a]
            if not setting.model_based:
                acts = 1.0 * (a == batch.action[t])
            pair = (t * profiles + p) * actions + a
            for item in range(batch.offsets[pair], batch.offsets[pair + 1]):
                here = batch.place[count + item]
                chance = acts * batch.prob[item]
                for s in range(slots):
                    payoff = setting.gamma_h * table.v_h_e[here, s]
                    if table.achieved[here, s]:
                        payoff = 1.0
                    scratch.human[VALUE, s] += scratch.chance[s] * chance * payoff
    layout = table.layout[batch.place[t]]
    is_policy = setting.model_based or evaluates_policy(batch, t, scratch.robot)
    for s in range(slots):
        is_used = is_policy and batch.acts_for[t, s]
        scratch.human[WEIGHT, s] = 1.0 * (is_used and people.exists[layout, s])


@inlined
def put_found(scratch: Scratch, t: int, targets: TargetArrays) -> float:
    """Write down the targets of a transition; returns 0, or NaN where one is not finite."""
    wrong = 0.0
    for a in range(scratch.robot.shape[1]):
        targets.q_r[t, a] = scratch.robot[VALUE, a]
        targets.q_r_weight[t, a] = scratch.robot[WEIGHT, a]
        targets.pi_r[t, a] = scratch.robot[POLICY, a]
        if scratch.robot[WEIGHT, a] != 0.0:
            wrong += 0.0 * scratch.robot[VALUE, a]
    for s in range(scratch.human.shape[1]):
        targets.v_h_e[t, s] = scratch.human[VALUE, s]
        targets.v_h_e_weight[t, s] = scratch.human[WEIGHT, s]
        if scratch.human[WEIGHT, s] != 0.0:
            wrong += 0.0 * scratch.human[VALUE, s]
    return wrong


@compiled
def put_targets(
    batch: Batch,
    people: People,
    table: ValueTable,
    setting: Setting,
    scratch: Scratch,
    targets: TargetArrays,
) -> bool:
    """Fill in the targets of a batch; returns False where a value or target is not finite."""
    wrong = 0.0
    for layout in range(people.weight.shape[0]):
        for s in range(people.weight.shape[1]):
            wrong += 0.0 * people.weight[layout, s]
    for distinct in range(len(batch.distinct)):
        i = batch.distinct[distinct]
        if table.beta_r[i] != setting.beta_r:
            wrong += value_robot(table, i, setting, scratch.robot)
    for t in range(len(batch.action)):
        i = batch.place[t]
        if batch.human_policy.shape[1] > 0:
            put_mean_actions(batch, people, t, table.layout[i], scratch.mean)
        put_q_r(batch, people, table, t, setting.gamma_r, scratch)
        for a in range(scratch.robot.shape[1]):
            if setting.looks_ahead:
                scratch.robot[POLICY, a] = scratch.robot[VALUE, a]
            else:
                scratch.robot[POLICY, a] = table.q_r[i, a]
        put_policy(scratch.robot, table.available, i, setting.beta_r)
        put_weights(batch, table, t, i, setting, scratch)
        put_v_h_e(batch, people, table, t, setting, scratch)
        wrong += put_found(scratch, t, targets)
    return wrong == 0.0
