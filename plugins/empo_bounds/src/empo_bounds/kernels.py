"""Compiled loops over transitions: condense them, follow them forward, and value them backward.

``plain_induction`` does the same without numba, one pair at a time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_core.compilation import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

DONE: Final = -1
SUM_TOLERANCE: Final = 1e-9
"""Allowed distance of a pair's sum of transition probabilities from 1."""


class Batch(NamedTuple):
    """Some (state, time) pairs, and where the joint actions lead that are possible there.

    Attributes:
        first: Start of each pair's joint actions in the next one [pair + 1].
        joint: Joint actions [asked].
        offsets: Start of the items of each asked joint action [asked + 1].
        outcome: The outcome of each item [item].
        prob: Probability of each outcome [outcome].
        landing: Where each outcome leads [outcome].
        robot: The robots' policy [pair robot_action].
        marginal: Each human's policy, averaged over its goals [human pair action].
        joint_robot: The robots' part of each joint action [joint].
        joint_action: Each human's action in each joint action [human joint].
    """

    first: Longs
    joint: Longs
    offsets: Longs
    outcome: Longs
    prob: Floats
    landing: Ints
    robot: Floats
    marginal: Floats
    joint_robot: Longs
    joint_action: Longs


class Condensed(NamedTuple):
    """Transitions given the action of one human, the others and the robots averaged.

    Attributes:
        offsets: Start of the entries of each pair and action [human, pair * actions + 1].
        landing: Where an entry leads [human entry].
        weight: Its probability [human entry].
        items: How many items the entries of a pair sum up [pair].
    """

    offsets: Longs
    landing: Ints
    weight: Floats
    items: Longs


class Scratch(NamedTuple):
    """Working memory of ``condense``.

    Attributes:
        place: Slot of each landing; -1 throughout between calls [landing].
        touched: Landing of each slot [slot].
        dense: Weights; 0 throughout between calls [human action slot].
    """

    place: Ints
    touched: Ints
    dense: Floats


@compiled
def condense(batch: Batch, out: Condensed, s: Scratch) -> int:
    """Sum up the transitions of each pair by human, its action, and where they lead.

    Returns:
        ``DONE``, or the position of an asked joint action whose probabilities do not sum to 1.
    """
    humans, actions = s.dense.shape[0], s.dense.shape[1]
    for human in range(humans):
        out.offsets[human, 0] = 0
    for pair in range(batch.first.shape[0] - 1):
        slots, items = 0, 0
        for asked in range(batch.first[pair], batch.first[pair + 1]):
            total = 0.0
            for item in range(batch.offsets[asked], batch.offsets[asked + 1]):
                outcome = batch.outcome[item]
                landing = batch.landing[outcome]
                total += batch.prob[outcome]
                if s.place[landing] < 0:
                    s.place[landing] = slots
                    s.touched[slots] = landing
                    slots += 1
            if not abs(total - 1.0) <= SUM_TOLERANCE:
                for slot in range(slots):
                    s.place[s.touched[slot]] = -1
                return asked
            items += batch.offsets[asked + 1] - batch.offsets[asked]
        for asked in range(batch.first[pair], batch.first[pair + 1]):
            joint = batch.joint[asked]
            for human in range(humans):
                weight = batch.robot[pair, batch.joint_robot[joint]]
                for other in range(humans):
                    if other != human:
                        weight *= batch.marginal[other, pair, batch.joint_action[other, joint]]
                if weight == 0.0:
                    continue
                action = batch.joint_action[human, joint]
                for item in range(batch.offsets[asked], batch.offsets[asked + 1]):
                    outcome = batch.outcome[item]
                    slot = s.place[batch.landing[outcome]]
                    s.dense[human, action, slot] += weight * batch.prob[outcome]
        for human in range(humans):
            used = out.offsets[human, pair * actions]
            for action in range(actions):
                for slot in range(slots):
                    weight = s.dense[human, action, slot]
                    if weight > 0.0:
                        out.landing[human, used] = s.touched[slot]
                        out.weight[human, used] = weight
                        used += 1
                        s.dense[human, action, slot] = 0.0
                out.offsets[human, pair * actions + action + 1] = used
        for slot in range(slots):
            s.place[s.touched[slot]] = -1
        out.items[pair] = items
    return DONE


class Steps(NamedTuple):
    """Condensed transitions of one human in all moments that were expanded.

    Attributes:
        offsets: Start of the entries of each moment and action [moment * actions + 1].
        landing: Where an entry leads [entry].
        weight: Its probability [entry].
        policy: Row of each moment in the table of the human's policies [moment].
    """

    offsets: Longs
    landing: Ints
    weight: Floats
    policy: Ints


@compiled
def arrive(
    steps: Steps, actions: int, moment: Ints, position: Ints, landings: Ints, count: int
) -> int:
    """Add where moments lead to the pairs of a time.

    Args:
        steps: Of one human.
        actions: The most actions that a human has.
        moment: Moments [chosen].
        position: Position of each landing among the pairs of the time, -1 where it is none of
            them; filled in [landing].
        landings: The landings of the time's pairs, with room for all; filled in [landing].
        count: How many pairs there are.

    Returns:
        How many there are then.
    """
    for each in range(moment.shape[0]):
        first = moment[each] * actions
        for entry in range(steps.offsets[first], steps.offsets[first + actions]):
            landing = steps.landing[entry]
            if position[landing] < 0:
                position[landing] = count
                landings[count] = landing
                count += 1
    return count


