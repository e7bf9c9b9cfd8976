"""Phase 1 over a range of states at one time: equations (1)-(3); compiled.

``empo_core.equations`` has the same equations as plain tensor functions, and the tests
compare with an independent reference solver.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from empo_core.equations import TIE_TOLERANCE
from empo_exact.game import (
    LANES,
    LANES_U,
    ONE,
    THREE,
    TWO,
    UNAVAILABLE,
    Floats,
    Game,
    Humans,
    Scratch,
)
from empo_exact.interning import compiled

NEGLIGIBLE = -708.0
"""Exponentials of less than this are taken to be 0; they are below 1e-307."""
LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
ROUND = 6755399441055744.0
"""1.5 * 2^52: adding it rounds to an integer, which then stands in the lowest bits."""
EXPONENT_BIAS = 1023
MANTISSA_BITS = 52


@compiled
def find_rows(game: Game, state: int, value: Floats, spare: int, longer: bool, s: Scratch) -> bool:
    """Fill in which row of ``value`` each joint action leads to; False at terminal states.

    ``value`` is 1 where a goal is achieved and the discounted value elsewhere, or, where
    durations differ (``longer``), 0 and the undiscounted value. Expectations over several
    successors are written to rows from ``spare`` on.
    """
    joint, robots, goals = game.shape[0], game.shape[2], value.shape[1]
    alive = False
    for j in range(joint):
        pair = state * joint + j
        slot = game.profile[j] * robots + game.robot[j]
        first, last = np.int64(game.offsets[pair]), np.int64(game.offsets[pair + 1])
        if first == last:
            s.at[slot] = UNAVAILABLE
            continue
        alive = True
        if last == first + 1 and not longer:
            s.at[slot] = game.successor[first]
            continue
        s.at[slot] = spare
        for goal in range(goals):
            value[spare, goal] = 0.0
        for item in range(first, last):
            after, code = np.uint32(game.successor[item]), np.int64(game.code[item])
            p = game.prob[code]
            for goal in range(goals):
                if longer:
                    gain = p * game.achieved[after, goal]
                    gain += game.discounted_h[code] * value[after, goal]
                else:
                    gain = p * value[after, goal]
                value[spare, goal] += gain
        spare += 1
    return alive


@compiled
def find_worst(game: Game, humans: Humans, value: Floats, s: Scratch) -> None:
    """Fill in the robot's worst (or best) reply to each profile, equation (1)."""
    profiles, robots = game.shape[1], game.shape[2]
    sign = -1.0 if humans.flag[0] else 1.0
    for profile in range(profiles):
        s.seen[profile] = 0
        for robot in range(robots):
            if s.at[profile * robots + robot] != UNAVAILABLE:
                s.seen[profile] = 1
        if not s.seen[profile]:
            continue
        for block in range(value.shape[1] // LANES):
            g = np.uint32(block) * LANES_U
            a = b = c = d = math.inf
            for robot in range(robots):
                row = s.at[profile * robots + robot]
                if row == UNAVAILABLE:
                    continue
                a_, b_ = sign * value[row, g], sign * value[row, g + ONE]
                c_, d_ = sign * value[row, g + TWO], sign * value[row, g + THREE]
                a, b = a_ if a_ < a else a, b_ if b_ < b else b
                c, d = c_ if c_ < c else c, d_ if d_ < d else d
            s.worst[profile, g], s.worst[profile, g + ONE] = sign * a, sign * b
            s.worst[profile, g + TWO], s.worst[profile, g + THREE] = sign * c, sign * d


@compiled
def value_own_actions(game: Game, humans: Humans, state: int, human: int, s: Scratch) -> None:
    """Fill in Q_h^m of one human's own actions, equation (1), and how often each occurs."""
    here = state if humans.belief.shape[0] > 1 else 0
    believes = humans.belief.shape[3] > 0
    begin, end = max(0, game.first_goal[human]), game.first_goal[human + 1]
    for action in range(game.num_actions[human]):
        count = 0.0
        for k in range(game.having.shape[2]):
            profile = game.having[human, action, k]
            if profile != UNAVAILABLE and s.seen[profile]:
                count += 1.0
        s.count[action] = count
        if count == 0:
            continue
        for block in range(begin // LANES, end // LANES):
            g = np.uint32(block) * LANES_U
            a = b = c = d = 0.0
            for k in range(game.having.shape[2]):
                profile = game.having[human, action, k]
                if profile == UNAVAILABLE or not s.seen[profile]:
                    continue
                weight = 1.0
                if believes:
                    weight = humans.belief[here, human, action, game.others[human, profile]]
                a += weight * s.worst[profile, g]
                b += weight * s.worst[profile, g + ONE]
                c += weight * s.worst[profile, g + TWO]
                d += weight * s.worst[profile, g + THREE]
            total = 1.0 if believes else count
            s.q[action, g], s.q[action, g + ONE] = a / total, b / total
            s.q[action, g + TWO], s.q[action, g + THREE] = c / total, d / total


@compiled
def find_gaps(game: Game, humans: Humans, state: int, human: int, s: Scratch) -> None:
    """Fill ``s.best``, and ``s.x`` with beta_h times how far each action falls short of it."""
    here = state if humans.beta.shape[0] > 1 else 0
    begin, end = max(0, game.first_goal[human]), game.first_goal[human + 1]
    actions = game.num_actions[human]
    for goal in range(begin, end):
        s.best[goal] = -math.inf
    for action in range(actions):
        if s.count[action] > 0:
            for goal in range(begin, end):
                q = s.q[action, goal]
                s.best[goal] = q if q > s.best[goal] else s.best[goal]
    for action in range(actions):
        if s.count[action] == 0:
            for goal in range(begin, end):
                s.x[action * (end - begin) + goal - begin] = NEGLIGIBLE - 1
                s.q[action, goal] = 0.0
            continue
        for goal in range(begin, end):
            s.x[action * (end - begin) + goal - begin] = humans.beta[here, goal] * (
                s.q[action, goal] - s.best[goal]
            )
    if humans.flag[2]:
        for goal in range(begin, end):
            if math.isinf(humans.beta[here, goal]):
                slack = TIE_TOLERANCE * max(1.0, abs(s.best[goal]))
                for action in range(actions):
                    tied = s.count[action] > 0 and s.q[action, goal] >= s.best[goal] - slack
                    s.x[action * (end - begin) + goal - begin] = 0.0 if tied else NEGLIGIBLE - 1


@compiled
def exponentiate(x: Floats, power: Floats, bits: NDArray[np.int64], count: int) -> None:
    """Replace ``x`` (at most 0) by its exponential, to about one unit in the last place.

    Written out in simple loops, because those become vector instructions where calls of
    ``math.exp`` would cost more than all the rest: x = n ln 2 + r with |r| <= ln 2 / 2, a Taylor
    polynomial of degree 13 for exp(r), and 2^n put together from bits.

    Args:
        x: What to exponentiate [entry].
        power: Scratch [entry].
        bits: The same memory as ``power``.
        count: How many entries.
    """
    for k in range(count):
        bounded = x[k] if x[k] > NEGLIGIBLE else NEGLIGIBLE
        shifted = bounded * LOG2_E + ROUND
        power[k] = shifted  # its low bits are n
        n = shifted - ROUND
        r = (bounded - n * LN2_HIGH) - n * LN2_LOW
        y = 1.0 / 6227020800.0
        y = y * r + 1.0 / 479001600.0
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
        x[k] = y if x[k] > NEGLIGIBLE else 0.0
    for k in range(count):
        bits[k] = (bits[k] + EXPONENT_BIAS) << MANTISSA_BITS
    for k in range(count):
        x[k] *= power[k]


@compiled
def soften(
    game: Game, human: int, s: Scratch, v_m: Floats, state: int, policy: Floats, index: int
) -> None:
    """One human's policy, equation (2) without habit, and value, equation (3)."""
    begin, end = max(0, game.first_goal[human]), game.first_goal[human + 1]
    actions = game.num_actions[human]
    for goal in range(begin, end):
        s.best[goal] = 0.0
        v_m[state, goal] = 0.0
    for action in range(actions):
        for goal in range(begin, end):
            s.best[goal] += s.x[action * (end - begin) + goal - begin]
    for goal in range(begin, end):
        s.best[goal] = 1.0 / s.best[goal]
    for action in range(actions):
        for goal in range(begin, end):
            p = s.x[action * (end - begin) + goal - begin] * s.best[goal]
            policy[index, action, goal] = p
            v_m[state, goal] += p * s.q[action, goal]


@compiled
def follow_habit(
    game: Game,
    humans: Humans,
    human: int,
    s: Scratch,
    v_m: Floats,
    state: int,
    policy: Floats,
    index: int,
) -> None:
    """Mix in the habitual policy, equation (2), and correct the value."""
    at = state if humans.nu.shape[0] > 1 else 0
    here = state if humans.habit.shape[0] > 1 else 0
    for goal in range(game.first_goal[human], game.last_goal[human]):
        nu = humans.nu[at, goal]
        v_m[state, goal] = 0.0
        for action in range(game.num_actions[human]):
            p = (1 - nu) * policy[index, action, goal]
            if nu > 0:
                p += nu * humans.habit[here, action, goal]
            policy[index, action, goal] = p
            v_m[state, goal] += p * s.q[action, goal]


@compiled
def idle_when_done(
    game: Game, human: int, s: Scratch, v_m: Floats, state: int, policy: Floats, index: int
) -> None:
    """Where a goal is achieved already, it was paid for on arrival: the human idles."""
    for goal in range(game.first_goal[human], game.last_goal[human]):
        if game.achieved[state, goal]:
            v_m[state, goal] = 0.0
            idle = 0
            while s.count[idle] == 0:
                idle += 1
            for action in range(game.num_actions[human]):
                policy[index, action, goal] = 1.0 if action == idle else 0.0


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
    goals = value.shape[1]
    for position in range(first, last):
        state, index = order[position], position - first
        if not find_rows(game, state, value, spare, longer, s):
            for goal in range(goals):
                v_m[state, goal] = 0.0
                for action in range(policy.shape[1]):
                    policy[index, action, goal] = 0.0
            continue
        find_worst(game, humans, value, s)
        for human in range(game.num_actions.shape[0]):
            begin, end = max(0, game.first_goal[human]), game.first_goal[human + 1]
            value_own_actions(game, humans, state, human, s)
            find_gaps(game, humans, state, human, s)
            exponentiate(s.x, s.power, s.bits, game.num_actions[human] * (end - begin))
            soften(game, human, s, v_m, state, policy, index)
            for action in range(game.num_actions[human], policy.shape[1]):
                for goal in range(begin, end):
                    policy[index, action, goal] = 0.0
            if humans.flag[1]:
                follow_habit(game, humans, human, s, v_m, state, policy, index)
            idle_when_done(game, human, s, v_m, state, policy, index)
