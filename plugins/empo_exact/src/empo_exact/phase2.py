"""Phase 2 over a range of states at one time: equations (4)-(9); compiled.

``empo_core.equations`` has the same equations as plain tensor functions, and the tests
compare with an independent reference solver.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from empo_core.compilation import compiled, inlined
from empo_exact.kernel_data import Floats, Game, Scratch, Theory
from empo_exact.rows import PLAIN, TERMINAL, blend, blend_some, find_rows
from empo_exact.simd import Lanes, eight, entry, four, lane_sum, load, store


@inlined
def power(base: float, exponent: float) -> float:
    """``base ** exponent``, quickly where the exponent is one of the usual ones."""
    if exponent == 1.0:
        return base
    if exponent == 2.0:
        return base * base
    if exponent == -1.0:
        return 1.0 / base
    return base**exponent


@inlined
def weigh_profiles(game: Game, policy: Floats, index: int, s: Scratch) -> None:
    """Marginal policies over goals, and how likely profiles and parts of them are."""
    humans, profiles = game.num_actions.shape[0], game.shape[1]
    for human in range(humans):
        total = 0.0
        for action in range(game.num_actions[human]):
            mass = four(0.0)
            for goal in range(game.first_goal[human], game.first_goal[human + 1], 4):
                mass += load(game.weight, (goal,), mass) * load(policy, (index, action, goal), mass)
            s.marginal[human, action] = lane_sum(mass)
            total += s.marginal[human, action]
        for action in range(game.num_actions[human]):
            s.marginal[human, action] /= total
    for human in range(humans):
        for k in range(game.together[human]):
            # What the others do is the same whatever the human does, so take its first action.
            profile, chance = entry(game.having, (human * profiles + k,)), 1.0
            for other in range(humans):
                if other != human:
                    chance *= s.marginal[other, game.action[other, profile]]
            s.mass[human * profiles + k] = chance
    for action in range(game.num_actions[0]):
        for k in range(game.together[0]):
            profile = entry(game.having, (action * game.together[0] + k,))
            s.chance[profile] = s.marginal[0, action] * s.mass[k]


@inlined
def value_plainly(game: Game, state: int, v_r: Floats, s: Scratch) -> None:
    """Q_r and its share of U_r where every joint action has one successor."""
    # Those are certain, so the codes of all transitions say the same.
    pair = np.int64(state) * game.shape[0]
    code = np.int64(entry(game.code, (np.int64(entry(game.offsets, (pair,))),)))
    profiles, robots = game.shape[1], game.shape[2]
    for robot in range(robots):
        total, certain = 0.0, 0.0
        for profile in range(profiles):
            chance = entry(s.chance, (profile,))
            if chance > 0:
                total += chance * entry(v_r, (entry(s.at, (profile * robots + robot,)),))
                certain += chance
        s.q_r[robot] = game.discounted_r[code] * total
        s.accrual[robot] = game.accrued[code] * certain


@inlined
def value_robot_actions(game: Game, state: int, v_r: Floats, s: Scratch) -> None:
    """Q_r of each joint robot action, equation (4), and how much U_r counts meanwhile."""
    robots = game.shape[2]
    for robot in range(robots):
        s.q_r[robot] = 0.0
        s.accrual[robot] = 0.0
    for slot in range(game.shape[0]):
        chance, robot = s.chance[slot // robots], slot % robots
        pair = np.int64(state) * game.shape[0] + game.joint[slot]
        if chance == 0:
            continue
        for item in range(np.int64(game.offsets[pair]), np.int64(game.offsets[pair + 1])):
            code = np.int64(game.code[item])
            s.q_r[robot] += chance * game.discounted_r[code] * v_r[np.uint32(game.successor[item])]
            s.accrual[robot] += chance * game.accrued[code]


@inlined
def choose_robot_action(theory: Theory, s: Scratch) -> None:
    """Fill in the robot's policy, equation (5), in log space."""
    best = -math.inf
    for robot in range(s.q_r.shape[0]):
        if not s.free[robot]:
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


