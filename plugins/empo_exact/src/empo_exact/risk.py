# mypy: disable-error-code="no-any-return"
"""Phase 2 of robots that are averse to risk over trajectories: moments of their cost; compiled.

Source: arXiv 2608.08240. The cost of a trajectory is Y = c U + gamma_r^D Y', where U is -U_r, D the
duration of the first transition, c what U_r counts during it, and Y' the cost of what follows. The
robot ranks its actions by E[(gamma_r^D Y')^rho] where equation (4) has E[gamma_r^D Y'], and the
moments M_k = E[Y^k] of its policy follow from those one step later, by the binomial theorem::

    phase2_of_moments       the states of a block
      solve_risk_averse     one state
        expect_successors   (6), as in ``robots``
        weigh_profiles      (6), as in ``robots``
        expect_powers       E[(gamma_r^D Y')^j], by action
        sum_powers          the same, and with c, for numbers of any size
        choose_robot_action pi_r, in proportion to E[(gamma_r^D Y')^rho]^-beta_r
        attain              (6), (7), (8), as in ``robots``
        write_norms         M_k of the policy, by those of each action
        write_norms_by_logs   the same, for numbers of any size

Powers of large numbers overflow, so that norms ``m_k = M_k^(1/k)`` are kept. They are divided by a
common number where the powers of all then fit into the range of floats; elsewhere each action has a
scale of its own, for one that is most unlikely may be worse by a factor of 1e50.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from empo_exact.game import (
    Block,
    CurrentState,
    Floats,
    Game,
    GoalPayoffs,
    Moments,
    Policies,
    Scratch,
    Theory,
    Values,
)
from empo_exact.robots import attain, powers_and_reward, weigh_profiles, write_end
from empo_exact.rows import (
    PLAIN,
    TERMINAL,
    Successors,
    blend_replies,
    expect_successors,
    kind_of,
    reply_row,
)
from empo_exact.simd import (
    FOUR,
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

LARGE = 1e100
"""Powers of norms are computed where they are at most this, and at least its reciprocal."""


class MomentPayoffs(NamedTuple):
    """What reaching a state pays one step later.

    Attributes:
        by_v_e: For equation (6), by V_h^e.
        norms: ``m_k`` of each order from 1 on [row order].
        powers: ``(m_k / scale)^k``; 0 where an order is above ``rho`` [row padded_order].
        scale: What these are divided by; 0 where their powers leave the range of floats.
    """

    by_v_e: GoalPayoffs
    norms: Floats
    powers: Floats
    scale: float


@inlined
def expect_powers(
    game: Game,
    moments: Moments,
    state: int,
    kind: int,
    successors: Successors,
    payoffs: MomentPayoffs,
    s: Scratch,
) -> None:
    """The sums of all actions, by the common scale."""
    powers, profiles = payoffs.powers, game.num_profiles
    for robot in range(game.num_robot_actions):
        s.scale[robot] = payoffs.scale
        for column in range(0, powers.shape[1], FOUR):
            total = four(0.0)
            if kind == PLAIN:
                code = np.int64(entry(game.code, (successors.first,)))
                for profile in range(profiles):
                    chance = entry(s.profile_chance, (profile,))
                    row = reply_row(game, successors, profile, robot)
                    total += chance * load(powers, (row, column), total)
                total *= load(moments.weights, (code, column), total)
            else:
                base = np.int64(state) * game.num_joint + game.robot_joint[robot]
                for profile in range(profiles):
                    chance = entry(s.profile_chance, (profile,))
                    if chance == 0:
                        continue
                    pair = base + game.profile_joint[profile]
                    first = np.int64(entry(game.offsets, (pair,)))
                    for item in range(first, np.int64(entry(game.offsets, (pair + 1,)))):
                        code, after = entry(game.code, (item,)), entry(game.successor, (item,))
                        weight = chance * load(moments.weights, (code, column), total)
                        total += weight * load(powers, (after, column), total)
            store(s.sums, (robot, 0, column), total)
        s.highest[robot] = entry(s.sums, (robot, 0, moments.rho - 1))


@inlined
def sum_powers(
    game: Game, moments: Moments, state: int, robot: int, norms: Floats, s: Scratch
) -> None:
    """The scale and the sums of one action, for numbers of any size."""
    rho, profiles, scale = moments.rho, game.num_profiles, 0.0
    base = np.int64(state) * game.num_joint + game.robot_joint[robot]
    for profile in range(profiles):
        if s.profile_chance[profile] == 0:
            continue
        pair = base + game.profile_joint[profile]
        for item in range(np.int64(game.offsets[pair]), np.int64(game.offsets[pair + 1])):
            code, after = np.int64(game.code[item]), np.uint32(game.successor[item])
            scale = max(scale, moments.discount[code] * norms[after, rho - 1])
    most = 0 if moments.is_uniform else rho
    for i in range(most + 1):
        s.accruals[robot, i] = 0.0
        for order in range(rho):
            s.sums[robot, i, order] = 0.0
    for profile in range(profiles):
        chance = s.profile_chance[profile]
        if chance == 0:
            continue
        pair = base + game.profile_joint[profile]
        for item in range(np.int64(game.offsets[pair]), np.int64(game.offsets[pair + 1])):
            code, after = np.int64(game.code[item]), np.uint32(game.successor[item])
            likely = chance * game.prob[code]
            share = moments.discount[code] / scale
            for order in range(rho):
                power, factor = likely, share * norms[after, order]
                for _ in range(order + 1):
                    power *= factor
                s.sums[robot, 0, order] += power
                for i in range(1, min(most, rho - order - 1) + 1):
                    power *= moments.accrual[code]
                    s.sums[robot, i, order] += power
            for i in range(1, most + 1):
                likely *= moments.accrual[code]
                s.accruals[robot, i] += likely
    s.scale[robot], s.highest[robot] = scale, s.sums[robot, 0, rho - 1]


@inlined
def root(number: float, order: int) -> float:
    """``number ** (1 / order)``, quickly where the order is a power of 2."""
    if order == 1:
        return number
    if order == 2:
        return math.sqrt(number)
    if order == 4:
        return math.sqrt(math.sqrt(number))
    return number ** (1.0 / order)


@inlined
def choose_robot_action(theory: Theory, moments: Moments, robots: int, s: Scratch) -> None:
    """Fill in the robot's policy, and Q_r: the negative norm of order ``rho`` of what follows."""
    best, zero = -math.inf, four(0.0)
    for robot in range(0, s.q_r.shape[0], FOUR):
        scale = logarithm(load(s.scale, (robot,), zero))
        log_mean = moments.rho * scale + logarithm(load(s.highest, (robot,), zero))
        is_available = load(s.is_robot_available, (robot,), zero)
        gain = where_less(0.0, is_available, -theory.beta_r * log_mean, -math.inf)
        store(s.log_policy, (robot,), gain)
    for robot in range(robots):
        best = max(best, entry(s.log_policy, (robot,)))
        s.q_r[robot] = -s.scale[robot] * root(s.highest[robot], moments.rho)
    mass = zero
    for robot in range(0, s.q_r.shape[0], FOUR):
        weight = exponential(load(s.log_policy, (robot,), zero) - best)
        mass += weight
        store(s.pi_r, (robot,), weight)
    whole = lane_sum(mass)
    share, less = 1.0 / whole, best + math.log(whole)
    for robot in range(0, s.q_r.shape[0], FOUR):
        store(s.pi_r, (robot,), load(s.pi_r, (robot,), zero) * share)
        store(s.log_policy, (robot,), load(s.log_policy, (robot,), zero) - less)


