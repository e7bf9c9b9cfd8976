"""One step of backward induction for several robots at once, where humans move first; compiled.

Equations (1)-(9) as in ``empo_exact``, for humans who expect any action of the assistant alike::

    sweep                  some states
      list_moves           where each human can go, with how many of its actions
      list_pairs           where both are after each pair of moves
      phase1               (1)-(3)
        expect_assistant   (1) the mean over the assistant's actions, once per arrangement and pair
      list_replies         where each action of the assistant leads after each pair of moves
      phase2               (4)-(9), for each robot
        choose             (4), (5)
        attain             (6)

Within a step humans move, and then the assistant acts on where they are. So the mean over its
actions is taken once for each pair of cells and not once for each pair of moves that lead there.
Actions that lead to the same place are one, with a weight.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from disempower_arrangements import CHOICES, Moves, is_hindered
from jaxtyping import Bool, Float64, Int32, Int64

from empo_benchmarks.disempower.board import BYSTANDER, HUMANS, USER
from empo_benchmarks.disempower.kernel import NOWHERE, destination, in_each_others_way
from empo_exact.game import LANES
from empo_exact.robots import raised
from empo_exact.simd import (
    FOUR,
    Lanes,
    entry,
    exponential,
    four,
    kernel,
    lane_sum,
    larger,
    load,
    logarithm,
    over_goals,
    store,
)
from empo_worlds.compilation import inlined

PAIRS = CHOICES * CHOICES
NEGLIGIBLE = 1e-18
"""Chance below which an action of the assistant is left out of what humans attain."""

Floats = Float64[np.ndarray, "..."]


class Theory(NamedTuple):
    """Symbols of the theory; arrays have an entry per robot.

    Attributes:
        beta_h: Rationality of the humans.
        gamma_h: Their discount.
        gamma_r: The robots' discount.
        zeta: Preference for certainty.
        eta: Aversion to unequal power over time.
        beta_r: Exponent of the policy [robot].
        xi: Aversion to unequal power [robot].
        counts: Whether a human's power counts [robot human].
        is_idle: It never does anything [robot].
        weight: Chance of each goal among those of its human, 0 in padding [goal].
        first_goal: Where each human's goals begin, and the end [human + 1].
    """

    beta_h: float
    gamma_h: float
    gamma_r: float
    zeta: float
    eta: float
    beta_r: Floats
    xi: Floats
    counts: Bool[np.ndarray, "robot human"]
    is_idle: Bool[np.ndarray, " robot"]
    weight: Floats
    first_goal: Int64[np.ndarray, " human1"]


class Later(NamedTuple):
    """What states pay a step later.

    A goal pays 1 where it is achieved, elsewhere gamma_h times what is attained.

    Attributes:
        hoped: By what humans hope for, V_h^m [state goal].
        attained: By what they attain, V_h^e [robot state goal].
        v_r: V_r [state robot].
    """

    hoped: Floats
    attained: Floats
    v_r: Floats


class Choices(NamedTuple):
    """Policies and powers in the states of a sweep; without rows where nobody wants them.

    Attributes:
        pi_h: Humans' policies [position action goal].
        pi_r: Robots' policies [position robot action].
        x_h: Powers [position robot human].
    """

    pi_h: Floats
    pi_r: Floats
    x_h: Floats


class Scratch(NamedTuple):
    """Working memory.

    Attributes:
        target: Cells to which each human can go, the one where it stays first [human move].
        ways: With how many of its actions [human move].
        evenly: That as a share of all actions [human move].
        move: The move of each action [human action].
        moves: How many moves there are [human].
        pair: Cells of both humans after a pair of moves, as one number [pair of moves].
        cell: The same as two numbers [human, pair of moves].
        known: The arrangement for which a row of ``expected`` holds [pair].
        expected: Payoff of each pair of cells before the assistant takes any action alike, by what
            humans hope for [pair goal].
        known_beside: The arrangement and the robot for which a row of the next holds [pair].
        expected_beside: The same by what they attain [pair goal].
        q: Values of moves [move goal].
        chance: Chances of moves [move goal].
        marginal: Chances of moves, over all goals [human move].
        profile: Chances of pairs of moves, over all goals [pair of moves].
        reply: The state to which each action of the assistant leads [action, pair of moves].
        same: The action that each action is the same as [action].
        reply_ways: How many actions are the same as this one [action].
        q_r: [action].
        pi_r: [action].
        row: Rows of a sum [item].
        weight: Weights of a sum [item].
        value: V_h of one state [goal].
    """

    target: Int64[np.ndarray, "human move"]
    ways: Floats
    evenly: Floats
    move: Int64[np.ndarray, "human action"]
    moves: Int64[np.ndarray, " human"]
    pair: Int64[np.ndarray, " profile"]
    cell: Int64[np.ndarray, "human profile"]
    known: Int64[np.ndarray, " pair"]
    expected: Floats
    known_beside: Int64[np.ndarray, " pair"]
    expected_beside: Floats
    q: Floats
    chance: Floats
    marginal: Floats
    profile: Floats
    reply: Int64[np.ndarray, "action profile"]
    same: Int64[np.ndarray, " action"]
    reply_ways: Floats
    q_r: Floats
    pi_r: Floats
    row: Int64[np.ndarray, " item"]
    weight: Floats
    value: Floats


@inlined
def list_moves(moves: Moves, state: int, s: Scratch) -> None:
    """Fill in where each human can go past walls, boxes and the assistant."""
    for human in range(HUMANS):
        count = 0
        for action in range(CHOICES):
            cell = moves.rows[state, human]
            target = destination(moves.rules, moves.rows, state, cell, action)
            move = 0
            while move < count and s.target[human, move] != target:
                move += 1
            if move == count:
                s.target[human, move] = target
                s.ways[human, move] = 0.0
                count += 1
            s.ways[human, move] += 1.0
            s.move[human, action] = move
        for move in range(count):
            s.evenly[human, move] = s.ways[human, move] / CHOICES
        s.moves[human] = count


@inlined
def list_pairs(moves: Moves, state: int, s: Scratch) -> None:
    """Fill in where both humans are after each pair of moves."""
    for first in range(s.moves[USER]):
        for second in range(s.moves[BYSTANDER]):
            user, bystander = s.target[USER, first], s.target[BYSTANDER, second]
            if in_each_others_way(moves.rules, moves.rows, state, user, bystander):
                user, bystander = s.target[USER, 0], s.target[BYSTANDER, 0]
            profile = first * CHOICES + second
            s.cell[USER, profile], s.cell[BYSTANDER, profile] = user, bystander
            s.pair[profile] = user * moves.cells + bystander


@inlined
def mix(goal: int, zero: Lanes, table: Floats, count: int, s: Scratch, out: Floats, at: int) -> None:
    """Write the sum of the listed rows by their weights to a row, for a few goals."""
    total = zero
    for item in range(count):
        row, weight = entry(s.row, (item,)), entry(s.weight, (item,))
        total += weight * load(table, (row, goal), zero)
    store(out, (at, goal), total)


@inlined
def mix_of(
    goal: int, zero: Lanes, table: Floats, robot: int, count: int, s: Scratch, out: Floats, at: int
) -> None:
    """The same with a table of several robots."""
    total = zero
    for item in range(count):
        row, weight = entry(s.row, (item,)), entry(s.weight, (item,))
        total += weight * load(table, (robot, row, goal), zero)
    store(out, (at, goal), total)


@inlined
def list_results(moves: Moves, arrangement: int, profile: int, s: Scratch) -> int:
    """List the states to which the assistant leads if it takes any action alike; how many."""
    actions, count = moves.leads.shape[1], 1
    pair = s.pair[profile]
    s.row[0], s.weight[0] = moves.number[arrangement, pair], 0.0
    for action in range(actions):
        conflict = moves.conflict[arrangement, action]
        if is_hindered(conflict, s.cell[USER, profile], s.cell[BYSTANDER, profile]):
            s.weight[0] += 1.0 / actions
        else:
            s.row[count] = moves.number[moves.leads[arrangement, action], pair]
            s.weight[count] = 1.0 / actions
            count += 1
    return count


@inlined
def expect_assistant(moves: Moves, later: Later, state: int, s: Scratch) -> None:
    """Fill in what pairs of cells pay before the assistant takes any action alike, (1)."""
    arrangement = moves.arrangement[state]
    for first in range(s.moves[USER]):
        for second in range(s.moves[BYSTANDER]):
            profile = first * CHOICES + second
            pair = s.pair[profile]
            if s.known[pair] != arrangement:
                s.known[pair] = arrangement
                count = list_results(moves, arrangement, profile, s)
                over_goals(
                    mix, 0, s.expected.shape[1], later.hoped, count, s, s.expected, pair
                )


@inlined
def expect_even_robot(moves: Moves, later: Later, state: int, robot: int, s: Scratch) -> None:
    """The same by what humans attain beside a robot that takes any action alike, (6)."""
    arrangement = moves.arrangement[state]
    known = np.int64(arrangement) * later.attained.shape[0] + robot
    for first in range(s.moves[USER]):
        for second in range(s.moves[BYSTANDER]):
            profile = first * CHOICES + second
            pair = s.pair[profile]
            if s.known_beside[pair] != known:
                s.known_beside[pair] = known
                count, out = list_results(moves, arrangement, profile, s), s.expected_beside
                over_goals(mix_of, 0, out.shape[1], later.attained, robot, count, s, out, pair)


@inlined
def decide(goal: int, zero: Lanes, theory: Theory, human: int, s: Scratch) -> None:
    """One human's chances of moves (2), and discounted value (3), for a few goals."""
    best, whole, value = zero - math.inf, zero, zero
    for move in range(s.moves[human]):
        best = larger(best, load(s.q, (move, goal), zero))
    for move in range(s.moves[human]):
        gap = theory.beta_h * (load(s.q, (move, goal), zero) - best)
        weight = entry(s.ways, (human, move)) * exponential(gap)
        whole += weight
        store(s.chance, (move, goal), weight)
    share = 1.0 / whole
    for move in range(s.moves[human]):
        chance = load(s.chance, (move, goal), zero) * share
        store(s.chance, (move, goal), chance)
        value += chance * load(s.q, (move, goal), zero)
    store(s.value, (0, goal), theory.gamma_h * value)


