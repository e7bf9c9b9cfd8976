"""One step of backward induction over a range of states; compiled.

Equations (1)-(9) of the paper for all states, humans and goals at one time, given the values
one step later. ``empo_core.equations`` has the same equations as plain tensor functions; the
tests compare both with an independent reference.

Goals are ordered by human here, so the goals of the ``h``-th human are the range
``first_goal[h] : first_goal[h + 1]``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_core.equations import TIE_TOLERANCE
from empo_exact.interning import compiled

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


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
        others: The other humans' part of each profile [human profile].
        num_actions: [human].
        first_goal: Where each human's goals begin, and the end [human + 1].
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
    profile: NDArray[np.int32]
    robot: NDArray[np.int32]
    action: NDArray[np.int32]
    others: NDArray[np.int32]
    num_actions: Longs
    first_goal: Longs
    weight: Floats
    shape: Longs


class Humans(NamedTuple):
    """What Phase 1 assumes. Arrays with a leading axis of 1 hold for all states.

    Attributes:
        beta: Rationality, infinity allowed [1 or state, goal].
        nu: Weight of the habitual policy [1 or state, goal].
        habit: The habitual policy; empty where ``nu`` is 0 [1 or state, goal, action].
        belief: Weight of the other humans' profile given a human and its own action; empty
            means evenly over their available actions [1 or state, human, action, others].
        optimistic: Whether the robot is expected to help rather than to obstruct [1].
    """

    beta: Floats
    nu: Floats
    habit: Floats
    belief: Floats
    optimistic: NDArray[np.bool_]


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
        row: One value per goal [goal].
        worst: The robot's worst (or best) reply to each profile [profile goal].
        seen: Whether a profile is available [profile].
        q: Values of own actions [action].
        marginal: Each human's action probabilities over all its goals [human action].
        mass: Probability of each profile without one human [human profile].
        gain: Expected goal value of each own action [action goal].
        q_r: [robot].
        logit: [robot].
        accrual: Expected weight of U_r [robot].
    """

    row: Floats
    worst: Floats
    seen: NDArray[np.uint8]
    q: Floats
    marginal: Floats
    mass: Floats
    gain: Floats
    q_r: Floats
    logit: Floats
    accrual: Floats


@compiled
def expected_row(game: Game, pair: int, value: Floats, row: Floats, longer: bool) -> int:
    """Expected goal value of one pair; the state that holds it already, or -1 for ``row``.

    ``value`` is 1 where a goal is achieved and the discounted value elsewhere, or, where
    durations differ (``longer``), 0 and the undiscounted value.
    """
    first, last = np.int64(game.offsets[pair]), np.int64(game.offsets[pair + 1])
    if not longer and last == first + 1:
        return game.successor[first]
    goals = row.shape[0]
    for goal in range(goals):
        row[goal] = 0.0
    for item in range(first, last):
        state, code = game.successor[item], np.int64(game.code[item])
        p = game.prob[code]
        if longer:
            discounted = game.discounted_h[code]
            for goal in range(goals):
                row[goal] += p * game.achieved[state, goal] + discounted * value[state, goal]
        else:
            for goal in range(goals):
                row[goal] += p * value[state, goal]
    return -1


@compiled
def find_worst(
    game: Game, humans: Humans, state: int, value: Floats, s: Scratch, longer: bool
) -> bool:
    """Fill in the robot's worst reply to each profile, equation (1); False at terminals."""
    joint, profiles = game.shape[0], game.shape[1]
    goals = s.row.shape[0]
    optimistic = humans.optimistic[0]
    for profile in range(profiles):
        s.seen[profile] = 0
    alive = False
    for j in range(joint):
        pair = state * joint + j
        if game.offsets[pair] == game.offsets[pair + 1]:
            continue
        alive = True
        profile = game.profile[j]
        at = expected_row(game, pair, value, s.row, longer)
        if not s.seen[profile]:
            s.seen[profile] = 1
            for goal in range(goals):
                s.worst[profile, goal] = value[at, goal] if at >= 0 else s.row[goal]
        elif at >= 0:
            for goal in range(goals):
                new, old = value[at, goal], s.worst[profile, goal]
                s.worst[profile, goal] = new if (new < old) != optimistic else old
        else:
            for goal in range(goals):
                new, old = s.row[goal], s.worst[profile, goal]
                s.worst[profile, goal] = new if (new < old) != optimistic else old
    return alive


