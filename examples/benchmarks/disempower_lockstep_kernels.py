"""One step of backward induction for several robots at once, where humans move first; compiled.

Equations (1)-(9) as in ``empo_exact``, for humans who expect any action of the assistant alike::

    sweep                  the states of one arrangement after the other
      list_moves           where each human can go, with how many of its actions
      list_pairs           where both may be after their moves
      phase1               (1)-(3)
        list_even, mix     (1) the mean over the assistant's actions, once per pair of cells
      list_replies         where each action of the assistant leads after the moves
      for each robot:
        choose             (4), (5)
        phase2             (6)-(9)
          expect_replies   (6) the mean over the assistant's actions
          list_even, mix   (6) the same of a robot that takes any action alike

Within a step humans move, and then the assistant acts on where they are. So the mean over its
actions is taken once for each pair of cells in which humans may then be, and not once for each
pair of their actions. Actions that lead to the same place are one, with a weight. Humans stay in
an arrangement while they move, so that what an arrangement needs stays in the processor's cache.
"""

from __future__ import annotations

import math

import numpy as np
from disempower_arrangements import CHOICES, Moves, is_hindered
from disempower_lockstep_arrays import Choices, Floats, Later, Scratch, Theory
from jaxtyping import Int32

from empo_benchmarks.disempower.board import BYSTANDER, HUMANS, USER
from empo_benchmarks.disempower.kernel import NOWHERE, destination, in_each_others_way
from empo_exact.game import LANES
from empo_exact.robots import raised
from empo_exact.simd import (
    FOUR,
    SIXTEEN,
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
    sixteen,
    store,
)
from empo_worlds.compilation import inlined

NEGLIGIBLE = 1e-18
"""Chance below which an action of the assistant is left out of what humans attain."""


@inlined
def list_moves(moves: Moves, state: int, slot: int, s: Scratch) -> None:
    """Fill in where each human can go past walls, boxes and the assistant."""
    for human in range(HUMANS):
        count, cell = 0, moves.rows[state, human]
        for action in range(CHOICES):
            target = destination(moves.rules, moves.rows, state, cell, action)
            move = 0
            while move < count and s.target[slot, human, move] != target:
                move += 1
            if move == count:
                s.target[slot, human, move] = target
                s.ways[slot, human, move] = 0.0
                count += 1
            s.ways[slot, human, move] += 1.0
            s.move[slot, human, action] = move
        s.moves[slot, human] = count


@inlined
def list_pairs(moves: Moves, state: int, slot: int, s: Scratch) -> None:
    """Fill in where both humans end after each pair of moves."""
    count = 0
    for first in range(s.moves[slot, USER]):
        for second in range(s.moves[slot, BYSTANDER]):
            user, bystander = s.target[slot, USER, first], s.target[slot, BYSTANDER, second]
            end = count
            if in_each_others_way(moves.rules, moves.rows, state, user, bystander):
                end = 0
            if end == count:
                s.cell[slot, USER, end], s.cell[slot, BYSTANDER, end] = user, bystander
                count += 1
            s.end[slot, first * CHOICES + second] = end
    s.ends[slot] = count


@inlined
def mix(table: Floats, first: int, end: int, count: int, s: Scratch, out: Floats, at: int) -> None:
    """Write the sum of the listed rows by their weights to a row, in some columns, 20 at a time."""
    wide = SIXTEEN + FOUR
    whole = first + (end - first) // wide * wide
    for column in range(first, whole, wide):
        a, b = sixteen(0.0), four(0.0)
        for item in range(count):
            row, weight = entry(s.row, (item,)), entry(s.weight, (item,))
            a += weight * load(table, (row, column), a)
            b += weight * load(table, (row, column + SIXTEEN), b)
        store(out, (at, column), a)
        store(out, (at, column + SIXTEEN), b)
    for column in range(whole, end, FOUR):
        rest = four(0.0)
        for item in range(count):
            row, weight = entry(s.row, (item,)), entry(s.weight, (item,))
            rest += weight * load(table, (row, column), rest)
        store(out, (at, column), rest)


@inlined
def pair_at(moves: Moves, slot: int, end: int, s: Scratch) -> int:
    """Both humans' cells at an end, as one number."""
    return np.int64(s.cell[slot, USER, end]) * moves.cells + s.cell[slot, BYSTANDER, end]


