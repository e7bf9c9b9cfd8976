# mypy: disable-error-code="no-any-return"
"""Phase 2: the robot's policy, and what humans attain with such a robot, (4)-(9); compiled.

In the order of the paper (arXiv 2508.00159v2, Table 1), with V_h^e and V_r of the next step known::

    phase2                    the states of a block
      solve_robot             one state
        expect_successors     (6) E over s' of U + (1 - U) gamma_h V_h^e; the tables that it reads
                              have that bracket already, unless durations differ: ``payoffs.py``
        weigh_profiles        (4), (6) how likely the humans act how, over all their goals
        value_robot_actions   (4) Q_r; ``value_plainly`` where each joint action has one successor
        choose_robot_action   (5) pi_r
        blend_replies         (6) E over a_r, for each of the humans' profiles
        attain                (6) V_h^e
        powers_and_reward     (7), (8)
          aggregate           (7) X_h; goals are weighted, or, as in the paper, not
                              (8) U_r; the mean over humans, or, as in the paper, the sum
                              (9) V_r in the last lines of ``solve_robot``

A profile is a joint action of all humans. ``Lanes`` are 8 or 4 goals at a time, by ``over_goals``.
``empo_theory.reference`` has the same in plain Python.
"""

from __future__ import annotations

import math

import numpy as np

from empo_exact.game import (
    Block,
    CurrentState,
    Floats,
    Game,
    GoalPayoffs,
    Policies,
    Scratch,
    Theory,
    Values,
)
from empo_exact.rows import (
    PLAIN,
    TERMINAL,
    Mixture,
    Successors,
    blend_replies,
    blend_some,
    expect_successors,
    four_replies,
    kind_of,
    reply_row,
)
from empo_exact.simd import (
    FOUR,
    Lanes,
    entry,
    exponential,
    four,
    kernel,
    lane_sum,
    load,
    logarithm,
    over_goals,
    store,
    where_less,
)
from empo_worlds.compilation import inlined


@inlined
def raised(base: float, exponent: float) -> float:
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
    """How likely each human acts how, profiles, and parts of them: E_g of (4) and (6).

    Goals are as likely as their weights, which are normalised here.
    """
    humans, profiles = game.num_actions.shape[0], game.num_profiles
    for human in range(humans):
        total, begin, end = 0.0, game.first_goal[human], game.first_goal[human + 1]
        for action in range(game.num_actions[human]):
            mass = four(0.0)
            for goal in range(begin, end, FOUR):
                mass += load(game.weight, (goal,), mass) * load(policy, (index, action, goal), mass)
            s.marginal[human, action] = lane_sum(mass)
            total += s.marginal[human, action]
        for action in range(game.num_actions[human]):
            s.marginal[human, action] /= total
    for human in range(humans):
        for k in range(game.num_with_action[human]):
            # What the others do is the same whatever the human does, so take its first action.
            profile, chance = entry(game.with_action, (human * profiles + k,)), 1.0
            for other in range(humans):
                if other != human:
                    chance *= s.marginal[other, entry(game.action, (other, profile))]
            s.others_chance[human * profiles + k] = chance
    for action in range(game.num_actions[0]):
        alone = s.marginal[0, action]
        for k in range(game.num_with_action[0]):
            profile = entry(game.with_action, (action * game.num_with_action[0] + k,))
            s.profile_chance[profile] = alone * entry(s.others_chance, (k,))


@inlined
def value_plainly(game: Game, successors: Successors, v_r: Floats, s: Scratch) -> None:
    """Q_r, equation (4), and the weight of U_r, where every joint action has one successor."""
    # Each has probability 1 and takes one unit of time, so all transitions have one code.
    code = np.int64(entry(game.code, (successors.first,)))
    profiles, robots, total_chance = game.num_profiles, game.num_robot_actions, 0.0
    for profile in range(profiles):
        total_chance += entry(s.profile_chance, (profile,))
    whole = robots - robots % 4
    for robot in range(0, whole, 4):
        a, b, c, d = 0.0, 0.0, 0.0, 0.0  # Four sums that need not wait for each other.
        for profile in range(profiles):
            chance = entry(s.profile_chance, (profile,))
            if chance > 0:
                rows = four_replies(game, successors, profile, robot)
                a += chance * entry(v_r, (rows[0],))
                b += chance * entry(v_r, (rows[1],))
                c += chance * entry(v_r, (rows[2],))
                d += chance * entry(v_r, (rows[3],))
        s.q_r[robot], s.q_r[robot + 1], s.q_r[robot + 2], s.q_r[robot + 3] = a, b, c, d
    for robot in range(whole, robots):
        total = 0.0
        for profile in range(profiles):
            chance = entry(s.profile_chance, (profile,))
            if chance > 0:
                total += chance * entry(v_r, (reply_row(game, successors, profile, robot),))
        s.q_r[robot] = total
    for robot in range(robots):
        s.q_r[robot] *= game.discounted_r[code]
        s.accrual[robot] = game.accrued[code] * total_chance


