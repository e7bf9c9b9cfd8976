# mypy: disable-error-code="no-any-return"
"""Phase 1 over a range of states at one time: equations (1)-(3); compiled.

``empo_theory.equations`` has the same equations as plain tensor functions, and the tests
compare with an independent reference solver.
"""

from __future__ import annotations

import math

from empo_exact import simd
from empo_exact.game import (
    Block,
    CurrentState,
    Game,
    GoalPayoffs,
    Humans,
    Policies,
    Scratch,
    Values,
)
from empo_exact.rows import (
    PLAIN,
    TERMINAL,
    Mixture,
    blend_some,
    extreme_replies,
    find_rows,
    kind_of,
)
from empo_theory.equations import TIE_TOLERANCE
from empo_worlds.compilation import inlined


@inlined
def list_profiles(game: Game, humans: Humans, state: int, human: int, s: Scratch) -> Mixture:
    """The available profiles with each own action, and how likely they seem, flat."""
    here = state if humans.belief.shape[0] > 1 else 0
    believes = humans.belief.shape[3] > 0
    together = game.together[human]
    for action in range(game.num_actions[human]):
        first, count = action * together, 0
        for k in range(together):
            profile = simd.entry(game.having, (human * game.num_profiles + first + k,))
            if simd.entry(s.is_available, (profile,)):
                s.rows[first + count] = profile
                s.share[first + count] = humans.belief[here, human, action, k] if believes else 1.0
                count += 1
        s.times[human, action] = count
        if not believes:
            for k in range(first, first + count):
                s.share[k] = 1.0 / count
    return Mixture(s.rows, 0, s.share, 0, game.num_profiles)


@inlined
def list_plainly(game: Game, human: int, s: Scratch) -> Mixture:
    """The same where all profiles are available and no beliefs are given."""
    for action in range(game.num_actions[human]):
        s.times[human, action] = game.together[human]
    first = human * game.num_profiles
    return Mixture(game.having, first, s.even, first, game.num_profiles)


@inlined
def find_gaps(
    game: Game,
    humans: Humans,
    state: int,
    human: int,
    listed: Mixture,
    s: Scratch,
    goal: int,
    zero: simd.Lanes,
) -> None:
    """Fill in Q_h^m, equation (1), and beta_h times how far each action falls short of the best.

    ``listed`` has the available profiles with each own action.
    """
    here = state if humans.beta.shape[0] > 1 else 0
    beta, best = simd.load(humans.beta, (here, goal), zero), zero - math.inf
    actions, together = game.num_actions[human], game.together[human]
    for action in range(actions):
        first, count = action * together, s.times[human, action]
        if count > 0:
            row, weight = listed.first_row + first, listed.first_weight + first
            others = Mixture(listed.rows, row, listed.weights, weight, count)
            q = blend_some(s.reply, others, goal, zero)
            simd.store(s.q, (action, goal), q)
            best = simd.larger(best, q)
    for action in range(actions):
        gap = zero - math.inf
        if s.times[human, action] > 0:
            q = simd.load(s.q, (action, goal), zero)
            gap = beta * (q - best)
            if humans.has_greedy:
                slack = TIE_TOLERANCE * simd.larger(simd.larger(best, 0.0 - best), 1.0)
                tied = simd.where_less(q, best - slack, -math.inf, 0.0)
                gap = simd.where_less(beta, math.inf, gap, tied)
        simd.store(s.weight, (action, goal), gap)


@inlined
def mix_habit(
    humans: Humans, state: int, action: int, policy: simd.Lanes, goal: int, zero: simd.Lanes
) -> simd.Lanes:
    """The policy for a few goals with the habitual one mixed in, equation (2)."""
    at = state if humans.nu.shape[0] > 1 else 0
    here = state if humans.habit.shape[0] > 1 else 0
    nu = simd.load(humans.nu, (at, goal), zero)
    habit = simd.load(humans.habit, (here, action, goal), zero)
    return simd.where_less(0.0, nu, (1.0 - nu) * policy + nu * habit, policy)