@inlined
def phase1(
    moves: Moves, theory: Theory, later: Later, state: int, position: int, hoped: Floats, s: Scratch
) -> None:
    """Humans' chances of moves, and what the state pays by what they hope for."""
    expect_assistant(moves, later, state, s)
    for human in range(HUMANS):
        other = 1 - human
        begin, end = theory.first_goal[human], theory.first_goal[human + 1]
        for move in range(s.moves[human]):
            for item in range(s.moves[other]):
                profile = move * CHOICES + item if human == USER else item * CHOICES + move
                s.row[item], s.weight[item] = s.pair[profile], s.evenly[other, item]
            over_goals(mix, begin, end, s.expected, s.moves[other], s, s.q, move)
        over_goals(decide, begin, end, theory, human, s)
        # A goal that is achieved was paid for on arrival: its human stays.
        own = begin + s.target[human, 0]
        for move in range(s.moves[human]):
            s.chance[move, own] = 1.0 if move == 0 else 0.0
        s.value[0, own] = 1.0
        for move in range(s.moves[human]):
            mass = four(0.0)
            for goal in range(begin, end, FOUR):
                mass += load(theory.weight, (goal,), mass) * load(s.chance, (move, goal), mass)
            s.marginal[human, move] = lane_sum(mass)
    for goal in range(0, hoped.shape[1], FOUR):
        store(hoped, (position, goal), load(s.value, (0, goal), four(0.0)))