@inlined
def value_robot_actions(game: Game, state: int, v_r: Floats, s: Scratch) -> None:
    """Q_r of each joint robot action, equation (4), and the weight of U_r in (9)."""
    for robot in range(game.num_robot_actions):
        s.q_r[robot] = 0.0
        s.accrual[robot] = 0.0
        for profile in range(game.num_profiles):
            chance = s.profile_chance[profile]
            pair = np.int64(state) * game.num_joint
            pair += game.profile_joint[profile] + game.robot_joint[robot]
            if chance == 0:
                continue
            for item in range(np.int64(game.offsets[pair]), np.int64(game.offsets[pair + 1])):
                code, after = np.int64(game.code[item]), np.uint32(game.successor[item])
                # ``discounted_r`` and ``accrued`` contain the transition's probability.
                s.q_r[robot] += chance * game.discounted_r[code] * v_r[after]
                s.accrual[robot] += chance * game.accrued[code]


@inlined
def choose_robot_action(theory: Theory, robots: int, s: Scratch) -> None:
    """Fill in the robot's policy, equation (5), in log space."""
    best, zero = -math.inf, four(0.0)
    for robot in range(0, s.q_r.shape[0], FOUR):
        gain = -theory.beta_r * logarithm(0.0 - load(s.q_r, (robot,), zero))
        is_available = load(s.is_robot_available, (robot,), zero)
        store(s.pi_r, (robot,), where_less(0.0, is_available, gain, -math.inf))
    for robot in range(robots):
        best = max(best, entry(s.pi_r, (robot,)))
    mass = zero
    for robot in range(0, s.q_r.shape[0], FOUR):
        weight = exponential(load(s.pi_r, (robot,), zero) - best)
        mass += weight
        store(s.pi_r, (robot,), weight)
    share = 1.0 / lane_sum(mass)
    for robot in range(0, s.q_r.shape[0], FOUR):
        store(s.pi_r, (robot,), load(s.pi_r, (robot,), zero) * share)


@inlined
def attain(
    goal: int,
    zero: Lanes,
    game: Game,
    theory: Theory,
    here: CurrentState,
    human: int,
    pi_h: Floats,
    s: Scratch,
    v_e: Floats,
) -> None:
    """V_h^e of a few goals of one human, equation (6), where ``s.by_profile`` is E over a_r.

    It is not 0 where a goal is achieved already, as V_h^m is: who can stay attains it again. Where
    presence counts, it is 1 there.
    """
    value, together = zero, game.num_with_action[human]
    first = human * game.num_profiles
    for action in range(game.num_actions[human]):
        row = first + action * together
        others = Mixture(game.with_action, row, s.others_chance, first, together)
        q = blend_some(s.by_profile, others, goal, zero)
        value += load(pi_h, (here.position, action, goal), zero) * q
    if theory.is_presence:
        achieved = load(game.achieved, (here.state, goal), zero)
        value = where_less(0.0, achieved, 1.0, value)
    store(v_e, (here.state, goal), value)


@inlined
def aggregate(game: Game, theory: Theory, state: int, human: int, v_e: Floats) -> float:
    """X_h of one human, equation (7); quickly where zeta is one of the usual numbers."""
    begin, end = game.first_goal[human], game.first_goal[human + 1]
    if theory.zeta == 1.0 or theory.zeta == 2.0:
        total = four(0.0)
        for goal in range(begin, end, FOUR):
            value = load(v_e, (state, goal), total)
            gain = value * value if theory.zeta == 2.0 else value
            total += gain * load(game.weight, (goal,), total) if theory.is_weighted else gain
        return lane_sum(total)
    x = 0.0
    for goal in range(begin, end):
        weight = game.weight[goal] if theory.is_weighted else 1.0
        x += weight * v_e[state, goal] ** theory.zeta
    return x