@inlined
def decide(
    game: Game,
    humans: Humans,
    here: CurrentState,
    human: int,
    goal: int,
    zero: simd.Lanes,
    s: Scratch,
    out: Values,
    policies: Policies,
) -> None:
    """One human's policy, equation (2), and value, equation (3), for a few goals.

    Where a goal is achieved already, it was paid for on arrival: the human idles.
    """
    actions, whole = game.num_actions[human], zero
    for action in range(actions):
        whole += simd.load(s.weight, (action, goal), zero)
    share, done = 1.0 / whole, simd.load(game.achieved, (here.state, goal), zero)
    value, idle = zero, True
    for action in range(actions):
        chosen = simd.load(s.weight, (action, goal), zero) * share
        if humans.has_habit:
            chosen = mix_habit(humans, here.state, action, chosen, goal, zero)
        if s.times[human, action] > 0:
            value += chosen * simd.load(s.q, (action, goal), zero)
        chosen *= 1.0 - done
        if idle and s.times[human, action] > 0:
            chosen += done
            idle = False
        simd.store(policies.pi_h, (here.position, action, goal), chosen)
    simd.store(out.v_m, (here.state, goal), value * (1.0 - done))
    for action in range(actions, policies.pi_h.shape[1]):
        simd.store(policies.pi_h, (here.position, action, goal), zero)


@inlined
def solve_humans(
    game: Game,
    humans: Humans,
    here: CurrentState,
    payoffs: GoalPayoffs,
    s: Scratch,
    out: Values,
    policies: Policies,
) -> None:
    """Humans' policies and values in one state, equations (1)-(3); arguments as in ``phase1``."""
    kind = kind_of(game, here.state)
    if kind == TERMINAL:
        for goal in range(payoffs.table.shape[1]):
            out.v_m[here.state, goal] = 0.0
            for action in range(policies.pi_h.shape[1]):
                policies.pi_h[here.position, action, goal] = 0.0
        return
    never = -math.inf if humans.is_optimistic else math.inf
    successors = find_rows(game, here.state, kind, payoffs, never, s)
    for profile in range(game.num_profiles):
        if humans.is_optimistic:
            extreme_replies(game, payoffs.table, successors, profile, True, s.reply)
        else:
            extreme_replies(game, payoffs.table, successors, profile, False, s.reply)
    for human in range(game.num_actions.shape[0]):
        if kind == PLAIN and humans.belief.shape[3] == 0:
            listed = list_plainly(game, human, s)
        else:
            listed = list_profiles(game, humans, here.state, human, s)
        goal, end = game.first_goal[human], game.first_goal[human + 1]
        while goal < end:
            if goal % simd.EIGHT == 0 and goal + simd.EIGHT <= end:
                find_gaps(game, humans, here.state, human, listed, s, goal, simd.eight(0.0))
                goal += simd.EIGHT
            else:
                find_gaps(game, humans, here.state, human, listed, s, goal, simd.four(0.0))
                goal += simd.FOUR
    for k in range(0, s.q.size, simd.SIXTEEN):
        gaps = simd.load(s.weight, (0, k), simd.sixteen(0.0))
        simd.store(s.weight, (0, k), simd.exponential(gaps))
    for human in range(game.num_actions.shape[0]):
        goal, end = game.first_goal[human], game.first_goal[human + 1]
        while goal < end:
            if goal % simd.EIGHT == 0 and goal + simd.EIGHT <= end:
                decide(game, humans, here, human, goal, simd.eight(0.0), s, out, policies)
                goal += simd.EIGHT
            else:
                decide(game, humans, here, human, goal, simd.four(0.0), s, out, policies)
                goal += simd.FOUR


@simd.kernel
def phase1(
    game: Game,
    humans: Humans,
    block: Block,
    payoffs: GoalPayoffs,
    s: Scratch,
    out: Values,
    policies: Policies,
) -> None:
    """Humans' policies and values in the states of a block, equations (1)-(3).

    ``payoffs`` is by V_h^m one step later. V_h^m goes into ``out`` by state number, pi_h into
    ``policies`` by position in the block.
    """
    for position in range(block.last - block.first):
        here = CurrentState(block.order[block.first + position], position)
        solve_humans(game, humans, here, payoffs, s, out, policies)