@inlined
def list_replies(moves: Moves, state: int, s: Scratch) -> int:
    """Fill in where different actions of the assistant lead, nothing first; returns how many."""
    arrangement, count = moves.arrangement[state], 1
    s.reply_ways[0] = 0.0
    for first in range(s.moves[USER]):
        for second in range(s.moves[BYSTANDER]):
            profile = first * CHOICES + second
            s.reply[0, profile] = moves.number[arrangement, s.pair[profile]]
    for action in range(moves.leads.shape[1]):
        conflict, does_something = moves.conflict[arrangement, action], False
        if conflict == NOWHERE:
            s.same[action] = 0
            s.reply_ways[0] += 1.0
            continue
        for first in range(s.moves[USER]):
            for second in range(s.moves[BYSTANDER]):
                profile = first * CHOICES + second
                s.reply[count, profile] = s.reply[0, profile]
                if not is_hindered(conflict, s.cell[USER, profile], s.cell[BYSTANDER, profile]):
                    target = moves.leads[arrangement, action]
                    s.reply[count, profile] = moves.number[target, s.pair[profile]]
                    does_something = True
        s.same[action] = count if does_something else 0
        if does_something:
            s.reply_ways[count] = 1.0
            count += 1
        else:
            s.reply_ways[0] += 1.0
    return count


