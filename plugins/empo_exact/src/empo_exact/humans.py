# mypy: disable-error-code="no-any-return"
"""Phase 1: how humans act for each goal if the robot does its worst (or best), (1)-(3); compiled.

In the order of the paper (arXiv 2508.00159v2, Table 1), with V_h^m of the next step known::

    phase1                 the states of a block
      solve_humans         one state
        expect_successors  (1) E over s' of U + (1 - U) gamma_h V_h^m; the tables that it reads
                           have that bracket already, unless durations differ: ``payoffs.py``
        extreme_replies    (1) min over a_r of it, for each of the humans' profiles; or max, or mean
        list_profiles      (1) the others' actions a_-h, evenly likely or as believed
        value_human_actions  (1) Q_h^m; (2) beta_h (Q_h^m - max Q_h^m)
        exponential        (2) e to that
        decide             (2) pi_h; (3) V_h^m

A profile is a joint action of all humans. ``Lanes`` are 8 or 4 goals at a time, by ``over_goals``.
``where_less(a, b, yes, no)`` is ``yes`` where ``a < b``.
``empo_theory.reference`` has the same in plain Python.
"""

from __future__ import annotations

import math

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
    blend_replies,
    blend_some,
    expect_successors,
    extreme_replies,
    kind_of,
    row_of,
)
from empo_exact.simd import (
    SIXTEEN,
    Lanes,
    entry,
    exponential,
    kernel,
    larger,
    load,
    over_goals,
    sixteen,
    store,
    where_less,
)
from empo_theory.equations import TIE_TOLERANCE
from empo_worlds.compilation import inlined


@inlined
def list_profiles(game: Game, humans: Humans, state: int, human: int, s: Scratch) -> Mixture:
    """The available profiles with each own action, and how likely they seem, flat.

    Those with action a begin at ``a * num_with_action``; ``s.num_available`` counts them.
    """
    here = row_of(humans.belief, state)
    believes = humans.belief.shape[3] > 0
    together = game.num_with_action[human]
    for action in range(game.num_actions[human]):
        first, count = action * together, 0
        for k in range(together):
            profile = entry(game.with_action, (human * game.num_profiles + first + k,))
            if entry(s.is_available, (profile,)):
                s.profiles[first + count] = profile
                s.believed[first + count] = (
                    humans.belief[here, human, action, k] if believes else 1.0
                )
                count += 1
        s.num_available[human, action] = count
        if not believes:
            for k in range(first, first + count):
                s.believed[k] = 1.0 / count
    return Mixture(s.profiles, 0, s.believed, 0, game.num_profiles)


@inlined
def list_plainly(game: Game, human: int, s: Scratch) -> Mixture:
    """The same where all profiles are available and no beliefs are given."""
    for action in range(game.num_actions[human]):
        s.num_available[human, action] = game.num_with_action[human]
    first = human * game.num_profiles
    return Mixture(game.with_action, first, s.evenly, first, game.num_profiles)


@inlined
def value_human_actions(
    goal: int,
    zero: Lanes,
    game: Game,
    humans: Humans,
    state: int,
    human: int,
    listed: Mixture,
    s: Scratch,
) -> None:
    """Q_h^m, equation (1), and beta_h times how far each action falls short of the best.

    ``listed`` has the available profiles with each own action.
    """
    here = row_of(humans.beta, state)
    beta, best = load(humans.beta, (here, goal), zero), zero - math.inf
    actions, together = game.num_actions[human], game.num_with_action[human]
    for action in range(actions):
        first, count = action * together, s.num_available[human, action]
        if count > 0:
            row, weight = listed.first_row + first, listed.first_weight + first
            others = Mixture(listed.rows, row, listed.weights, weight, count)
            q = blend_some(s.by_profile, others, goal, zero)  # (1)
            store(s.q, (action, goal), q)
            best = larger(best, q)
    for action in range(actions):
        gap = zero - math.inf
        if s.num_available[human, action] > 0:
            q = load(s.q, (action, goal), zero)
            gap = beta * (q - best)
            if humans.has_greedy:
                slack = TIE_TOLERANCE * larger(larger(best, 0.0 - best), 1.0)
                tied = where_less(q, best - slack, -math.inf, 0.0)
                gap = where_less(beta, math.inf, gap, tied)
        store(s.scores, (action, goal), gap)