@compiled
def soften(
    humans: Humans, state: int, goal: int, count: int, s: Scratch, policy: Floats, index: int
) -> float:
    """The human's policy, equation (2), from ``s.q`` (NaN: unavailable); its value, (3)."""
    here = state if humans.beta.shape[0] > 1 else 0
    beta = humans.beta[here, goal]
    best = -math.inf
    for action in range(count):
        if s.q[action] > best:
            best = s.q[action]
    total = 0.0
    for action in range(count):
        q = s.q[action]
        if math.isnan(q):
            policy[index, goal, action] = 0.0
            continue
        if math.isinf(beta):
            tied = q >= best - TIE_TOLERANCE * max(1.0, abs(best))
            weight = 1.0 if tied else 0.0
        else:
            weight = math.exp(beta * (q - best))
        policy[index, goal, action] = weight
        total += weight
    here = state if humans.nu.shape[0] > 1 else 0
    nu = humans.nu[here, goal]
    here = state if humans.habit.shape[0] > 1 else 0
    expected = 0.0
    for action in range(count):
        p = policy[index, goal, action] / total
        if nu > 0:
            p = nu * humans.habit[here, goal, action] + (1 - nu) * p
        policy[index, goal, action] = p
        if p > 0:
            expected += p * s.q[action]
    return expected


@compiled
def value_own_actions(
    game: Game, humans: Humans, state: int, human: int, goal: int, s: Scratch
) -> None:
    """Fill ``s.q`` with Q_h^m of each own action, equation (1); NaN where unavailable."""
    here = state if humans.belief.shape[0] > 1 else 0
    for action in range(game.num_actions[human]):
        total, weights = 0.0, 0.0
        available = False
        for profile in range(game.shape[1]):
            if game.action[human, profile] != action or not s.seen[profile]:
                continue
            available = True
            weight = 1.0
            if humans.belief.shape[3]:
                weight = humans.belief[here, human, action, game.others[human, profile]]
            if weight > 0:
                total += weight * s.worst[profile, goal]
                weights += weight
        if not available:
            s.q[action] = math.nan
        elif humans.belief.shape[3]:
            s.q[action] = total
        else:
            s.q[action] = total / weights


@compiled
def phase1(
    game: Game,
    humans: Humans,
    order: NDArray[np.int32],
    first: int,
    last: int,
    value: Floats,
    longer: bool,
    s: Scratch,
    v_m: Floats,
    policy: Floats,
) -> None:
    """Humans' policies and values in the states ``order[first:last]``.

    Args:
        game: The game.
        humans: What Phase 1 assumes.
        order: State numbers.
        first: Where to begin in ``order``.
        last: Where to end.
        value: What reaching a state is worth, see ``expected_row`` [state goal].
        longer: Whether durations differ.
        s: Working memory.
        v_m: Receives V_h^m, by state number [state goal].
        policy: Receives pi_h, by position from ``first`` on [position goal action].
    """
    goals = s.row.shape[0]
    for position in range(first, last):
        state, index = order[position], position - first
        for goal in range(goals):
            v_m[state, goal] = 0.0
            for action in range(policy.shape[2]):
                policy[index, goal, action] = 0.0
        if not find_worst(game, humans, state, value, s, longer):
            continue
        for human in range(game.num_actions.shape[0]):
            count = game.num_actions[human]
            for goal in range(game.first_goal[human], game.first_goal[human + 1]):
                value_own_actions(game, humans, state, human, goal, s)
                if game.achieved[state, goal]:
                    # Paid for on arrival: the human idles, and hopes for nothing more.
                    action = 0
                    while math.isnan(s.q[action]):
                        action += 1
                    policy[index, goal, action] = 1.0
                else:
                    v_m[state, goal] = soften(humans, state, goal, count, s, policy, index)