@inlined
def choose(theory: Theory, later: Later, robot: int, replies: int, s: Scratch) -> None:
    """Fill in Q_r, (4), and chances of different actions, (5)."""
    best, zero = -math.inf, four(0.0)
    end = (replies + LANES - 1) // LANES * LANES
    for action in range(replies):
        total = 0.0
        for first in range(s.moves[USER]):
            for second in range(s.moves[BYSTANDER]):
                profile = first * CHOICES + second
                total += s.profile[profile] * later.v_r[s.reply[action, profile], robot]
        s.q_r[action] = theory.gamma_r * total
    for action in range(replies, end):
        s.q_r[action], s.reply_ways[action] = -1.0, 0.0
    for action in range(0, end, FOUR):
        gain = -theory.beta_r[robot] * logarithm(0.0 - load(s.q_r, (action,), zero))
        store(s.pi_r, (action,), gain)
    for action in range(replies):
        best = max(best, s.pi_r[action])
    for action in range(replies, end):
        s.pi_r[action] = best
    mass = zero
    for action in range(0, end, FOUR):
        weight = exponential(load(s.pi_r, (action,), zero) - best)
        weight *= load(s.reply_ways, (action,), zero)
        mass += weight
        store(s.pi_r, (action,), weight)
    share = 1.0 / lane_sum(mass)
    for action in range(replies):
        s.pi_r[action] *= share


@inlined
def attained_value(goal: int, zero: Lanes, moves: int, s: Scratch) -> None:
    """V_h^e of a few goals, (6), where ``s.q`` has the values of moves."""
    value = zero
    for move in range(moves):
        value += load(s.chance, (move, goal), zero) * load(s.q, (move, goal), zero)
    store(s.value, (0, goal), value)


@inlined
def attain(
    moves: Moves, theory: Theory, later: Later, state: int, robot: int, replies: int, s: Scratch
) -> None:
    """Fill in V_h^e of one state."""
    is_even = theory.beta_r[robot] == 0 and not theory.is_idle[robot]
    if is_even:
        expect_even_robot(moves, later, state, robot, s)
    for human in range(HUMANS):
        other = 1 - human
        begin, end = theory.first_goal[human], theory.first_goal[human + 1]
        for move in range(s.moves[human]):
            count = 0
            for action in range(1 if is_even else replies):
                chance = 1.0 if is_even else s.pi_r[action]
                if chance < NEGLIGIBLE:
                    continue
                for item in range(s.moves[other]):
                    profile = move * CHOICES + item if human == USER else item * CHOICES + move
                    s.row[count] = s.pair[profile] if is_even else s.reply[action, profile]
                    s.weight[count] = chance * s.marginal[other, item]
                    count += 1
            if is_even:
                over_goals(mix, begin, end, s.expected_beside, count, s, s.q, move)
            else:
                over_goals(mix_of, begin, end, later.attained, robot, count, s, s.q, move)
        over_goals(attained_value, begin, end, s.moves[human], s)


