"""Phase 2 over a range of states at one time: equations (4)-(9); compiled.

``empo_core.equations`` has the same equations as plain tensor functions, and the tests
compare with an independent reference solver.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from empo_exact.game import (
    LANES,
    LANES_U,
    ONE,
    THREE,
    TWO,
    UNAVAILABLE,
    Floats,
    Game,
    Scratch,
    Theory,
)
from empo_exact.interning import compiled
from empo_exact.phase1 import find_rows


@compiled
def power(base: float, exponent: float) -> float:
    """``base ** exponent``, quickly where the exponent is one of the usual ones."""
    if exponent == 1.0:
        return base
    if exponent == 2.0:
        return base * base
    if exponent == -1.0:
        return 1.0 / base
    return base**exponent


@compiled
def weigh_profiles(game: Game, policy: Floats, index: int, s: Scratch) -> None:
    """Marginal policies over goals, and how likely the others make each profile."""
    humans = game.num_actions.shape[0]
    for human in range(humans):
        begin, end = max(0, game.first_goal[human]), game.first_goal[human + 1]
        total = 0.0
        for action in range(game.num_actions[human]):
            a = b = c = d = 0.0
            for block in range(begin // LANES, end // LANES):
                g = np.uint32(block) * LANES_U
                a += game.weight[g] * policy[index, action, g]
                b += game.weight[g + ONE] * policy[index, action, g + ONE]
                c += game.weight[g + TWO] * policy[index, action, g + TWO]
                d += game.weight[g + THREE] * policy[index, action, g + THREE]
            s.marginal[human, action] = (a + b) + (c + d)
            total += s.marginal[human, action]
        for action in range(game.num_actions[human]):
            s.marginal[human, action] /= total
    for human in range(humans):
        for profile in range(game.shape[1]):
            mass = 1.0
            for other in range(humans):
                if other != human:
                    mass *= s.marginal[other, game.action[other, profile]]
            s.mass[human, profile] = mass


@compiled
def value_robot_actions(game: Game, state: int, v_r: Floats, s: Scratch) -> None:
    """Q_r of each joint robot action, equation (4), positive where unavailable."""
    joint, robots = game.shape[0], game.shape[2]
    for robot in range(robots):
        s.q_r[robot] = 1.0
        s.accrual[robot] = 0.0
    for j in range(joint):
        pair = state * joint + j
        first, last = np.int64(game.offsets[pair]), np.int64(game.offsets[pair + 1])
        if first == last:
            continue
        profile, robot = game.profile[j], game.robot[j]
        if s.q_r[robot] > 0:
            s.q_r[robot] = 0.0
        mass = s.mass[0, profile] * s.marginal[0, game.action[0, profile]]
        if mass == 0:
            continue
        total, accrued = 0.0, 0.0
        for item in range(first, last):
            code = np.int64(game.code[item])
            total += game.discounted_r[code] * v_r[np.uint32(game.successor[item])]
            accrued += game.accrued[code]
        s.q_r[robot] += mass * total
        s.accrual[robot] += mass * accrued


@compiled
def choose_robot_action(theory: Theory, s: Scratch) -> None:
    """Fill in the robot's policy, equation (5), in log space."""
    best = -math.inf
    for robot in range(s.q_r.shape[0]):
        if s.q_r[robot] > 0:
            s.pi_r[robot] = -math.inf
            continue
        s.pi_r[robot] = -theory.number[0] * math.log(-s.q_r[robot])
        best = max(best, s.pi_r[robot])
    total = 0.0
    for robot in range(s.q_r.shape[0]):
        gap = s.pi_r[robot] - best
        s.pi_r[robot] = 1.0 if gap == 0 else math.exp(gap)
        total += s.pi_r[robot]
    for robot in range(s.q_r.shape[0]):
        s.pi_r[robot] /= total