@compiled
def weigh_profiles(game: Game, policy: Floats, index: int, s: Scratch) -> None:
    """Marginal policies over goals, and how likely the others make each profile."""
    for human in range(game.num_actions.shape[0]):
        total = 0.0
        for action in range(game.num_actions[human]):
            s.marginal[human, action] = 0.0
        for goal in range(game.first_goal[human], game.first_goal[human + 1]):
            for action in range(game.num_actions[human]):
                s.marginal[human, action] += game.weight[goal] * policy[index, goal, action]
        for action in range(game.num_actions[human]):
            total += s.marginal[human, action]
        for action in range(game.num_actions[human]):
            s.marginal[human, action] /= total
    for human in range(game.num_actions.shape[0]):
        for profile in range(game.shape[1]):
            mass = 1.0
            for other in range(game.num_actions.shape[0]):
                if other != human:
                    mass *= s.marginal[other, game.action[other, profile]]
            s.mass[human, profile] = mass


@compiled
def value_robot_actions(game: Game, state: int, v_r: Floats, s: Scratch) -> bool:
    """Q_r of each joint robot action, equation (4), positive where unavailable."""
    joint, robots = game.shape[0], game.shape[2]
    for robot in range(robots):
        s.q_r[robot] = 1.0
        s.accrual[robot] = 0.0
    alive = False
    for j in range(joint):
        pair = state * joint + j
        first, last = np.int64(game.offsets[pair]), np.int64(game.offsets[pair + 1])
        if first == last:
            continue
        alive = True
        profile, robot = game.profile[j], game.robot[j]
        mass = s.mass[0, profile] * s.marginal[0, game.action[0, profile]]
        if s.q_r[robot] > 0:
            s.q_r[robot] = 0.0
        if mass == 0:
            continue
        for item in range(first, last):
            code = np.int64(game.code[item])
            s.q_r[robot] += mass * game.discounted_r[code] * v_r[game.successor[item]]
            s.accrual[robot] += mass * game.accrued[code]
    return alive


@compiled
def choose_robot_action(theory: Theory, s: Scratch) -> None:
    """Turn ``s.logit`` into the robot's policy, equation (5), in log space."""
    best = -math.inf
    for robot in range(s.q_r.shape[0]):
        if s.q_r[robot] > 0:
            s.logit[robot] = -math.inf
            continue
        s.logit[robot] = -theory.number[0] * math.log(-s.q_r[robot])
        best = max(best, s.logit[robot])
    total = 0.0
    for robot in range(s.q_r.shape[0]):
        s.logit[robot] = math.exp(s.logit[robot] - best)
        total += s.logit[robot]
    for robot in range(s.q_r.shape[0]):
        s.logit[robot] /= total