@inlined
def power(theory: Theory, human: int, s: Scratch) -> float:
    """X_h, (7)."""
    begin, end, x = theory.first_goal[human], theory.first_goal[human + 1], 0.0
    if theory.zeta == 2.0:
        total = four(0.0)
        for goal in range(begin, end, FOUR):
            value = load(s.value, (0, goal), total)
            total += value * value
        x = lane_sum(total)
    else:
        for goal in range(begin, end):
            x += s.value[0, goal] ** theory.zeta
    return x


@inlined
def phase2(
    moves: Moves, theory: Theory, later: Later, state: int, robot: int, replies: int,
    position: int, now: Later, x_h: Floats, s: Scratch,
) -> None:  # fmt: skip
    """What the state pays by what humans attain beside a robot that has chosen."""
    attain(moves, theory, later, state, robot, replies, s)
    lack = 0.0
    for human in range(HUMANS):
        x = power(theory, human, s)
        if theory.counts[robot, human]:
            lack += raised(x, -theory.xi[robot])
        if x_h.shape[0] > 0:
            x_h[position, robot, human] = x
    v_r = -(lack**theory.eta)
    for action in range(replies):
        v_r += s.pi_r[action] * s.q_r[action]
    now.v_r[position, robot] = v_r
    for goal in range(0, now.hoped.shape[1], FOUR):
        paid = theory.gamma_h * load(s.value, (0, goal), four(0.0))
        store(now.attained, (robot, position, goal), paid)
    for human in range(HUMANS):
        now.attained[robot, position, theory.first_goal[human] + s.target[human, 0]] = 1.0


@inlined
def write_humans(theory: Theory, position: int, pi_h: Floats, s: Scratch) -> None:
    """Write the humans' policies: actions that lead to the same share the chance of the move."""
    for human in range(HUMANS):
        begin, end = theory.first_goal[human], theory.first_goal[human + 1]
        for action in range(CHOICES):
            move = s.move[human, action]
            for goal in range(begin, end):
                pi_h[position, action, goal] = s.chance[move, goal] / s.ways[human, move]
            own = begin + s.target[human, 0]
            pi_h[position, action, own] = 1.0 if action == 0 else 0.0


@inlined
def write_robot(
    moves: Moves, robot: int, is_idle: bool, position: int, pi_r: Floats, s: Scratch
) -> None:
    """Write a robot's policy: actions that do the same are as likely."""
    for action in range(moves.leads.shape[1]):
        same = s.same[action]
        if is_idle:
            pi_r[position, robot, action] = 1.0 if action == 0 else 0.0
        else:
            pi_r[position, robot, action] = s.pi_r[same] / s.reply_ways[same]


@kernel
def sweep(
    moves: Moves,
    theory: Theory,
    later: Later,
    order: Int32[np.ndarray, " position"],
    now: Later,
    choices: Choices,
    s: Scratch,
) -> None:
    """One step back in some states.

    Args:
        moves: Who can go where.
        theory: The symbols.
        later: What all states pay a step later.
        order: The states, those of an arrangement together.
        now: Receives what they pay, by position.
        choices: Receives policies and powers, by position.
        s: Working memory.
    """
    for pair in range(s.known.shape[0]):
        s.known[pair] = -1
        s.known_beside[pair] = -1
    for position in range(order.shape[0]):
        state = np.int64(order[position])
        list_moves(moves, state, s)
        list_pairs(moves, state, s)
        phase1(moves, theory, later, state, position, now.hoped, s)
        if choices.pi_h.shape[0] > 0:
            write_humans(theory, position, choices.pi_h, s)
        if theory.beta_r.shape[0] == 0:
            continue
        replies = list_replies(moves, state, s)
        for first in range(s.moves[USER]):
            for second in range(s.moves[BYSTANDER]):
                both = s.marginal[USER, first] * s.marginal[BYSTANDER, second]
                s.profile[first * CHOICES + second] = both
        for robot in range(theory.beta_r.shape[0]):
            options = 1 if theory.is_idle[robot] else replies
            choose(theory, later, robot, options, s)
            if choices.pi_r.shape[0] > 0:
                write_robot(moves, robot, theory.is_idle[robot], position, choices.pi_r, s)
            if now.attained.shape[1] > 0:
                phase2(
                    moves, theory, later, state, robot, options, position, now, choices.x_h, s
                )
