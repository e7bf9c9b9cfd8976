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
        sum_powers          E[c^i (gamma_r^D Y')^j], by action
        choose_robot_action pi_r, in proportion to E[(gamma_r^D Y')^rho]^-beta_r
        attain              (6), (7), (8), as in ``robots``
        log_moment          M_k, by action

Powers of large numbers overflow, so that norms ``m_k = M_k^(1/k)`` are kept, and each action has a
scale of its own: one that is most unlikely may be worse by a factor of 1e50.
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
from empo_exact.robots import attain, mark_achieved, powers_and_reward, weigh_profiles, write_end
from empo_exact.rows import TERMINAL, blend_replies, expect_successors, kind_of
from empo_exact.simd import kernel, over_goals
from empo_worlds.compilation import inlined


class MomentPayoffs(NamedTuple):
    """What reaching a state pays one step later.

    Attributes:
        by_v_e: For equation (6), by V_h^e.
        norms: ``m_k`` of each order from 1 on [row order].
    """

    by_v_e: GoalPayoffs
    norms: Floats


@inlined
def sum_powers(
    game: Game, moments: Moments, state: int, robot: int, norms: Floats, s: Scratch
) -> None:
    """The scale and the sums of one action."""
    rho, profiles, scale = moments.rho, game.num_profiles, 0.0
    base = np.int64(state) * game.num_joint + game.robot_joint[robot]
    for profile in range(profiles):
        if s.profile_chance[profile] == 0:
            continue
        pair = base + game.profile_joint[profile]
        for item in range(np.int64(game.offsets[pair]), np.int64(game.offsets[pair + 1])):
            code, after = np.int64(game.code[item]), np.uint32(game.successor[item])
            scale = max(scale, moments.discount[code] * norms[after, rho - 1])
    s.scale[robot] = scale
    most = 0 if moments.is_uniform else rho
    for i in range(most + 1):
        for j in range(rho + 1):
            s.sums[robot, i, j] = 0.0
    for profile in range(profiles):
        chance = s.profile_chance[profile]
        if chance == 0:
            continue
        pair = base + game.profile_joint[profile]
        for item in range(np.int64(game.offsets[pair]), np.int64(game.offsets[pair + 1])):
            code, after = np.int64(game.code[item]), np.uint32(game.successor[item])
            likely = chance * game.prob[code]
            share = moments.discount[code] / scale
            s.sums[robot, 0, 0] += likely
            for j in range(1, rho + 1):
                power, factor = likely, share * norms[after, j - 1]
                for _ in range(j):
                    power *= factor
                s.sums[robot, 0, j] += power
                for i in range(1, min(most, rho - j) + 1):
                    power *= moments.accrual[code]
                    s.sums[robot, i, j] += power
            for i in range(1, most + 1):
                likely *= moments.accrual[code]
                s.sums[robot, i, 0] += likely


@inlined
def choose_robot_action(theory: Theory, moments: Moments, robots: int, s: Scratch) -> None:
    """Fill in the robot's policy, and Q_r: the negative norm of order ``rho`` of what follows."""
    best, total, rho = -math.inf, 0.0, moments.rho
    for robot in range(robots):
        s.log_policy[robot] = -math.inf
        if s.is_robot_available[robot]:
            log_mean = rho * math.log(s.scale[robot]) + math.log(s.sums[robot, 0, rho])
            s.q_r[robot] = -math.exp(log_mean / rho)
            s.log_policy[robot] = -theory.beta_r * log_mean
            best = max(best, s.log_policy[robot])
    for robot in range(robots):
        total += math.exp(s.log_policy[robot] - best)
    for robot in range(s.pi_r.shape[0]):
        s.pi_r[robot] = 0.0
    for robot in range(robots):
        s.log_policy[robot] -= best + math.log(total)
        s.pi_r[robot] = math.exp(s.log_policy[robot])


@inlined
def log_moment(moments: Moments, robot: int, order: int, cost: float, s: Scratch) -> float:
    """Ln E[Y^order] after an action, in a state whose U_r is ``-cost``."""
    scale = max(cost, s.scale[robot])
    here, later = cost / scale, s.scale[robot] / scale
    total = 0.0
    for j in range(order + 1):
        i = 0 if moments.is_uniform else order - j
        total += moments.binomial[order, j] * here ** (order - j) * later**j * s.sums[robot, i, j]
    return order * math.log(scale) + math.log(total)


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
    position, robots = here.position, game.num_robot_actions
    kind = kind_of(game, here.state)
    if kind == TERMINAL:
        return write_end(game, theory, here, out, policies)
    successors = expect_successors(game, here.state, kind, payoffs.by_v_e, 0.0, s)
    weigh_profiles(game, policies.pi_h, position, s)
    for robot in range(robots):
        if s.is_robot_available[robot]:
            sum_powers(game, moments, here.state, robot, payoffs.norms, s)
    choose_robot_action(theory, moments, robots, s)
    for profile in range(game.num_profiles):
        blend_replies(game, payoffs.by_v_e.table, successors, profile, s.pi_r, s.by_profile)
    for human in range(game.num_actions.shape[0]):
        first, end = game.first_goal[human], game.first_goal[human + 1]
        over_goals(attain, first, end, game, here, human, policies.pi_h, s, out.v_e)
    if theory.is_presence:
        mark_achieved(game, here.state, out.v_e)
    u = powers_and_reward(game, theory, here, out.v_e, policies.x_h)
    policies.u_r[position] = u
    for robot in range(robots):
        policies.pi_r[position, robot] = s.pi_r[robot]
        policies.q_r[position, robot] = s.q_r[robot] if s.is_robot_available[robot] else math.nan
    cost = -u * moments.accrual[0] if moments.is_uniform else -u
    for order in range(1, moments.rho + 1):
        best, total, norm = -math.inf, 0.0, math.nan
        if math.isfinite(u):
            for robot in range(robots):
                s.log_moment[robot] = -math.inf
                if s.log_policy[robot] > -math.inf:
                    moment = log_moment(moments, robot, order, cost, s)
                    s.log_moment[robot] = s.log_policy[robot] + moment
                best = max(best, s.log_moment[robot])
            for robot in range(robots):
                total += math.exp(s.log_moment[robot] - best)
            norm = math.exp((best + math.log(total)) / order)
        if order == 1:
            out.v_r[here.state] = -norm
        else:
            out.norms[here.state, order - 2] = norm
    return 0 if math.isfinite(u) else 1


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