@inlined
def attain(
    game: Game, human: int, policy: Floats, index: int, s: Scratch, goal: int, zero: Lanes
) -> Lanes:
    """V_h^e of a few goals of one human, equation (6), where the robot has replied."""
    value, together = zero, game.together[human]
    first = human * game.shape[1]
    for action in range(game.num_actions[human]):
        row = first + action * together
        q = blend_some(s.reply, game.having, row, s.mass, first, together, goal, zero)
        value += load(policy, (index, action, goal), zero) * q
    return value


@inlined
def value_goals(
    game: Game, state: int, human: int, policy: Floats, index: int, s: Scratch, v_e: Floats
) -> None:
    """V_h^e of all goals of one human."""
    goal, end = game.first_goal[human], game.first_goal[human + 1]
    while goal + 8 <= end:
        store(v_e, (state, goal), attain(game, human, policy, index, s, goal, eight(0.0)))
        goal += 8
    while goal < end:
        store(v_e, (state, goal), attain(game, human, policy, index, s, goal, four(0.0)))
        goal += 4


@inlined
def aggregate(game: Game, theory: Theory, state: int, human: int, v_e: Floats) -> float:
    """X_h of one human, equation (7); quickly where zeta is one of the usual numbers."""
    zeta = theory.number[1]
    begin, end = game.first_goal[human], game.first_goal[human + 1]
    if zeta == 1.0 or zeta == 2.0:
        total = four(0.0)
        for goal in range(begin, end, 4):
            value = load(v_e, (state, goal), total)
            gain = value * value if zeta == 2.0 else value
            total += gain * load(game.weight, (goal,), total) if theory.flag[0] else gain
        return lane_sum(total)
    x = 0.0
    for goal in range(begin, end):
        weight = game.weight[goal] if theory.flag[0] else 1.0
        x += weight * v_e[state, goal] ** zeta
    return x


@inlined
def reward(game: Game, theory: Theory, state: int, v_e: Floats, x_h: Floats, index: int) -> float:
    """X_h of every human, equation (7), and U_r, equation (8)."""
    humans, lack = game.num_actions.shape[0], 0.0
    for human in range(humans):
        x = aggregate(game, theory, state, human, v_e)
        x_h[index, human] = x
        lack += power(x, -theory.number[2]) if x > 0 else math.inf
    if theory.flag[1]:
        lack /= humans
    return -power(lack, theory.number[3])


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
    bad, profiles, robots = 0, game.shape[1], game.shape[2]
    for position in range(first, last):
        state, index = order[position], position - first
        kind = find_rows(game, state, value, spare, longer, 0.0, s)
        if kind == TERMINAL:
            for goal in range(value.shape[1]):
                v_e[state, goal] = 0.0
            v_r[state] = theory.number[4]
            u_r[index] = 0.0
            continue
        weigh_profiles(game, policy, index, s)
        if kind == PLAIN:
            value_plainly(game, state, next_v_r, s)
        else:
            value_robot_actions(game, state, next_v_r, s)
        choose_robot_action(theory, s)
        for profile in range(profiles):
            blend(
                value, s.at, profile * robots, s.pi_r, 0, robots,
                s.reply, profile, 0, value.shape[1],
            )  # fmt: skip
        for human in range(game.num_actions.shape[0]):
            value_goals(game, state, human, policy, index, s, v_e)
        u = reward(game, theory, state, v_e, x_h, index)
        u_r[index] = u
        total, accrual = 0.0, 0.0
        for robot in range(robots):
            pi_r[index, robot] = s.pi_r[robot]
            q_r[index, robot] = s.q_r[robot] if s.free[robot] else math.nan
            if s.free[robot]:
                total += s.pi_r[robot] * s.q_r[robot]
                accrual += s.pi_r[robot] * s.accrual[robot]
        v_r[state] = accrual * u + total
        if not math.isfinite(u):
            v_r[state] = math.nan
            bad += 1
    return bad
