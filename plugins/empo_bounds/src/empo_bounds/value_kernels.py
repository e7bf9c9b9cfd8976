"""Compiled loops of the backward induction: from bounds of later pairs to bounds of earlier ones.

Bounds of one number lie side by side, from below and from above, and each is rounded outwards as
in ``round_off``. ``second_opinion`` has the same by the reference solver, one pair at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_bounds.kernels import Ints, Longs, Steps
from empo_bounds.round_off import FUNCTION, LARGEST, OWN, TINY, UNIT, Floats
from empo_worlds.compilation import compiled, inlined


class Pairs(NamedTuple):
    """Some pairs of a time, and what comes after them.

    Attributes:
        moment: The moment of each pair; -1 where it was not expanded [pair].
        begin: The first pair that is meant.
        end: The first one that is not meant any more.
        position: Position of each landing among the pairs of the next time [landing].
        operations: Operations behind the sums of each moment [moment].
    """

    moment: Ints
    begin: int
    end: int
    position: Ints
    operations: Longs


class Human(NamedTuple):
    """One human and its goals.

    Attributes:
        policy: Its policies [policy action goal].
        weight: Factor of each goal in X_h [goal].
        first: Its first goal, goals human by human.
        number: Its position among the humans.
        zeta: The theory's zeta.
    """

    policy: Floats
    weight: Floats
    first: int
    number: int
    zeta: float


@inlined
def raised(value: float, operations: float) -> float:
    """``round_off.up`` of one number, for kernels."""
    return value * (1.0 + 4.0 * UNIT * (operations + OWN)) + TINY


@inlined
def lowered(value: float, operations: float) -> float:
    """``round_off.down`` of one number, for kernels."""
    return max(min(value, LARGEST) * (1.0 - 4.0 * UNIT * (operations + OWN)) - TINY, 0.0)


@inlined
def powered(value: float, zeta: float) -> float:
    """A power, quickly where the exponent is one of the usual numbers."""
    if zeta == 1.0:
        return value
    return value * value if zeta == 2.0 else value**zeta


@compiled
def discount(v_e: Floats, achieved: NDArray[np.uint8], of_human: Floats) -> None:
    """Replace V_h^e by what it is worth to reach the pair: 1 in a goal, else discounted V_h^e.

    Args:
        v_e: Bounds; overwritten [pair goal side].
        achieved: 1 where a pair attains a goal [pair goal].
        of_human: Discount of the step to each pair [pair].
    """
    for pair in range(v_e.shape[0]):
        for goal in range(v_e.shape[1]):
            for side in range(2):
                if achieved[pair, goal]:
                    v_e[pair, goal, side] = 1.0
                else:
                    v_e[pair, goal, side] *= of_human[pair]


@compiled
def attain(
    steps: Steps, human: Human, pairs: Pairs, goal_value: Floats, v_e: Floats, x_h: Floats
) -> None:
    """V_h^e and X_h of one human in pairs that were expanded, equations (6) and (7).

    Args:
        steps: The human's transitions.
        human: The human.
        pairs: The pairs.
        goal_value: What it is worth to reach each pair of the next time [later pair, goal, side].
        v_e: Receives bounds of V_h^e [pair goal side].
        x_h: Receives bounds of X_h [pair human side].
    """
    actions, goals = human.policy.shape[1], human.policy.shape[2]
    for pair in range(pairs.begin, pairs.end):
        moment_index = pairs.moment[pair]
        if moment_index < 0:
            continue
        chosen = steps.policy[moment_index]
        for goal in range(human.first, human.first + goals):
            v_e[pair, goal, 0] = 0.0
            v_e[pair, goal, 1] = 0.0
        for action in range(actions):
            row = moment_index * actions + action
            for entry in range(steps.offsets[row], steps.offsets[row + 1]):
                target, weight = pairs.position[steps.landing[entry]], steps.weight[entry]
                for goal in range(goals):
                    column = human.first + goal
                    chance = human.policy[chosen, action, goal] * weight
                    v_e[pair, column, 0] += chance * goal_value[target, column, 0]
                    v_e[pair, column, 1] += chance * goal_value[target, column, 1]
        operations, low, high = float(pairs.operations[moment_index]), 0.0, 0.0
        for goal in range(goals):
            column = human.first + goal
            v_e[pair, column, 0] = lowered(v_e[pair, column, 0], operations)
            v_e[pair, column, 1] = raised(v_e[pair, column, 1], operations)
            low += human.weight[goal] * powered(v_e[pair, column, 0], human.zeta)
            high += human.weight[goal] * powered(v_e[pair, column, 1], human.zeta)
        x_h[pair, human.number, 0] = lowered(low, goals + FUNCTION)
        x_h[pair, human.number, 1] = raised(high, goals + FUNCTION)


@compiled
def expect(steps: Steps, marginal: Floats, pairs: Pairs, payoff: Floats, out: Floats) -> None:
    """Expected payoffs one step later, everybody on average, before outward rounding.

    A chance that is so small that it has lost digits counts as 0 from below and as ``TINY`` from
    above: payoffs may be huge, or infinite.

    Args:
        steps: Of one human, no matter which.
        marginal: Its policies, averaged over goals [policy action].
        pairs: The pairs.
        payoff: Numbers at least 0, infinity allowed; the first half of the columns bounds
            something from below, the other one from above [later pair, column].
        out: Receives the sums of pairs that were expanded [pair column].
    """
    actions, columns = marginal.shape[1], payoff.shape[1]
    for pair in range(pairs.begin, pairs.end):
        moment_index = pairs.moment[pair]
        if moment_index < 0:
            continue
        for column in range(columns):
            out[pair, column] = 0.0
        for action in range(actions):
            chance = marginal[steps.policy[moment_index], action]
            if chance == 0.0:  # Times an infinite payoff, that would be no number.
                continue
            row = moment_index * actions + action
            for entry in range(steps.offsets[row], steps.offsets[row + 1]):
                target, weight = pairs.position[steps.landing[entry]], chance * steps.weight[entry]
                if weight >= TINY:
                    for column in range(columns):
                        out[pair, column] += weight * payoff[target, column]
                else:
                    for column in range(columns // 2, columns):
                        out[pair, column] += TINY * payoff[target, column]
