"""Compiled loops over transitions: condense them, and follow them forward."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_bounds.round_off import SMALLEST, Floats
from empo_worlds.compilation import compiled, inlined

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


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


@inlined
def is_possible(batch: Batch, pair: int, joint: int, human: int) -> bool:
    """True if the robots and all humans but one may take their parts of a joint action."""
    possible: bool = batch.robot[pair, batch.joint_robot[joint]] > 0.0
    for other in range(batch.marginal.shape[0]):
        if other != human and batch.marginal[other, pair, batch.joint_action[other, joint]] == 0.0:
            possible = False
    return possible


@compiled
def condense(batch: Batch, out: Condensed, s: Scratch) -> None:
    """Sum up the transitions of each pair by human, its action, and where they lead."""
    humans, actions = s.dense.shape[0], s.dense.shape[1]
    for human in range(humans):
        out.offsets[human, 0] = 0
    for pair in range(batch.first.shape[0] - 1):
        slots, items = 0, 0
        for row in range(batch.first[pair], batch.first[pair + 1]):
            for item in range(batch.offsets[row], batch.offsets[row + 1]):
                landing = batch.landing[batch.outcome[item]]
                if s.place[landing] < 0:
                    s.place[landing] = slots
                    s.touched[slots] = landing
                    slots += 1
            items += batch.offsets[row + 1] - batch.offsets[row]
        for row in range(batch.first[pair], batch.first[pair + 1]):
            joint = batch.joint[row]
            for human in range(humans):
                weight = batch.robot[pair, batch.joint_robot[joint]]
                for other in range(humans):
                    if other != human:
                        weight *= batch.marginal[other, pair, batch.joint_action[other, joint]]
                if weight == 0.0:  # All factors may be positive, and the product underflow.
                    if not is_possible(batch, pair, joint, human):
                        continue
                    weight = SMALLEST
                action = batch.joint_action[human, joint]
                for item in range(batch.offsets[row], batch.offsets[row + 1]):
                    outcome = batch.outcome[item]
                    slot, prob = s.place[batch.landing[outcome]], batch.prob[outcome]
                    s.dense[human, action, slot] += max(weight * prob, SMALLEST)
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
    for index in range(moment.shape[0]):
        first = moment[index] * actions
        for entry in range(steps.offsets[first], steps.offsets[first + actions]):
            landing = steps.landing[entry]
            if position[landing] < 0:
                position[landing] = count
                landings[count] = landing
                count += 1
    return count


@compiled
def follow_average(
    steps: Steps,
    marginal: Floats,
    moment: Ints,
    here: Floats,
    position: Ints,
    discount: Floats,
    there: Floats,
) -> None:
    """Add to ``there`` [later pair] the occupancy that leaves ``here`` [pair] one step later.

    Args:
        steps: Of one human, no matter which.
        marginal: Its policies, averaged over goals [policy action].
        moment: The moment of each pair; -1 where it was not expanded [pair].
        here: Occupancy of the pairs of a time.
        position: Position of each landing among the pairs of the next time [landing].
        discount: Factor of the occupancy that arrives at each landing [landing].
        there: Receives the sums.
    """
    actions = marginal.shape[1]
    for pair in range(moment.shape[0]):
        mass, moment_index = here[pair], moment[pair]
        if mass == 0.0 or moment_index < 0:
            continue
        for action in range(actions):
            chance = mass * marginal[steps.policy[moment_index], action]
            if chance == 0.0:
                continue
            row = moment_index * actions + action
            for entry in range(steps.offsets[row], steps.offsets[row + 1]):
                landing = steps.landing[entry]
                there[position[landing]] += chance * steps.weight[entry] * discount[landing]