@inlined
def write_norm(state: int, order: int, norm: float, out: Values) -> None:
    """Write a norm of a state; that of order 1 is -V_r."""
    if order == 1:
        out.v_r[state] = -norm
    else:
        out.norms[state, order - 2] = norm


@inlined
def write_norms(
    moments: Moments, state: int, robots: int, cost: float, scale: float, s: Scratch, out: Values
) -> None:
    """The norms of a state, where all actions have a common scale.

    ``cost`` is what U_r counts until the next state, the same after all actions.
    """
    here, orders = cost / scale, s.sums.shape[2]
    for column in range(0, orders, FOUR):  # E over a_r, in the first row of sums.
        total = four(0.0)
        for robot in range(robots):
            total += entry(s.pi_r, (robot,)) * load(s.sums, (robot, 0, column), total)
        store(s.sums, (0, 0, column), total)
    for order in range(1, moments.rho + 1):
        total_power, power = entry(s.sums, (0, 0, order - 1)), 1.0
        for j in range(order - 1, -1, -1):
            power *= here
            mean = entry(s.sums, (0, 0, j - 1)) if j > 0 else 1.0
            total_power += entry(moments.binomial, (order, j)) * power * mean
        write_norm(state, order, scale * root(total_power, order), out)


@inlined
def log_moment(moments: Moments, robot: int, order: int, cost: float, s: Scratch) -> float:
    """The logarithm of E[Y^order] after an action, in a state where U_r counts ``-cost``."""
    scale = max(cost, s.scale[robot])
    here, later = cost / scale, s.scale[robot] / scale
    total = 0.0
    for j in range(order + 1):
        i = 0 if moments.is_uniform else order - j
        mean = 1.0 if i == 0 else s.accruals[robot, i]
        if j > 0:
            mean = s.sums[robot, i, j - 1]
        total += moments.binomial[order, j] * here ** (order - j) * later**j * mean
    return order * math.log(scale) + math.log(total)