@inlined
def list_even(
    moves: Moves, arrangement: int, slot: int, kind: int, robot: int, base: int, end: int,
    s: Scratch,
) -> int:  # fmt: skip
    """List the rows of states to which any action of the assistant leads; 0 if that is known.

    Args:
        moves: Who can go where.
        arrangement: The arrangement.
        slot: The state.
        kind: 0 in Phase 1, 1 in Phase 2.
        robot: The robot, in Phase 2.
        base: Row of the first state.
        end: Where both humans are.
        s: Working memory.
    """
    known = np.int64(arrangement) + np.int64(robot) * moves.leads.shape[0]
    user, bystander = s.cell[slot, USER, end], s.cell[slot, BYSTANDER, end]
    pair = pair_at(moves, slot, end, s)
    if s.known[kind, pair] == known:
        return 0
    s.known[kind, pair] = known
    actions, count = moves.leads.shape[1], 1
    s.row[0], s.weight[0] = base + moves.number[arrangement, pair], 0.0
    for action in range(actions):
        if is_hindered(moves.conflict[arrangement, action], user, bystander):
            s.weight[0] += 1.0 / actions
        else:
            s.row[count] = base + moves.number[moves.leads[arrangement, action], pair]
            s.weight[count] = 1.0 / actions
            count += 1
    return count


@inlined
def value_moves(
    moves: Moves, theory: Theory, slot: int, human: int, is_even: bool, table: Floats, s: Scratch
) -> None:
    """Fill in what moves of a human are worth, by what ends pay and the shares of other moves."""
    other = 1 - human
    first_goal, last_goal = theory.first_goal[human], theory.first_goal[human + 1]
    for move in range(s.moves[slot, human]):
        for item in range(s.moves[slot, other]):
            profile = move * CHOICES + item if human == USER else item * CHOICES + move
            end = s.end[slot, profile]
            s.row[item] = pair_at(moves, slot, end, s) if is_even else np.int64(end)
            s.weight[item] = s.share[item]
        mix(table, first_goal, last_goal, s.moves[slot, other], s, s.q, move)


@inlined
def decide(goal: int, zero: Lanes, theory: Theory, slot: int, human: int, s: Scratch) -> None:
    """One human's chances of moves (2), and discounted value (3), for a few goals."""
    best, whole, value, count = zero - math.inf, zero, zero, s.moves[slot, human]
    for move in range(count):
        best = larger(best, load(s.q, (move, goal), zero))
    for move in range(count):
        gap = theory.beta_h * (load(s.q, (move, goal), zero) - best)
        weight = entry(s.ways, (slot, human, move)) * exponential(gap)
        whole += weight
        store(s.chance, (slot, move, goal), weight)
    share = 1.0 / whole
    for move in range(count):
        chance = load(s.chance, (slot, move, goal), zero) * share
        store(s.chance, (slot, move, goal), chance)
        value += chance * load(s.q, (move, goal), zero)
    store(s.value, (0, goal), theory.gamma_h * value)


@inlined
def phase1(moves: Moves, theory: Theory, slot: int, place: int, hoped: Floats, s: Scratch) -> None:
    """Humans' chances of moves, and what the state pays by what they hope for."""
    for human in range(HUMANS):
        other = 1 - human
        for item in range(s.moves[slot, other]):
            s.share[item] = s.ways[slot, other, item] / CHOICES
        value_moves(moves, theory, slot, human, True, s.even, s)
        begin, end = theory.first_goal[human], theory.first_goal[human + 1]
        over_goals(decide, begin, end, theory, slot, human, s)
        # A goal that is achieved was paid for on arrival: its human stays.
        own = begin + s.target[slot, human, 0]
        for move in range(s.moves[slot, human]):
            s.chance[slot, move, own] = 1.0 if move == 0 else 0.0
        s.value[0, own] = 1.0
        for move in range(s.moves[slot, human]):
            mass = four(0.0)
            for goal in range(begin, end, FOUR):
                chance = load(s.chance, (slot, move, goal), mass)
                mass += load(theory.weight, (goal,), mass) * chance
            s.marginal[slot, human, move] = lane_sum(mass)
    if hoped.shape[0] > 0:
        for goal in range(0, hoped.shape[1], FOUR):
            store(hoped, (place, goal), load(s.value, (0, goal), four(0.0)))
    for end in range(s.ends[slot]):
        s.end_chance[slot, end] = 0.0
    for first in range(s.moves[slot, USER]):
        for second in range(s.moves[slot, BYSTANDER]):
            both = s.marginal[slot, USER, first] * s.marginal[slot, BYSTANDER, second]
            s.end_chance[slot, s.end[slot, first * CHOICES + second]] += both


