"""The game as the kernels read it: arrays of the graph and of joint actions, and working memory.

Goals are ordered by human here, and each human's goals are padded to a multiple of ``LANES``
with goals that nothing achieves and that weigh 0. The goals of the ``h``-th human are the
range ``first_goal[h] : last_goal[h]``; padding goes on up to ``first_goal[h + 1]``. Sums over
goals can so be done for ``LANES`` neighbours at a time, see ``simd``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped
from numpy.typing import NDArray

from empo_core.types import WorldSpec
from empo_exact.graph import StateGraph
from empo_theory.equations import end_weight, reward_weight
from empo_theory.parameters import CompleteTheory
from empo_worlds.samples import joint_actions, part_index

LANES: Final = 4
"""Goals per human are a multiple of it."""
STATES_AT_ONCE = 1 << 14
CACHE_LINE: Final = 64
WIDEST: Final = 16
"""Largest number of neighbours that are treated alike."""

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
Indices = NDArray[np.uint32]


class Game(NamedTuple):
    """The graph and how joint actions decompose; axes as in ``graph.StateGraph``.

    Attributes:
        offsets: Start of each pair's transitions [pair + 1].
        successor: [transition].
        code: Index into the next five; transitions with equal numbers share one [transition].
        prob: Probability behind each code [code].
        discounted_h: Probability times the humans' discount [code].
        discounted_r: Probability times the robot's discount [code].
        arrived: Probability times what entering a goal counts [code].
        accrued: Probability times how much U_r counts during the transition [code].
        achieved: Whether a state achieves a goal [state goal].
        is_plain: Every joint action of a state has exactly one successor, one unit of time away
            [expanded state].
        profile: The humans' part of each joint action, human 0 fastest [joint].
        robot: The robots' part of each joint action, robot 0 fastest [joint].
        action: Each human's action in each of the humans' profiles [human profile].
        with_action: The profiles in which each human takes its first action, then those in which it
            takes its second, ..., each in the order of the others' part [human profile], flat.
        others: The other humans' part of each profile [human profile].
        profile_joint: The joint action made of a profile and the robots' first part [profile].
        robot_joint: What a robots' part adds to that [robot].
        num_actions: [human].
        num_with_action: How many profiles contain any one action of a human [human].
        first_goal: Where each human's goals begin, and the end [human + 1].
        last_goal: Where each human's goals end, padding left out [human].
        weight: [goal].
        num_joint: Number of joint actions.
        num_profiles: Number of the humans' joint actions.
        num_robot_actions: Number of the robots' joint actions.
    """

    offsets: NDArray[np.uint32] | NDArray[np.int64]
    successor: NDArray[np.int32]
    code: NDArray[np.uint16] | NDArray[np.int32]
    prob: Floats
    discounted_h: Floats
    discounted_r: Floats
    arrived: Floats
    accrued: Floats
    achieved: NDArray[np.uint8]
    is_plain: NDArray[np.uint8]
    profile: Indices
    robot: Indices
    action: Indices
    with_action: NDArray[np.int32]
    others: Indices
    profile_joint: NDArray[np.int32]
    robot_joint: NDArray[np.int32]
    num_actions: Longs
    num_with_action: Longs
    first_goal: Longs
    last_goal: Longs
    weight: Floats
    num_joint: int
    num_profiles: int
    num_robot_actions: int


class Humans(NamedTuple):
    """Assumptions of Phase 1. Arrays with a leading axis of 1 hold for all states.

    Attributes:
        beta: Rationality, infinity allowed [1 or state, goal].
        nu: Weight of the habitual policy [1 or state, goal].
        habit: The habitual policy; of no account where ``nu`` is 0 [1 or state, action, goal].
        belief: Weight of the other humans' profile given a human and its own action; empty
            means evenly over their available actions [1 or state, human, action, others].
        is_optimistic: The robot is expected to help rather than to obstruct.
        is_even: The robot is expected to choose evenly; then ``is_optimistic`` is of no account.
        achieved_value: V_h^m of a goal where it is achieved.
        has_habit: Some ``nu`` is positive.
        has_greedy: Some ``beta`` is infinite.
    """

    beta: Floats
    nu: Floats
    habit: Floats
    belief: Floats
    is_optimistic: bool
    is_even: bool
    achieved_value: float
    has_habit: bool
    has_greedy: bool


class Theory(NamedTuple):
    """The symbols of Phase 2; see ``empo_theory.parameters.TheoryParams``.

    The discounts are in ``Game`` (times probabilities) and in ``Problem``.

    Attributes:
        is_weighted: X_h weighs goals; ``x_agg``.
        is_mean: U_r averages over humans; ``u_agg``.
        is_presence: Being in a goal counts; ``counting``.
        end_weight: Weight of U_r in a state where the episode is over, with ``is_presence``.
        is_counted: Whether U_r counts each human's power [human].
        num_counted: How many it counts.
    """

    beta_r: float
    zeta: float
    xi: float
    eta: float
    terminal_value: float
    is_weighted: bool
    is_mean: bool
    is_presence: bool
    end_weight: float
    is_counted: NDArray[np.uint8]
    num_counted: int


class Moments(NamedTuple):
    """What the moments of the robot's cost take besides; see ``risk``.

    Attributes:
        rho: The highest order.
        discount: gamma_r to the power of the duration [code].
        accrual: How much U_r counts during the transition [code].
        is_uniform: The last is the same for all transitions.
        weights: Probability times that power of gamma_r, to the power of each order from 1 on;
            0 where an order is above ``rho`` [code padded_order].
        binomial: Binomial coefficients [order order].
    """

    rho: int
    discount: Floats
    accrual: Floats
    is_uniform: bool
    weights: Floats
    binomial: Floats


class Block(NamedTuple):
    """The states ``order[first:last]``, on which one call of a kernel works.

    Attributes:
        order: State numbers.
        first: Where the block begins in ``order``.
        last: Where it ends.
    """

    order: NDArray[np.int32]
    first: int
    last: int


class CurrentState(NamedTuple):
    """The state that a kernel works on.

    Attributes:
        state: Its number.
        position: Its position in the block.
    """

    state: int
    position: int


class GoalPayoffs(NamedTuple):
    """Payoff of reaching a state to each goal, one step later.

    Where all transitions take one unit of time, an entry is 1 where the goal is achieved (gamma_h,
    where presence counts) and the discounted value elsewhere; otherwise it is V_h, undiscounted,
    and ``rows.expect`` forms the bracket of (1) and (6).

    Attributes:
        table: A row per state, then scratch rows, one per joint action [row goal].
        spare: First scratch row of this thread.
        is_timed: Some transition takes another time than one unit.
    """

    table: Floats
    spare: int
    is_timed: bool


class Values(NamedTuple):
    """The values at one time; goals human by human.

    Attributes:
        v_m: V_h^m, what each human hopes for [state goal].
        v_e: V_h^e, what each human can in fact attain [state goal].
        v_r: V_r [state].
        norms: ``m_k``, the ``k``-th root of the mean ``k``-th power of the robot's cost, for the
            orders from 2 to ``rho``; that of order 1 is -V_r [state order].
    """

    v_m: Floats
    v_e: Floats
    v_r: Floats
    norms: Floats


def arrays_of(values: Values) -> dict[str, Floats]:
    """The arrays of values by name; without norms where there are none."""
    arrays = values._asdict()
    return arrays if values.norms.shape[1] else {n: a for n, a in arrays.items() if n != "norms"}


def values_of(arrays: Mapping[str, Floats]) -> Values:
    """Values from what ``arrays_of`` returned."""
    none = np.zeros((len(arrays["v_r"]), 0))
    return Values(arrays["v_m"], arrays["v_e"], arrays["v_r"], arrays.get("norms", none))


class Policies(NamedTuple):
    """Policies in some states, with Q_r, X_h and U_r, by position [position ...].

    Attributes:
        pi_h: Humans' policies, goals as the sweep orders them [position action goal].
        pi_r: The robot's policy [position robot].
        q_r: Q_r, NaN where unavailable [position robot].
        x_h: X_h [position human].
        u_r: U_r, 0 at terminal states [position].
    """

    pi_h: Floats
    pi_r: Floats
    q_r: Floats
    x_h: Floats
    u_r: Floats


class Scratch(NamedTuple):
    """Working memory of one thread.

    Attributes:
        leads_to: The row of goal values that each joint action leads to [joint].
        is_available: Whether a profile is available [profile].
        is_robot_available: Whether a joint robot action is available [robot]; here and in the last
            three there are as many more as make a multiple of ``LANES``, which never are.
        by_profile: By the humans' profile: min, or max, over a_r in (1), E over a_r in (6)
            [profile goal].
        profiles: The available profiles with each action of one human [action which], flat.
        believed: How likely the human takes them to be if it chooses that action, likewise.
        evenly: The same where all profiles are available, and evenly likely [human profile], flat.
        q: Values of own actions [action goal].
        num_available: How many available profiles contain an own action [human action].
        scores: beta_h (Q_h^m - max Q_h^m) in (2), then e to that [action goal]; rounded up to a
            multiple of ``WIDEST`` numbers.
        marginal: Each human's action probabilities over all its goals [human action].
        others_chance: Probability of what the others do, for each human [human others], flat.
        profile_chance: Probability of each profile [profile].
        q_r: [robot].
        pi_r: [robot].
        accrual: Expected weight of U_r [robot].
        scale: What norms of the robot's cost are divided by, for each of its actions; with as many
            more as ``is_robot_available`` has [robot].
        sums: E[c^i (gamma_r^D m_j / scale)^j] of an action, at j - 1, where ``i + j`` is at most
            ``rho``; i is 0 where c is always the same; see ``risk`` [robot i padded_order].
        accruals: E[c^i], likewise [robot i].
        highest: What ``sums`` has for the highest order, to which pi_r belongs [robot].
        log_policy: ln pi_r [robot].
        log_moment: ln E[Y^k] after an action [robot].
    """

    leads_to: NDArray[np.int32]
    is_available: NDArray[np.uint8]
    is_robot_available: NDArray[np.uint8]
    by_profile: Floats
    profiles: NDArray[np.int32]
    believed: Floats
    evenly: Floats
    q: Floats
    num_available: Longs
    scores: Floats
    marginal: Floats
    others_chance: Floats
    profile_chance: Floats
    q_r: Floats
    pi_r: Floats
    accrual: Floats
    scale: Floats
    sums: Floats
    accruals: Floats
    highest: Floats
    log_policy: Floats
    log_moment: Floats


def make_scratch(game: Game, rho: int = 1) -> Scratch:
    """Working memory for one thread, for moments up to an order."""
    goals, humans = len(game.weight), len(game.num_actions)
    actions = int(game.num_actions.max())
    profiles, robots = game.num_profiles, game.num_robot_actions
    padded = -(-robots // LANES) * LANES
    return Scratch(
        leads_to=np.zeros(profiles * robots, np.int32),
        is_available=np.zeros(profiles, np.uint8),
        is_robot_available=np.zeros(padded, np.uint8),
        by_profile=aligned((profiles, goals)),
        profiles=np.zeros(profiles, np.int32),
        believed=np.zeros(profiles),
        evenly=np.repeat(1.0 / game.num_with_action, profiles),
        q=aligned((actions, goals)),
        num_available=np.zeros((humans, actions), np.int64),
        scores=aligned((actions + -(-(-actions * goals % WIDEST) // goals), goals)),
        marginal=np.zeros((humans, actions)),
        others_chance=np.zeros(humans * profiles),
        profile_chance=np.zeros(profiles),
        q_r=np.zeros(padded),
        pi_r=np.zeros(padded),
        accrual=np.zeros(padded),
        scale=np.ones(padded),
        sums=np.zeros((robots, rho + 1, padded_orders(rho))),
        accruals=np.zeros((robots, rho + 1)),
        highest=np.ones(padded),
        log_policy=np.zeros(padded),
        log_moment=np.zeros(robots),
    )


def aligned(shape: tuple[int, ...]) -> Floats:
    """Uninitialised memory that begins with a cache line, so that rows straddle fewer."""
    size = math.prod(shape)
    memory = np.empty(size + CACHE_LINE // 8)
    begin = -memory.ctypes.data % CACHE_LINE // 8
    return memory[begin : begin + size].reshape(shape)


def goal_order(spec: WorldSpec) -> Int64[np.ndarray, " padded_goal"]:
    """Position on the world's goal axis of each goal of the sweep; -1 for padding."""
    order: list[int] = []
    for human in spec.humans:
        goals = list(spec.goals_of(human))
        order += goals + [-1] * (-len(goals) % LANES)
    return np.array(order, np.int64)