@inlined
def write_norms_by_logs(
    moments: Moments, state: int, robots: int, cost: float, s: Scratch, out: Values
) -> None:
    """The norms of a state, for numbers of any size; arguments as in ``write_norms``."""
    for order in range(1, moments.rho + 1):
        best, total = -math.inf, 0.0
        for robot in range(robots):
            s.log_moment[robot] = -math.inf
            if s.log_policy[robot] > -math.inf:
                moment = log_moment(moments, robot, order, cost, s)
                s.log_moment[robot] = s.log_policy[robot] + moment
            best = max(best, s.log_moment[robot])
        for robot in range(robots):
            total += math.exp(s.log_moment[robot] - best)
        write_norm(state, order, math.exp((best + math.log(total)) / order), out)


@inlined
def solve_risk_averse(
    game: Game,
    theory: Theory,
    moments: Moments,
    here: CurrentState,
    payoffs: MomentPayoffs,
    s: Scratch,
    out: Values,
    policies: Policies,
) -> int:
    """The robot's values and policy in one state; arguments as in ``phase2_of_moments``.

    Returns:
        1 if the state has no finite U_r, else 0.
    """
    position, robots, rho = here.position, game.num_robot_actions, moments.rho
    kind = kind_of(game, here.state)
    if kind == TERMINAL:
        return write_end(game, theory, here, out, policies)
    successors = expect_successors(game, here.state, kind, payoffs.by_v_e, 0.0, s)
    weigh_profiles(game, policies.pi_h, position, s)
    is_common = payoffs.scale > 0 and moments.is_uniform
    if is_common:
        expect_powers(game, moments, here.state, kind, successors, payoffs, s)
    else:
        for robot in range(robots):
            if s.is_robot_available[robot]:
                sum_powers(game, moments, here.state, robot, payoffs.norms, s)
    choose_robot_action(theory, moments, robots, s)
    for profile in range(game.num_profiles):
        blend_replies(game, payoffs.by_v_e.table, successors, profile, s.pi_r, s.by_profile)
    for human in range(game.num_actions.shape[0]):
        first, end = game.first_goal[human], game.first_goal[human + 1]
        over_goals(attain, first, end, game, theory, here, human, policies.pi_h, s, out.v_e)
    u = powers_and_reward(game, theory, here, out.v_e, policies.x_h)
    policies.u_r[position] = u
    for robot in range(robots):
        policies.pi_r[position, robot] = s.pi_r[robot]
        policies.q_r[position, robot] = s.q_r[robot] if s.is_robot_available[robot] else math.nan
    if not math.isfinite(u):
        for order in range(1, rho + 1):
            write_norm(here.state, order, math.nan, out)
        return 1
    cost = -u * moments.accrual[0] if moments.is_uniform else -u
    if is_common and (cost / payoffs.scale) ** rho < LARGE:
        write_norms(moments, here.state, robots, cost, payoffs.scale, s, out)
    else:
        write_norms_by_logs(moments, here.state, robots, cost, s, out)
    return 0


@kernel
def phase2_of_moments(
    game: Game,
    theory: Theory,
    moments: Moments,
    block: Block,
    payoffs: MomentPayoffs,
    s: Scratch,
    out: Values,
    policies: Policies,
) -> int:
    """The robot's values and policy in the states of a block, with the moments of its cost.

    ``payoffs`` are those of one step later. V_h^e, V_r and norms go into ``out`` by state number;
    ``policies`` has pi_h, and receives the rest, by position in the block. Q_r is
    ``-E[(gamma_r^D Y')^rho]^(1/rho)``, which is that of equation (4) where ``rho`` is 1.

    Returns:
        How many states have no finite U_r; their V_r is NaN.
    """
    bad = 0
    for position in range(block.last - block.first):
        here = CurrentState(block.order[block.first + position], position)
        bad += solve_risk_averse(game, theory, moments, here, payoffs, s, out, policies)
    return bad