@compiled
def value_goals(
    game: Game,
    state: int,
    policy: Floats,
    index: int,
    value: Floats,
    longer: bool,
    s: Scratch,
    v_e: Floats,
) -> None:
    """V_h^e of every goal under the robot's policy in ``s.logit``, equation (6)."""
    joint, goals = game.shape[0], s.row.shape[0]
    humans = game.num_actions.shape[0]
    for action in range(s.gain.shape[0]):
        for goal in range(goals):
            s.gain[action, goal] = 0.0
    for j in range(joint):
        pair = state * joint + j
        chosen = s.logit[game.robot[j]]
        if chosen == 0 or game.offsets[pair] == game.offsets[pair + 1]:
            continue
        profile = game.profile[j]
        at = expected_row(game, pair, value, s.row, longer)
        for human in range(humans):
            weight = chosen * s.mass[human, profile]
            if weight == 0:
                continue
            action = game.action[human, profile]
            begin, end = game.first_goal[human], game.first_goal[human + 1]
            if at >= 0:
                for goal in range(begin, end):
                    s.gain[action, goal] += weight * value[at, goal]
            else:
                for goal in range(begin, end):
                    s.gain[action, goal] += weight * s.row[goal]
    for human in range(humans):
        for goal in range(game.first_goal[human], game.first_goal[human + 1]):
            total = 0.0
            for action in range(game.num_actions[human]):
                total += policy[index, goal, action] * s.gain[action, goal]
            v_e[state, goal] = total


@compiled
def reward(game: Game, theory: Theory, state: int, v_e: Floats, x_h: Floats, index: int) -> float:
    """X_h of every human, equation (7), and U_r, equation (8)."""
    humans = game.num_actions.shape[0]
    zeta, xi, eta = theory.number[1], theory.number[2], theory.number[3]
    lack = 0.0
    for human in range(humans):
        power = 0.0
        for goal in range(game.first_goal[human], game.first_goal[human + 1]):
            weight = game.weight[goal] if theory.flag[0] else 1.0
            power += weight * v_e[state, goal] ** zeta
        x_h[index, human] = power
        lack += power**-xi if power > 0 else math.inf
    if theory.flag[1]:
        lack /= humans
    return -(lack**eta)


@compiled
def phase2(
    game: Game,
    theory: Theory,
    order: NDArray[np.int32],
    first: int,
    last: int,
    policy: Floats,
    value: Floats,
    longer: bool,
    next_v_r: Floats,
    s: Scratch,
    v_e: Floats,
    v_r: Floats,
    pi_r: Floats,
    q_r: Floats,
    x_h: Floats,
    u_r: Floats,
) -> int:
    """The robot's values and policy in the states ``order[first:last]``.

    Args:
        game: The game.
        theory: The parameters.
        order: State numbers.
        first: Where to begin in ``order``.
        last: Where to end.
        policy: pi_h, by position from ``first`` on [position goal action].
        value: What reaching a state is worth, see ``expected_row`` [state goal].
        longer: Whether durations differ.
        next_v_r: V_r one step later [state].
        s: Working memory.
        v_e: Receives V_h^e, by state number [state goal].
        v_r: Receives V_r, by state number [state].
        pi_r: Receives pi_r, by position [position robot].
        q_r: Receives Q_r, by position, NaN where unavailable [position robot].
        x_h: Receives X_h, by position [position human].
        u_r: Receives U_r, by position; 0 at terminal states [position].

    Returns:
        How many states have no finite U_r; their V_r is NaN.
    """
    bad = 0
    for position in range(first, last):
        state, index = order[position], position - first
        weigh_profiles(game, policy, index, s)
        if not value_robot_actions(game, state, next_v_r, s):
            for goal in range(s.row.shape[0]):
                v_e[state, goal] = 0.0
            v_r[state] = theory.number[4]
            u_r[index] = 0.0
            continue
        choose_robot_action(theory, s)
        value_goals(game, state, policy, index, value, longer, s, v_e)
        u = reward(game, theory, state, v_e, x_h, index)
        u_r[index] = u
        total, accrual = 0.0, 0.0
        for robot in range(s.q_r.shape[0]):
            available = s.q_r[robot] <= 0
            pi_r[index, robot] = s.logit[robot]
            q_r[index, robot] = s.q_r[robot] if available else math.nan
            if available:
                total += s.logit[robot] * s.q_r[robot]
                accrual += s.logit[robot] * s.accrual[robot]
        v_r[state] = accrual * u + total
        if not math.isfinite(u):
            v_r[state] = math.nan
            bad += 1
    return bad