@compiled
def follow_average(
    steps: Steps, marginal: Floats, moment: Ints, here: Floats, position: Ints, there: Floats
) -> None:
    """Add to ``there`` [later pair] the occupancy that leaves ``here`` [pair] one step later.

    Args:
        steps: Of one human, no matter which.
        marginal: Its policies, averaged over goals [policy action].
        moment: The moment of each pair; -1 where it was not expanded [pair].
        here: Occupancy of the pairs of a time.
        position: Position of each landing among the pairs of the next time [landing].
        there: Receives the sums.
    """
    actions = marginal.shape[1]
    for pair in range(moment.shape[0]):
        mass, each = here[pair], moment[pair]
        if mass == 0.0 or each < 0:
            continue
        for action in range(actions):
            chance = mass * marginal[steps.policy[each], action]
            if chance == 0.0:
                continue
            row = each * actions + action
            for entry in range(steps.offsets[row], steps.offsets[row + 1]):
                there[position[steps.landing[entry]]] += chance * steps.weight[entry]


class Pursuit(NamedTuple):
    """Occupancy while one human pursues each of its goals, until it is attained.

    Attributes:
        policy: The human's policies [policy goal action].
        first: The human's first goal, goals human by human.
        here: At the pairs of a time [pair goal].
        there: Receives that of the next time [later pair, goal].
        achieved: 1 where a pair of the next time attains a goal [later pair, goal].
    """

    policy: Floats
    first: int
    here: Floats
    there: Floats
    achieved: NDArray[np.uint8]


@compiled
def follow_goals(steps: Steps, moment: Ints, position: Ints, pursuit: Pursuit) -> None:
    """Add to ``pursuit.there`` the occupancy that leaves ``pursuit.here`` one step later."""
    goals, actions = pursuit.policy.shape[1], pursuit.policy.shape[2]
    for pair in range(moment.shape[0]):
        each = moment[pair]
        if each < 0:
            continue
        policy = steps.policy[each]
        for action in range(actions):
            row = each * actions + action
            for entry in range(steps.offsets[row], steps.offsets[row + 1]):
                target, weight = position[steps.landing[entry]], steps.weight[entry]
                for goal in range(goals):
                    column = pursuit.first + goal
                    if pursuit.achieved[target, column] == 0:
                        chance = pursuit.here[pair, column] * pursuit.policy[policy, goal, action]
                        pursuit.there[target, column] += chance * weight


class Bounds(NamedTuple):
    """Bounds of numbers that are at least 0.

    Attributes:
        low: From below.
        high: From above.
    """

    low: Floats
    high: Floats


class Pairs(NamedTuple):
    """Pairs of a time, and where those of the next time are.

    Attributes:
        moment: The moment of each pair; -1 where it was not expanded [pair].
        position: Position of each landing among the pairs of the next time [landing].
    """

    moment: Ints
    position: Ints


@compiled
def attain(
    steps: Steps, policy: Floats, first: int, pairs: Pairs, worth: Bounds, out: Bounds
) -> None:
    """Computed V_h^e of one human's goals, equation (6), before outward rounding.

    Args:
        steps: The human's transitions.
        policy: Its policies [policy goal action].
        first: Its first goal, goals human by human.
        pairs: The pairs of a time.
        worth: 1 where a later pair attains a goal, else discounted V_h^e there [later pair, goal].
        out: Receives the sums of pairs that were expanded [pair goal].
    """
    goals, actions = policy.shape[1], policy.shape[2]
    for pair in range(pairs.moment.shape[0]):
        each = pairs.moment[pair]
        if each < 0:
            continue
        chosen = steps.policy[each]
        for goal in range(goals):
            out.low[pair, first + goal] = 0.0
            out.high[pair, first + goal] = 0.0
        for action in range(actions):
            row = each * actions + action
            for entry in range(steps.offsets[row], steps.offsets[row + 1]):
                target, weight = pairs.position[steps.landing[entry]], steps.weight[entry]
                for goal in range(goals):
                    column = first + goal
                    chance = policy[chosen, goal, action] * weight
                    out.low[pair, column] += chance * worth.low[target, column]
                    out.high[pair, column] += chance * worth.high[target, column]


@compiled
def expect(steps: Steps, marginal: Floats, pairs: Pairs, payoff: Floats, out: Floats) -> None:
    """Expected payoffs one step later, everybody on average, before outward rounding.

    Args:
        steps: Of one human, no matter which.
        marginal: Its policies, averaged over goals [policy action].
        pairs: The pairs of a time.
        payoff: Numbers at least 0, infinity allowed [later pair, column].
        out: Receives the sums of pairs that were expanded [pair column].
    """
    actions, columns = marginal.shape[1], payoff.shape[1]
    for pair in range(pairs.moment.shape[0]):
        each = pairs.moment[pair]
        if each < 0:
            continue
        for column in range(columns):
            out[pair, column] = 0.0
        for action in range(actions):
            chance = marginal[steps.policy[each], action]
            if chance == 0.0:  # Times an infinite payoff, that would be no number.
                continue
            row = each * actions + action
            for entry in range(steps.offsets[row], steps.offsets[row + 1]):
                target, weight = pairs.position[steps.landing[entry]], chance * steps.weight[entry]
                for column in range(columns):
                    out[pair, column] += weight * payoff[target, column]
