"""Phase 1 over a range of states at one time: equations (1)-(3); compiled.

``empo_core.equations`` has the same equations as plain tensor functions, and the tests
compare with an independent reference solver.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from empo_core.compilation import compiled, inlined
from empo_core.equations import TIE_TOLERANCE
from empo_exact.kernel_data import WIDEST, Floats, Game, Humans, Scratch
from empo_exact.rows import PLAIN, TERMINAL, blend_some, extreme, find_rows
from empo_exact.simd import (
    Lanes,
    eight,
    entry,
    four,
    larger,
    load,
    sixteen,
    store,
    times_power_of_two,
    where_less,
)

NEGLIGIBLE = -708.0
"""Exponentials of less than this are taken to be 0; they are below 1e-307."""
LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
ROUND = 6755399441055744.0
"""1.5 * 2^52: adding it rounds to an integer, which then stands in the lowest bits."""


@inlined
def list_profiles(game: Game, humans: Humans, state: int, human: int, s: Scratch) -> None:
    """Fill in the available profiles with each own action, and how likely they seem."""
    here = state if humans.belief.shape[0] > 1 else 0
    believes = humans.belief.shape[3] > 0
    together = game.together[human]
    for action in range(game.num_actions[human]):
        first, count = action * together, 0
        for k in range(together):
            profile = entry(game.having, (human * game.shape[1] + first + k,))
            if entry(s.seen, (profile,)):
                s.rows[first + count] = profile
                s.share[first + count] = humans.belief[here, human, action, k] if believes else 1.0
                count += 1
        s.times[human, action] = count
        if not believes:
            for k in range(first, first + count):
                s.share[k] = 1.0 / count


@inlined
def list_plainly(game: Game, human: int, s: Scratch) -> None:
    """The same where all profiles are available and no beliefs are given."""
    together, profiles = game.together[human], game.shape[1]
    share = 1.0 / together
    for k in range(profiles):
        s.rows[k] = entry(game.having, (human * profiles + k,))
        s.share[k] = share
    for action in range(game.num_actions[human]):
        s.times[human, action] = together


@inlined
def place(game: Game, human: int, action: int, goal: int, s: Scratch) -> int:
    """Where ``s.weight`` has an action and goal of a human."""
    begin, end = game.first_goal[human], game.first_goal[human + 1]
    return begin * s.q.shape[0] + action * (end - begin) + goal - begin


@inlined
def find_gaps(
    game: Game, humans: Humans, state: int, human: int, s: Scratch, goal: int, zero: Lanes
) -> None:
    """Fill in Q_h^m, equation (1), and beta_h times how far each action falls short of the best."""
    here = state if humans.beta.shape[0] > 1 else 0
    beta, best = load(humans.beta, (here, goal), zero), zero - math.inf
    actions, together = game.num_actions[human], game.together[human]
    for action in range(actions):
        first, count = action * together, s.times[human, action]
        if count > 0:
            q = blend_some(s.reply, s.rows, first, s.share, first, count, goal, zero)
            store(s.q, (action, goal), q)
            best = larger(best, q)
    for action in range(actions):
        gap = zero - math.inf
        if s.times[human, action] > 0:
            q = load(s.q, (action, goal), zero)
            gap = beta * (q - best)
            if humans.flag[2]:
                slack = TIE_TOLERANCE * larger(larger(best, 0.0 - best), 1.0)
                tied = where_less(q, best - slack, -math.inf, 0.0)
                gap = where_less(beta, math.inf, gap, tied)
        store(s.weight, (place(game, human, action, goal, s),), gap)


@inlined
def exponential(x: Lanes) -> Lanes:
    """exp(x) for x <= 0, to about one unit in the last place.

    Calls of ``math.exp`` would cost more than all the rest: so x = n ln 2 + r with
    |r| <= ln 2 / 2, a Taylor polynomial of degree 13 for exp(r), and 2^n put together from bits.
    The polynomial is summed in pairs and pairs of pairs, which do not wait for each other.
    """
    bounded = larger(x, NEGLIGIBLE)
    shifted = bounded * LOG2_E + ROUND  # its low bits are n
    n = shifted - ROUND
    r = (bounded - n * LN2_HIGH) - n * LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    first = (1.0 / 6.0 * r + 1.0 / 2.0) * r2 + (r + 1.0)
    second = (1.0 / 5040.0 * r + 1.0 / 720.0) * r2 + (1.0 / 120.0 * r + 1.0 / 24.0)
    third = (1.0 / 39916800.0 * r + 1.0 / 3628800.0) * r2 + (1.0 / 362880.0 * r + 1.0 / 40320.0)
    fourth = 1.0 / 6227020800.0 * r + 1.0 / 479001600.0
    y = (fourth * r4 + third) * (r4 * r4) + (second * r4 + first)
    return where_less(NEGLIGIBLE, x, times_power_of_two(y, shifted), 0.0)


@inlined
def mix_habit(
    humans: Humans, state: int, action: int, policy: Lanes, goal: int, zero: Lanes
) -> Lanes:
    """The policy for a few goals with the habitual one mixed in, equation (2)."""
    at = state if humans.nu.shape[0] > 1 else 0
    here = state if humans.habit.shape[0] > 1 else 0
    nu = load(humans.nu, (at, goal), zero)
    habit = load(humans.habit, (here, action, goal), zero)
    return where_less(0.0, nu, (1.0 - nu) * policy + nu * habit, policy)


@inlined
def decide(
    game: Game,
    humans: Humans,
    state: int,
    human: int,
    s: Scratch,
    v_m: Floats,
    policy: Floats,
    index: int,
    goal: int,
    zero: Lanes,
) -> None:
    """One human's policy, equation (2), and value, equation (3), for a few goals.

    Where a goal is achieved already, it was paid for on arrival: the human idles.
    """
    actions, whole = game.num_actions[human], zero
    for action in range(actions):
        whole += load(s.weight, (place(game, human, action, goal, s),), zero)
    share, done = 1.0 / whole, load(game.achieved, (state, goal), zero)
    value, idle = zero, True
    for action in range(actions):
        chosen = load(s.weight, (place(game, human, action, goal, s),), zero) * share
        if humans.flag[1]:
            chosen = mix_habit(humans, state, action, chosen, goal, zero)
        if s.times[human, action] > 0:
            value += chosen * load(s.q, (action, goal), zero)
        chosen *= 1.0 - done
        if idle and s.times[human, action] > 0:
            chosen += done
            idle = False
        store(policy, (index, action, goal), chosen)
    store(v_m, (state, goal), value * (1.0 - done))
    for action in range(actions, policy.shape[1]):
        store(policy, (index, action, goal), zero)


@compiled
def phase1(
    game: Game,
    humans: Humans,
    order: NDArray[np.int32],
    first: int,
    last: int,
    value: Floats,
    spare: int,
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
        value: What reaching a state is worth, see ``find_rows`` [state goal]; rows from
            ``spare`` on are scratch, one per joint action.
        spare: First row of ``value`` that belongs to no state.
        longer: Whether durations differ.
        s: Working memory.
        v_m: Receives V_h^m, by state number [state goal].
        policy: Receives pi_h, by position from ``first`` on [position action goal].
    """
    profiles, robots = game.shape[1], game.shape[2]
    helps = humans.flag[0]
    never = -math.inf if helps else math.inf
    for position in range(first, last):
        state, index = order[position], position - first
        kind = find_rows(game, state, value, spare, longer, never, s)
        if kind == TERMINAL:
            for goal in range(value.shape[1]):
                v_m[state, goal] = 0.0
                for action in range(policy.shape[1]):
                    policy[index, action, goal] = 0.0
            continue
        for profile in range(profiles):
            extreme(
                value, s.at, profile * robots, profile * robots + robots, helps, s.reply, profile
            )
        for human in range(game.num_actions.shape[0]):
            if kind == PLAIN and humans.belief.shape[3] == 0:
                list_plainly(game, human, s)
            else:
                list_profiles(game, humans, state, human, s)
            goal, end = game.first_goal[human], game.first_goal[human + 1]
            while goal + 8 <= end:
                find_gaps(game, humans, state, human, s, goal, eight(0.0))
                goal += 8
            while goal < end:
                find_gaps(game, humans, state, human, s, goal, four(0.0))
                goal += 4
        for k in range(0, s.weight.shape[0], WIDEST):
            store(s.weight, (k,), exponential(load(s.weight, (k,), sixteen(0.0))))
        for human in range(game.num_actions.shape[0]):
            goal, end = game.first_goal[human], game.first_goal[human + 1]
            while goal + 8 <= end:
                decide(game, humans, state, human, s, v_m, policy, index, goal, eight(0.0))
                goal += 8
            while goal < end:
                decide(game, humans, state, human, s, v_m, policy, index, goal, four(0.0))
                goal += 4