@inlined
def list_replies(moves: Moves, arrangement: int, slot: int, s: Scratch) -> None:
    """Fill in where different actions of the assistant lead, nothing first."""
    count, ends = 1, s.ends[slot]
    s.reply_ways[slot, 0] = 0.0
    for end in range(ends):
        s.reply[slot, 0, end] = moves.number[arrangement, pair_at(moves, slot, end, s)]
    for action in range(moves.leads.shape[1]):
        conflict, does_something = moves.conflict[arrangement, action], False
        if conflict != NOWHERE:
            target = moves.leads[arrangement, action]
            for end in range(ends):
                user, bystander = s.cell[slot, USER, end], s.cell[slot, BYSTANDER, end]
                s.reply[slot, count, end] = s.reply[slot, 0, end]
                if not is_hindered(conflict, user, bystander):
                    pair = pair_at(moves, slot, end, s)
                    s.reply[slot, count, end] = moves.number[target, pair]
                    does_something = True
        s.same[slot, action] = count if does_something else 0
        if does_something:
            s.reply_ways[slot, count] = 1.0
            count += 1
        else:
            s.reply_ways[slot, 0] += 1.0
    s.replies[slot] = count
    for action in range(count, count + LANES - 1):
        s.reply_ways[slot, action] = 0.0


@inlined
def choose(theory: Theory, later: Later, robot: int, slot: int, replies: int, s: Scratch) -> None:
    """Fill in Q_r, (4), and chances of different actions, (5)."""
    best, zero = -math.inf, four(0.0)
    padded = (replies + LANES - 1) // LANES * LANES
    for action in range(replies):
        total = 0.0
        for end in range(s.ends[slot]):
            total += s.end_chance[slot, end] * later.v_r[s.reply[slot, action, end], robot]
        s.q_r[action] = theory.gamma_r * total
    if theory.is_idle[robot]:
        s.pi_r[0] = 1.0
        return
    for action in range(replies, padded):
        s.q_r[action] = s.q_r[0]
    for action in range(0, padded, FOUR):
        gain = -theory.beta_r[robot] * logarithm(0.0 - load(s.q_r, (action,), zero))
        store(s.pi_r, (action,), gain)
    for action in range(replies):
        best = max(best, s.pi_r[action])
    mass = zero
    for action in range(0, padded, FOUR):
        weight = exponential(load(s.pi_r, (action,), zero) - best)
        weight *= load(s.reply_ways, (slot, action), zero)
        mass += weight
        store(s.pi_r, (action,), weight)
    whole = lane_sum(mass)
    for action in range(replies):
        s.pi_r[action] /= whole


@inlined
def expect_replies(table: Floats, base: int, slot: int, replies: int, s: Scratch) -> None:
    """Fill in what ends pay before a robot acts that has chosen, by what humans attain, (6)."""
    for end in range(s.ends[slot]):
        nothing, count = s.reply[slot, 0, end], 1
        s.row[0], s.weight[0] = base + nothing, s.pi_r[0]
        for action in range(1, replies):
            chance, row = s.pi_r[action], s.reply[slot, action, end]
            if row == nothing:
                s.weight[0] += chance
            elif chance >= NEGLIGIBLE:
                s.row[count], s.weight[count] = base + row, chance
                count += 1
        if s.weight[0] < NEGLIGIBLE and count > 1:
            count -= 1
            s.row[0], s.weight[0] = s.row[count], s.weight[count]
        mix(table, 0, s.replied.shape[1], count, s, s.replied, end)