def goal_places(spec: WorldSpec) -> Int64[np.ndarray, " goal"]:
    """Position among the goals of the sweep of each goal on the world's goal axis."""
    order = goal_order(spec)
    place = np.zeros(len(spec.goals), np.int64)
    place[order[order >= 0]] = np.flatnonzero(order >= 0)
    return place


def padded(
    values: Shaped[np.ndarray, "*batch goal"], spec: WorldSpec
) -> Shaped[np.ndarray, "*batch padded_goal"]:
    """Values on the world's goal axis (the last one) as the sweep wants them."""
    order = goal_order(spec)
    ordered = values[..., order].copy()
    ordered[..., order < 0] = 0
    return np.ascontiguousarray(ordered)


def make_game(
    graph: StateGraph, achieved: Bool[np.ndarray, "state goal"], theory: CompleteTheory
) -> Game:
    """The game as the kernels read it; ``achieved`` has the goals of ``spec.goals``."""
    spec = graph.spec
    joint, profiles = joint_actions(spec).numpy(), spec.num_human_actions
    profile, robot = (
        part_index(spec, agents, joint).astype(np.uint32) for agents in (spec.humans, spec.robots)
    )
    listed = np.arange(profiles)
    action, strides = np.zeros((len(spec.humans), profiles), np.uint32), 1
    for h, human in enumerate(spec.humans):
        action[h] = listed // strides % spec.num_actions[human]
        strides *= spec.num_actions[human]
    others = np.zeros_like(action)
    for h in range(len(spec.humans)):
        stride = 1
        for k, other in enumerate(spec.humans):
            if k != h:
                others[h] += action[k] * stride
                stride *= spec.num_actions[other]
    lengths = [len(spec.goals_of(human)) for human in spec.humans]
    begins = np.cumsum([0] + [length + -length % LANES for length in lengths])
    weight = np.array([goal.weight for goal in spec.goals], np.float64)
    discounted_h = graph.prob * theory.gamma_h**graph.duration
    return Game(
        offsets=graph.offsets,
        successor=graph.successor,
        code=graph.code,
        prob=graph.prob,
        discounted_h=discounted_h,
        discounted_r=graph.prob * theory.gamma_r**graph.duration,
        arrived=discounted_h if theory.counting == "presence" else graph.prob,
        accrued=graph.prob * accruals(graph, theory),
        achieved=padded(achieved.astype(np.uint8), spec),
        is_plain=plain_states(graph),
        profile=profile,
        robot=robot,
        action=action,
        with_action=np.argsort(action, axis=1, kind="stable").astype(np.int32).ravel(),
        others=others,
        profile_joint=np.flatnonzero(robot == 0)[np.argsort(profile[robot == 0])].astype(np.int32),
        robot_joint=np.flatnonzero(profile == 0)[np.argsort(robot[profile == 0])].astype(np.int32),
        num_actions=np.array([spec.num_actions[human] for human in spec.humans], np.int64),
        num_with_action=np.array(
            [profiles // spec.num_actions[human] for human in spec.humans], np.int64
        ),
        first_goal=begins,
        last_goal=begins[:-1] + np.array(lengths),
        weight=padded(weight, spec),
        num_joint=len(joint),
        num_profiles=profiles,
        num_robot_actions=spec.num_robot_actions,
    )


def plain_states(graph: StateGraph) -> NDArray[np.uint8]:
    """Flags of states where every joint action has one successor, one unit of time away."""
    joint = graph.spec.num_joint_actions
    is_plain = np.zeros(graph.num_expanded, np.uint8)
    if (graph.duration != 1).any():
        return is_plain
    for first in range(0, graph.num_expanded, STATES_AT_ONCE):
        last = min(first + STATES_AT_ONCE, graph.num_expanded)
        counts = np.diff(graph.offsets[first * joint : last * joint + 1])
        is_plain[first:last] = (counts.reshape(-1, joint) == 1).all(axis=1)
    return is_plain


def accruals(graph: StateGraph, theory: CompleteTheory) -> Float64[np.ndarray, " code"]:
    """How much U_r counts during the transitions of each code [code]."""
    rho_r = -math.log(theory.gamma_r)
    weights = [reward_weight(rho_r, float(d), theory.accrual) for d in graph.duration]
    return np.array(weights, np.float64)


def make_theory(theory: CompleteTheory, is_counted: Bool[np.ndarray, " human"]) -> Theory:
    """The symbols of Phase 2 as the kernels read them; ``end_weight`` is that of the last step."""
    return Theory(
        beta_r=theory.beta_r,
        zeta=theory.zeta,
        xi=theory.xi,
        eta=theory.eta,
        terminal_value=theory.terminal_value,
        is_weighted=theory.x_agg == "weighted",
        is_mean=theory.u_agg == "mean",
        is_presence=theory.counting == "presence",
        end_weight=end_weight(theory, 0),
        is_counted=is_counted.astype(np.uint8),
        num_counted=int(is_counted.sum()),
    )


def make_moments(graph: StateGraph, theory: CompleteTheory) -> Moments:
    """What the kernel of moments reads."""
    accrual, orders = accruals(graph, theory), np.arange(1.0, theory.rho + 1)
    discount = theory.gamma_r**graph.duration
    weights = np.zeros((len(discount), padded_orders(theory.rho)))
    weights[:, : theory.rho] = graph.prob[:, None] * discount[:, None] ** orders
    numbers = range(theory.rho + 1)
    return Moments(
        rho=theory.rho,
        discount=discount,
        accrual=accrual,
        is_uniform=bool((accrual == accrual[:1]).all()),
        weights=weights,
        binomial=np.array([[float(math.comb(k, j)) for j in numbers] for k in numbers]),
    )


def padded_orders(rho: int) -> int:
    """Columns of a table of moments; 0 where the mean is all."""
    return -(-rho // LANES) * LANES if rho > 1 else 0