@inlined
def powers_and_reward(
    game: Game, theory: Theory, here: CurrentState, v_e: Floats, x_h: Floats
) -> float:
    """X_h of every human, equation (7), and U_r, equation (8)."""
    humans, lack = game.num_actions.shape[0], 0.0  # The sum of X_h^-xi.
    for human in range(humans):
        x = aggregate(game, theory, here.state, human, v_e)
        x_h[here.position, human] = x
        if entry(theory.is_counted, (human,)) != 0:
            lack += raised(x, -theory.xi) if x > 0 else math.inf
    if theory.is_mean:
        lack /= theory.num_counted
    return -raised(lack, theory.eta)


@inlined
def write_end(
    game: Game, theory: Theory, here: CurrentState, out: Values, policies: Policies
) -> int:
    """The robot's values in a state where the episode is over; what returns is as in ``phase2``.

    Nothing counts there; or, where presence counts, the goals that the state achieves do.
    """
    for goal in range(out.v_e.shape[1]):
        counts = theory.is_presence and entry(game.achieved, (here.state, goal)) != 0
        out.v_e[here.state, goal] = 1.0 if counts else 0.0
    u, v_r = 0.0, theory.terminal_value
    if theory.is_presence:
        u = powers_and_reward(game, theory, here, out.v_e, policies.x_h)
        v_r = theory.end_weight * u
    is_finite = math.isfinite(u)
    policies.u_r[here.position] = u
    out.v_r[here.state] = v_r if is_finite else math.nan
    for order in range(out.norms.shape[1]):
        out.norms[here.state, order] = -out.v_r[here.state]
    return 0 if is_finite else 1


@inlined
def solve_robot(
    game: Game,
    theory: Theory,
    here: CurrentState,
    payoffs: GoalPayoffs,
    next_v_r: Floats,
    s: Scratch,
    out: Values,
    policies: Policies,
) -> int:
    """The robot's values and policy in one state; arguments as in ``phase2``.

    Returns:
        1 if the state has no finite U_r, else 0.
    """
    position, robots = here.position, game.num_robot_actions
    kind = kind_of(game, here.state)
    if kind == TERMINAL:
        return write_end(game, theory, here, out, policies)
    successors = expect_successors(game, here.state, kind, payoffs, 0.0, s)  # (6): E over s'
    weigh_profiles(game, policies.pi_h, position, s)
    if kind == PLAIN:  # (4)
        value_plainly(game, successors, next_v_r, s)
    else:
        value_robot_actions(game, here.state, next_v_r, s)
    choose_robot_action(theory, robots, s)  # (5)
    for profile in range(game.num_profiles):  # (6): E over a_r
        blend_replies(game, payoffs.table, successors, profile, s.pi_r, s.by_profile)
    for human in range(game.num_actions.shape[0]):  # (6): E over a_H
        first, end = game.first_goal[human], game.first_goal[human + 1]
        over_goals(attain, first, end, game, theory, here, human, policies.pi_h, s, out.v_e)
    u = powers_and_reward(game, theory, here, out.v_e, policies.x_h)  # (7), (8)
    policies.u_r[position] = u
    total, accrual = 0.0, 0.0
    for robot in range(robots):
        policies.pi_r[position, robot] = s.pi_r[robot]
        policies.q_r[position, robot] = s.q_r[robot] if s.is_robot_available[robot] else math.nan
        if s.is_robot_available[robot]:
            total += s.pi_r[robot] * s.q_r[robot]
            accrual += s.pi_r[robot] * s.accrual[robot]
    if math.isfinite(u):
        out.v_r[here.state] = accrual * u + total  # (9)
        return 0
    out.v_r[here.state] = math.nan
    return 1


@kernel
def write_ends(game: Game, theory: Theory, block: Block, out: Values, policies: Policies) -> int:
    """The robot's values in the states of a block where the episode is over; see ``phase2``."""
    bad = 0
    for position in range(block.last - block.first):
        here = CurrentState(block.order[block.first + position], position)
        bad += write_end(game, theory, here, out, policies)
    return bad


@kernel
def phase2(
    game: Game,
    theory: Theory,
    block: Block,
    payoffs: GoalPayoffs,
    next_v_r: Floats,
    s: Scratch,
    out: Values,
    policies: Policies,
) -> int:
    """The robot's values and policy in the states of a block, equations (4)-(9).

    ``payoffs`` is by V_h^e one step later, ``next_v_r`` V_r then [state]. V_h^e and V_r go into
    ``out`` by state number; ``policies`` has pi_h, and receives the rest, by position in the block.

    Returns:
        How many states have no finite U_r; their V_r is NaN.
    """
    bad = 0
    for position in range(block.last - block.first):
        here = CurrentState(block.order[block.first + position], position)
        bad += solve_robot(game, theory, here, payoffs, next_v_r, s, out, policies)
    return bad
