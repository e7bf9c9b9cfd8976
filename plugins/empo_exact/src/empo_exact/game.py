"""The arrays that the compiled sweep reads, and its working memory.

Goals are ordered by human here, and each human's goals are padded to a multiple of ``LANES``
with goals that nothing achieves and that weigh 0. The goals of the ``h``-th human are the
range ``first_goal[h] : last_goal[h]``; padding goes on up to ``first_goal[h + 1]``. Sums over
goals can so be written for ``LANES`` neighbours at a time, which compilers turn into one
vector instruction.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

LANES: Final = 4
# Unsigned, so that no index has to be checked for being negative.
LANES_U, ONE, TWO, THREE = np.uint32(4), np.uint32(1), np.uint32(2), np.uint32(3)
UNAVAILABLE: Final = 0xFFFFFFFF
"""Instead of a row number: the joint action does not exist in the state."""

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
Indices = NDArray[np.uint32]


class Game(NamedTuple):
    """The graph and how joint actions decompose; axes as in ``graph.StateGraph``.

    Attributes:
        offsets: Start of each pair's transitions [pair + 1].
        successor: [transition].
        code: [transition].
        prob: Probability behind each code [code].
        discounted_h: Probability times the humans' discount [code].
        discounted_r: Probability times the robot's discount [code].
        accrued: Probability times how much U_r counts during the transition [code].
        achieved: Whether a state achieves a goal [state goal].
        profile: The humans' part of each joint action, human 0 fastest [joint].
        robot: The robots' part of each joint action, robot 0 fastest [joint].
        action: Each human's action in each of the humans' profiles [human profile].
        having: The profiles in which a human takes an action [human action which].
        others: The other humans' part of each profile [human profile].
        num_actions: [human].
        first_goal: Where each human's goals begin, and the end [human + 1].
        last_goal: Where each human's goals end, padding left out [human].
        weight: [goal].
        shape: How many joint actions, profiles and joint robot actions there are.
    """

    offsets: NDArray[Any]
    successor: NDArray[np.int32]
    code: NDArray[Any]
    prob: Floats
    discounted_h: Floats
    discounted_r: Floats
    accrued: Floats
    achieved: NDArray[np.uint8]
    profile: Indices
    robot: Indices
    action: Indices
    having: Indices
    others: Indices
    num_actions: Longs
    first_goal: Longs
    last_goal: Longs
    weight: Floats
    shape: Longs


class Humans(NamedTuple):
    """What Phase 1 assumes. Arrays with a leading axis of 1 hold for all states.

    Attributes:
        beta: Rationality, infinity allowed [1 or state, goal].
        nu: Weight of the habitual policy [1 or state, goal].
        habit: The habitual policy; of no account where ``nu`` is 0 [1 or state, action, goal].
        belief: Weight of the other humans' profile given a human and its own action; empty
            means evenly over their available actions [1 or state, human, action, others].
        flag: Whether the robot is expected to help rather than to obstruct; whether any
            ``nu`` is positive; whether any ``beta`` is infinite [3].
    """

    beta: Floats
    nu: Floats
    habit: Floats
    belief: Floats
    flag: NDArray[np.bool_]


class Theory(NamedTuple):
    """The parameters of Phase 2, as one array each.

    Attributes:
        number: beta_r, zeta, xi, eta, terminal value [5].
        flag: Whether X_h weighs goals, and whether U_r averages over humans [2].
    """

    number: Floats
    flag: NDArray[np.bool_]


class Scratch(NamedTuple):
    """Working memory of one thread.

    Attributes:
        at: The row of goal values that each joint action leads to [profile robot].
        worst: The robot's worst (or best) reply to each profile [profile goal].
        seen: Whether a profile is available [profile].
        q: Values of own actions, Q_h^m [action goal].
        count: How many available profiles contain an own action [action].
        best: Largest Q_h^m of each goal [goal].
        x: What to exponentiate, one human's [action goal], flat.
        bits: The same memory as ``power``, as integers.
        power: Powers of two, flat like ``x``.
        marginal: Each human's action probabilities over all its goals [human action].
        mass: Probability of each profile without one human [human profile].
        coefficient: Probability of each joint action given one human's own [profile robot].
        q_r: [robot].
        pi_r: [robot].
        accrual: Expected weight of U_r [robot].
    """

    at: Indices
    worst: Floats
    seen: NDArray[np.uint8]
    q: Floats
    count: Floats
    best: Floats
    x: Floats
    bits: Longs
    power: Floats
    marginal: Floats
    mass: Floats
    coefficient: Floats
    q_r: Floats
    pi_r: Floats
    accrual: Floats


def make_scratch(game: Game) -> Scratch:
    """Working memory for one thread."""
    goals, humans = len(game.weight), len(game.num_actions)
    actions, (_, profiles, robots) = int(game.num_actions.max()), map(int, game.shape)
    power = np.zeros(actions * goals)
    return Scratch(
        at=np.zeros(profiles * robots, np.uint32),
        worst=np.zeros((profiles, goals)),
        seen=np.zeros(profiles, np.uint8),
        q=np.zeros((actions, goals)),
        count=np.zeros(actions),
        best=np.zeros(goals),
        x=np.zeros(actions * goals),
        bits=power.view(np.int64),
        power=power,
        marginal=np.zeros((humans, actions)),
        mass=np.zeros((humans, profiles)),
        coefficient=np.zeros(profiles * robots),
        q_r=np.zeros(robots),
        pi_r=np.zeros(robots),
        accrual=np.zeros(robots),
    )
