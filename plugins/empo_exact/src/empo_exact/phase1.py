"""Phase 1 over a range of states at one time: equations (1)-(3); compiled.

``empo_core.equations`` has the same equations as plain tensor functions, and the tests
compare with an independent reference solver.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from empo_core.equations import TIE_TOLERANCE
from empo_exact.game import Floats, Game, Humans, Scratch
from empo_exact.interning import compiled, inlined
from empo_exact.lanes import (
    Lanes,
    eight,
    entry,
    four,
    larger,
    load,
    store,
    times_power_of_two,
    where_less,
)
from empo_exact.rows import TERMINAL, blend, extreme, find_rows

NEGLIGIBLE = -708.0
"""Exponentials of less than this are taken to be 0; they are below 1e-307."""
LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
ROUND = 6755399441055744.0
"""1.5 * 2^52: adding it rounds to an integer, which then stands in the lowest bits."""


@inlined
def list_profiles(
    game: Game, humans: Humans, state: int, human: int, action: int, s: Scratch
) -> int:
    """Fill in the available profiles with one own action, and how likely they seem."""
    here = state if humans.belief.shape[0] > 1 else 0
    believes = humans.belief.shape[3] > 0
    profiles = game.shape[1]
    others = profiles // game.num_actions[human]
    count = 0
    for k in range(others):
        profile = entry(game.having, (human * profiles + action * others + k,))
        if entry(s.seen, (profile,)):
            s.rows[count] = profile
            s.share[count] = humans.belief[here, human, action, k] if believes else 1.0
            count += 1
    if not believes:
        for k in range(count):
            s.share[k] = 1.0 / count
    return count


@inlined
def value_own_actions(game: Game, humans: Humans, state: int, human: int, s: Scratch) -> None:
    """Fill in Q_h^m of one human's own actions, equation (1), and how often each occurs."""
    begin, end = game.first_goal[human], game.first_goal[human + 1]
    for action in range(game.num_actions[human]):
        count = list_profiles(game, humans, state, human, action, s)
        s.times[action] = count
        if count > 0:
            blend(s.reply, s.rows, 0, s.share, 0, count, s.q, action, begin, end)


@inlined
def exponential(x: Lanes) -> Lanes:
    """exp(x) for x <= 0, to about one unit in the last place.

    Calls of ``math.exp`` would cost more than all the rest: so x = n ln 2 + r with
    |r| <= ln 2 / 2, a Taylor polynomial of degree 13 for exp(r), and 2^n put together from bits.
    """
    bounded = larger(x, NEGLIGIBLE)
    shifted = bounded * LOG2_E + ROUND  # its low bits are n
    n = shifted - ROUND
    r = (bounded - n * LN2_HIGH) - n * LN2_LOW
    y = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0
    y = y * r + 1.0 / 39916800.0
    y = y * r + 1.0 / 3628800.0
    y = y * r + 1.0 / 362880.0
    y = y * r + 1.0 / 40320.0
    y = y * r + 1.0 / 5040.0
    y = y * r + 1.0 / 720.0
    y = y * r + 1.0 / 120.0
    y = y * r + 1.0 / 24.0
    y = y * r + 1.0 / 6.0
    y = y * r + 0.5
    y = y * r + 1.0
    y = y * r + 1.0
    return where_less(NEGLIGIBLE, x, times_power_of_two(y, shifted), 0.0)


@inlined
def weigh_actions(
    humans: Humans, state: int, actions: int, s: Scratch, goal: int, zero: Lanes
) -> Lanes:
    """Fill in how much own actions weigh for a few goals, and give their total weight."""
    here = state if humans.beta.shape[0] > 1 else 0
    beta = load(humans.beta, (here, goal), zero)
    best, whole = zero - math.inf, zero
    for action in range(actions):
        if s.times[action] > 0:
            best = larger(best, load(s.q, (action, goal), zero))
    for action in range(actions):
        weight = zero
        if s.times[action] > 0:
            q = load(s.q, (action, goal), zero)
            weight = exponential(beta * (q - best))
            if humans.flag[2]:
                slack = TIE_TOLERANCE * larger(larger(best, 0.0 - best), 1.0)
                weight = where_less(beta, math.inf, weight, where_less(q, best - slack, 0.0, 1.0))
        store(s.weight, (action, goal), weight)
        whole += weight
    return whole


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
    actions = game.num_actions[human]
    share = 1.0 / weigh_actions(humans, state, actions, s, goal, zero)
    done = load(game.achieved, (state, goal), zero)
    value, idle = zero, True
    for action in range(actions):
        chosen = load(s.weight, (action, goal), zero) * share
        if humans.flag[1]:
            chosen = mix_habit(humans, state, action, chosen, goal, zero)
        if s.times[action] > 0:
            value += chosen * load(s.q, (action, goal), zero)
        chosen *= 1.0 - done
        if idle and s.times[action] > 0:
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
        if find_rows(game, state, value, spare, longer, never, s) == TERMINAL:
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
            value_own_actions(game, humans, state, human, s)
            goal, end = game.first_goal[human], game.first_goal[human + 1]
            while goal + 8 <= end:
                decide(game, humans, state, human, s, v_m, policy, index, goal, eight(0.0))
                goal += 8
            while goal < end:
                decide(game, humans, state, human, s, v_m, policy, index, goal, four(0.0))
                goal += 4