@compiled
def value_goals(
    game: Game,
    state: int,
    human: int,
    policy: Floats,
    index: int,
    value: Floats,
    s: Scratch,
    v_e: Floats,
) -> None:
    """V_h^e of one human's goals under the robot's policy, equation (6)."""
    profiles, robots = game.shape[1], game.shape[2]
    for profile in range(profiles):
        for robot in range(robots):
            slot = profile * robots + robot
            s.coefficient[slot] = 0.0
            if s.at[slot] != UNAVAILABLE:
                s.coefficient[slot] = s.pi_r[robot] * s.mass[human, profile]
    for block in range(game.first_goal[human] // LANES, game.first_goal[human + 1] // LANES):
        g = np.uint32(block) * LANES_U
        va = vb = vc = vd = 0.0
        for action in range(game.num_actions[human]):
            a = b = c = d = 0.0
            for k in range(game.having.shape[2]):
                profile = game.having[human, action, k]
                if profile == UNAVAILABLE:
                    continue
                for robot in range(robots):
                    slot = profile * robots + robot
                    row, weight = s.at[slot], s.coefficient[slot]
                    if row == UNAVAILABLE:
                        continue
                    a += weight * value[row, g]
                    b += weight * value[row, g + ONE]
                    c += weight * value[row, g + TWO]
                    d += weight * value[row, g + THREE]
            va += policy[index, action, g] * a
            vb += policy[index, action, g + ONE] * b
            vc += policy[index, action, g + TWO] * c
            vd += policy[index, action, g + THREE] * d
        v_e[state, g], v_e[state, g + ONE] = va, vb
        v_e[state, g + TWO], v_e[state, g + THREE] = vc, vd


@compiled
def reward(game: Game, theory: Theory, state: int, v_e: Floats, x_h: Floats, index: int) -> float:
    """X_h of every human, equation (7), and U_r, equation (8)."""
    humans = game.num_actions.shape[0]
    zeta, xi, eta = theory.number[1], theory.number[2], theory.number[3]
    lack = 0.0
    for human in range(humans):
        total = 0.0
        for goal in range(game.first_goal[human], game.last_goal[human]):
            weight = game.weight[goal] if theory.flag[0] else 1.0
            total += weight * power(v_e[state, goal], zeta)
        x_h[index, human] = total
        lack += power(total, -xi) if total > 0 else math.inf
    if theory.flag[1]:
        lack /= humans
    return -power(lack, eta)


@compiled
def phase2(
    game: Game,
    theory: Theory,
    order: NDArray[np.int32],
    first: int,
    last: int,
    policy: Floats,
    value: Floats,
    spare: int,
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
        policy: pi_h, by position from ``first`` on [position action goal].
        value: What reaching a state is worth, see ``phase1`` [state goal].
        spare: First row of ``value`` that belongs to no state.
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
        if not find_rows(game, state, value, spare, longer, s):
            for goal in range(value.shape[1]):
                v_e[state, goal] = 0.0
            v_r[state] = theory.number[4]
            u_r[index] = 0.0
            continue
        weigh_profiles(game, policy, index, s)
        value_robot_actions(game, state, next_v_r, s)
        choose_robot_action(theory, s)
        for human in range(game.num_actions.shape[0]):
            value_goals(game, state, human, policy, index, value, s, v_e)
        u = reward(game, theory, state, v_e, x_h, index)
        u_r[index] = u
        total, accrual = 0.0, 0.0
        for robot in range(s.q_r.shape[0]):
            available = s.q_r[robot] <= 0
            pi_r[index, robot] = s.pi_r[robot]
            q_r[index, robot] = s.q_r[robot] if available else math.nan
            if available:
                total += s.pi_r[robot] * s.q_r[robot]
                accrual += s.pi_r[robot] * s.accrual[robot]
        v_r[state] = accrual * u + total
        if not math.isfinite(u):
            v_r[state] = math.nan
            bad += 1
    return bad
