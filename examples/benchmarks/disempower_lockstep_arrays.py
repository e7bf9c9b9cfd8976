"""What the kernels of disempower_lockstep read and write, and room for it."""

from __future__ import annotations

import mmap
from typing import NamedTuple

import numpy as np
from disempower_arrangements import CHOICES
from jaxtyping import Bool, Float64, Int32, Int64

from empo_benchmarks.disempower.board import HUMANS
from empo_exact.game import LANES, aligned

SLOTS = 160
"""States of an arrangement that are worked out together: all of them on the published boards."""

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
        attained: By what they attain, V_h^e, robot by robot [robot and state, goal].
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
    """Working memory; the states of an arrangement have a slot each.

    Attributes:
        target: Cells to which each human can go, the one where it stays first [slot human move].
        ways: With how many of its actions [slot human move].
        move: The move of each action [slot human action].
        moves: How many moves there are [slot human].
        end: Which end two moves have, the one where both stay first [slot, pair of moves].
        cell: Where each human is at an end [slot human end].
        ends: How many ends there are [slot].
        chance: Chances of moves [slot move goal].
        marginal: The same over all goals [slot human move].
        end_chance: Chance of each end, over all goals [slot end].
        reply: The state to which each different action of the assistant leads [slot action end].
        replies: How many different actions there are [slot].
        same: The different action that each action is [slot action].
        reply_ways: How many actions are the same as this one [slot action].
        known: The arrangement and the robot (0: Phase 1) for which a row of the next holds [pair].
        even: What both humans' cells pay before the assistant takes any action alike [pair goal].
        even_beside: The same beside a robot, by what they attain [pair goal].
        replied: What ends pay before a robot acts [end goal].
        q: Values of moves [move goal].
        share: Chances of the other human's moves [move].
        q_r: [action].
        pi_r: [action].
        row: Rows of a sum [item].
        weight: Weights of a sum [item].
        value: V_h of one state [1 goal].
    """

    target: Int32[np.ndarray, "slot human move"]
    ways: Floats
    move: Int32[np.ndarray, "slot human action"]
    moves: Int32[np.ndarray, "slot human"]
    end: Int32[np.ndarray, "slot profile"]
    cell: Int32[np.ndarray, "slot human end"]
    ends: Int32[np.ndarray, " slot"]
    chance: Floats
    marginal: Floats
    end_chance: Floats
    reply: Int32[np.ndarray, "slot action end"]
    replies: Int32[np.ndarray, " slot"]
    same: Int32[np.ndarray, "slot action"]
    reply_ways: Floats
    known: Int64[np.ndarray, "kind pair"]
    even: Floats
    even_beside: Floats
    replied: Floats
    q: Floats
    share: Floats
    q_r: Floats
    pi_r: Floats
    row: Int64[np.ndarray, " item"]
    weight: Floats
    value: Floats


def values(robots: int, states: int, padded: int) -> Later:
    """Room for values of robots in states."""
    goals = HUMANS * padded
    return Later(
        hoped=aligned((states, goals)),
        attained=aligned((robots * states, goals)),
        v_r=np.empty((states, robots)),
    )


def sparse_values(robots: int, states: int, padded: int) -> Later:
    """Zeros that take memory where they are written to only, in pages that are small."""
    goals = HUMANS * padded
    shapes = (states, goals), (robots * states, goals), (states, robots)

    def zeros(shape: tuple[int, int]) -> np.ndarray:
        size = max(1, shape[0] * shape[1])
        memory = mmap.mmap(-1, 8 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return np.frombuffer(memory)[: shape[0] * shape[1]].reshape(shape)

    return Later(*map(zeros, shapes))


def scratch(cells: int, padded: int, actions: int) -> Scratch:
    """Working memory of the kernels."""
    profiles, goals, options = CHOICES * CHOICES, HUMANS * padded, actions + LANES

    def whole(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.int32)

    return Scratch(
        target=whole(SLOTS, HUMANS, CHOICES),
        ways=np.zeros((SLOTS, HUMANS, CHOICES)),
        move=whole(SLOTS, HUMANS, CHOICES),
        moves=whole(SLOTS, HUMANS),
        end=whole(SLOTS, profiles),
        cell=whole(SLOTS, HUMANS, profiles),
        ends=whole(SLOTS),
        chance=aligned((SLOTS, CHOICES, goals)),
        marginal=np.zeros((SLOTS, HUMANS, CHOICES)),
        end_chance=np.zeros((SLOTS, profiles)),
        reply=whole(SLOTS, actions + 1, profiles),
        replies=whole(SLOTS),
        same=whole(SLOTS, actions),
        reply_ways=np.zeros((SLOTS, options)),
        known=np.zeros((2, cells * cells), np.int64),
        even=aligned((cells * cells, goals)),
        even_beside=aligned((cells * cells, goals)),
        replied=aligned((profiles, goals)),
        q=aligned((CHOICES, goals)),
        share=np.zeros(CHOICES),
        q_r=np.zeros(options),
        pi_r=np.zeros(options),
        row=np.zeros(options + CHOICES, np.int64),
        weight=np.zeros(options + CHOICES),
        value=aligned((1, goals)),
    )