@inlined
def attained_value(goal: int, zero: Lanes, moves: int, slot: int, s: Scratch) -> None:
    """V_h^e of a few goals, (6), where ``s.q`` has the values of moves."""
    value = zero
    for move in range(moves):
        value += load(s.chance, (slot, move, goal), zero) * load(s.q, (move, goal), zero)
    store(s.value, (0, goal), value)


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
    moves: Moves, theory: Theory, later: Later, arrangement: int, robot: int, slot: int,
    replies: int, position: int, place: int, now: Later, x_h: Floats, s: Scratch,
) -> None:  # fmt: skip
    """What the state pays by what humans attain beside a robot that has chosen, (6)-(9)."""
    is_even = theory.beta_r[robot] == 0 and not theory.is_idle[robot]
    columns, states = s.even.shape[1], np.int64(later.v_r.shape[0])
    if is_even:
        for end in range(s.ends[slot]):
            count = list_even(moves, arrangement, slot, 1, robot, robot * states, end, s)
            if count > 0:
                mix(
                    later.attained,
                    0,
                    columns,
                    count,
                    s,
                    s.even_beside,
                    pair_at(moves, slot, end, s),
                )
    else:
        expect_replies(later.attained, robot * states, slot, replies, s)
    lack = 0.0
    for human in range(HUMANS):
        for item in range(s.moves[slot, 1 - human]):
            s.share[item] = s.marginal[slot, 1 - human, item]
        table = s.even_beside if is_even else s.replied
        value_moves(moves, theory, slot, human, is_even, table, s)
        begin, end = theory.first_goal[human], theory.first_goal[human + 1]
        over_goals(attained_value, begin, end, s.moves[slot, human], slot, s)
        x = power(theory, human, s)
        if theory.counts[robot, human]:
            lack += raised(x, -theory.xi[robot])
        if x_h.shape[0] > 0:
            x_h[position, robot, human] = x
    v_r, row = -(lack**theory.eta), robot * np.int64(now.v_r.shape[0]) + place
    for action in range(replies):
        v_r += s.pi_r[action] * s.q_r[action]
    now.v_r[place, robot] = v_r
    for goal in range(0, columns, FOUR):
        paid = theory.gamma_h * load(s.value, (0, goal), four(0.0))
        store(now.attained, (row, goal), paid)
    for human in range(HUMANS):
        own = theory.first_goal[human] + s.target[slot, human, 0]
        now.attained[row, own] = 1.0


@inlined
def write_humans(theory: Theory, slot: int, position: int, pi_h: Floats, s: Scratch) -> None:
    """Write the humans' policies: actions that lead to the same share the chance of the move."""
    for human in range(HUMANS):
        begin, end = theory.first_goal[human], theory.first_goal[human + 1]
        for action in range(CHOICES):
            move = s.move[slot, human, action]
            for goal in range(begin, end):
                chance = s.chance[slot, move, goal] / s.ways[slot, human, move]
                pi_h[position, action, goal] = chance
            own = begin + s.target[slot, human, 0]
            pi_h[position, action, own] = 1.0 if action == 0 else 0.0


@inlined
def write_robot(
    theory: Theory, robot: int, slot: int, position: int, pi_r: Floats, s: Scratch
) -> None:
    """Write a robot's policy: actions that do the same are as likely."""
    for action in range(pi_r.shape[2]):
        same = s.same[slot, action]
        if theory.is_idle[robot]:
            pi_r[position, robot, action] = 1.0 if action == 0 else 0.0
        else:
            pi_r[position, robot, action] = s.pi_r[same] / s.reply_ways[slot, same]


@kernel
def sweep(
    moves: Moves,
    theory: Theory,
    later: Later,
    order: Int32[np.ndarray, " position"],
    places: Int32[np.ndarray, " position"],
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
        places: The row of ``now`` for each of them.
        now: Receives what they pay; tables without rows are left out.
        choices: Receives policies and powers, by position.
        s: Working memory.
    """
    for pair in range(s.known.shape[1]):
        s.known[0, pair] = -1
        s.known[1, pair] = -1
    first, count, robots = 0, order.shape[0], theory.beta_r.shape[0]
    while first < count:
        last, arrangement = first, moves.arrangement[order[first]]
        while last < count and last < first + s.ends.shape[0]:
            if moves.arrangement[order[last]] != arrangement:
                break
            last += 1
        for slot in range(last - first):
            state = np.int64(order[first + slot])
            list_moves(moves, state, slot, s)
            list_pairs(moves, state, slot, s)
            for end in range(s.ends[slot]):
                rows = list_even(moves, arrangement, slot, 0, 0, 0, end, s)
                if rows > 0:
                    pair = pair_at(moves, slot, end, s)
                    mix(later.hoped, 0, s.even.shape[1], rows, s, s.even, pair)
            phase1(moves, theory, slot, places[first + slot], now.hoped, s)
            if choices.pi_h.shape[0] > 0:
                write_humans(theory, slot, first + slot, choices.pi_h, s)
            if robots > 0:
                list_replies(moves, arrangement, slot, s)
        for robot in range(robots):
            for slot in range(last - first):
                replies = np.int32(1) if theory.is_idle[robot] else s.replies[slot]
                choose(theory, later, robot, slot, replies, s)
                if choices.pi_r.shape[0] > 0:
                    write_robot(theory, robot, slot, first + slot, choices.pi_r, s)
                if now.attained.shape[0] > 0:
                    phase2(
                        moves, theory, later, arrangement, robot, slot, replies,
                        first + slot, places[first + slot], now, choices.x_h, s,
                    )  # fmt: skip
        first = last