@inlined
def mix_habit(
    humans: Humans, state: int, action: int, policy: Lanes, goal: int, zero: Lanes
) -> Lanes:
    """The policy for a few goals with the habitual one mixed in, equation (2)."""
    nu = load(humans.nu, (row_of(humans.nu, state), goal), zero)
    habit = load(humans.habit, (row_of(humans.habit, state), action, goal), zero)
    return where_less(0.0, nu, (1.0 - nu) * policy + nu * habit, policy)


@inlined
def decide(
    goal: int,
    zero: Lanes,
    game: Game,
    humans: Humans,
    here: CurrentState,
    human: int,
    s: Scratch,
    out: Values,
    policies: Policies,
) -> None:
    """One human's policy, equation (2), and value, equation (3), for a few goals.

    Where a goal is achieved already, it was paid for on arrival: the human idles, by its first
    available action, and V_h^m is 0; or 1, where presence counts.
    """
    actions, whole = game.num_actions[human], zero
    for action in range(actions):
        whole += load(s.scores, (action, goal), zero)
    share, achieved = 1.0 / whole, load(game.achieved, (here.state, goal), zero)
    value, idle = zero, True
    for action in range(actions):
        chosen = load(s.scores, (action, goal), zero) * share  # (2)
        if humans.has_habit:
            chosen = mix_habit(humans, here.state, action, chosen, goal, zero)
        if s.num_available[human, action] > 0:
            value += chosen * load(s.q, (action, goal), zero)  # (3)
        chosen *= 1.0 - achieved
        if idle and s.num_available[human, action] > 0:
            chosen += achieved
            idle = False
        store(policies.pi_h, (here.position, action, goal), chosen)
    value = where_less(0.0, achieved, humans.achieved_value, value)
    store(out.v_m, (here.state, goal), value)
    for action in range(actions, policies.pi_h.shape[1]):
        store(policies.pi_h, (here.position, action, goal), zero)


@inlined
def choose_evenly(robots: int, s: Scratch) -> None:
    """Fill in a robot's policy that takes every available joint action alike."""
    count = 0
    for robot in range(robots):
        count += entry(s.is_robot_available, (robot,))
    for robot in range(robots):
        s.pi_r[robot] = entry(s.is_robot_available, (robot,)) / count


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
            achieved = entry(game.achieved, (here.state, goal))
            out.v_m[here.state, goal] = humans.achieved_value * achieved
            for action in range(policies.pi_h.shape[1]):
                policies.pi_h[here.position, action, goal] = 0.0
        return
    unavailable = -math.inf if humans.is_optimistic else math.inf
    if humans.is_even:
        unavailable = 0.0
    successors = expect_successors(
        game, here.state, kind, payoffs, unavailable, s
    )  # (1): E over s'
    if humans.is_even:
        choose_evenly(game.num_robot_actions, s)
    for profile in range(game.num_profiles):  # (1): min over a_r
        if humans.is_even:
            blend_replies(game, payoffs.table, successors, profile, s.pi_r, s.by_profile)
        elif humans.is_optimistic:
            extreme_replies(game, payoffs.table, successors, profile, True, s.by_profile)
        else:
            extreme_replies(game, payoffs.table, successors, profile, False, s.by_profile)
    for human in range(game.num_actions.shape[0]):  # (1): E over a_-h
        if kind == PLAIN and humans.belief.shape[3] == 0:
            listed = list_plainly(game, human, s)
        else:
            listed = list_profiles(game, humans, here.state, human, s)
        first, end = game.first_goal[human], game.first_goal[human + 1]
        over_goals(value_human_actions, first, end, game, humans, here.state, human, listed, s)
    for k in range(0, s.q.size, SIXTEEN):  # (2), of all actions and goals, flat
        gaps = load(s.scores, (0, k), sixteen(0.0))
        store(s.scores, (0, k), exponential(gaps))
    for human in range(game.num_actions.shape[0]):  # (2), (3)
        first, end = game.first_goal[human], game.first_goal[human + 1]
        over_goals(decide, first, end, game, humans, here, human, s, out, policies)


@kernel
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
