"""Interval backward induction: bounds of the solution itself where only some pairs are expanded.

Equations (1)-(9) for intervals, on pairs of a state and a time of a world that was unrolled.
Bounds of V_h^m, V_h^e and -V_r come in two arrays, low and high, [time state ...]; goals are human
by human. A pair that is not expanded keeps the bounds that it had. Results are rounded outwards
as in ``empo_bounds.round_off``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from interval_rules import (
    Flags,
    Floats,
    Longs,
    greatest_mean,
    least_mean,
    narrow,
    power_box,
    softmax_box,
)
from numpy.typing import NDArray

from empo_bounds.assumptions import Assumptions, frontier_bounds
from empo_bounds.power import accrual_bounds, discounts, lack_bounds, power_bounds
from empo_bounds.question import Question
from empo_bounds.round_off import Bounds, down, up
from empo_core.protocols import WorldModel
from empo_theory.parameters import CompleteTheory, TheoryParams

ENTRIES = 2_000_000
"""Numbers of one array that are worked on at a time."""


@dataclass(frozen=True)
class Game:
    """A world, unrolled; joint actions have agent 0 as the fastest digit.

    Attributes:
        question: The world and parameters of Phase 2.
        theory: Parameters of both phases.
        rows: States [state word].
        successor: Where joint actions lead, padded with 0 [state joint outcome].
        prob: How probably; 0 where padded [state joint outcome].
        duration: How long that takes [state joint outcome].
        available: Actions that agents have [state agent action].
        achieved: Whether states attain goals [state goal].
        reached: Whether a state can be reached after exactly so many steps [time state].
    """

    question: Question
    theory: CompleteTheory
    rows: NDArray[Any]
    successor: Longs
    prob: Floats
    duration: Floats
    available: Flags
    achieved: Flags
    reached: Flags

    @cached_property
    def alive(self) -> Flags:
        """Pairs from which an episode goes on [time state]."""
        alive: Flags = self.reached & (self.prob.sum((1, 2)) > 0)
        alive[-1] = False
        return alive

    @cached_property
    def of_humans(self) -> Floats:
        """Probabilities, discounted as V_h^m and V_h^e are [state joint outcome]."""
        factor = discounts(self.theory.gamma_h, self.duration.ravel())
        return np.asarray(self.prob * factor.reshape(self.prob.shape))

    @cached_property
    def of_robots(self) -> Floats:
        """Probabilities, discounted as V_r is [state joint outcome]."""
        factor = discounts(self.theory.gamma_r, self.duration.ravel())
        return np.asarray(self.prob * factor.reshape(self.prob.shape))

    @cached_property
    def accrued(self) -> Floats:
        """Probabilities times how often U_r counts [state joint outcome]."""
        if self.theory.accrual == "discrete":
            return self.prob
        counted = accrual_bounds(self.question, self.duration.ravel())
        return np.asarray(self.prob * counted.reshape(self.prob.shape))

    @property
    def terms(self) -> int:
        """Operations behind any sum of products, at most."""
        agents, goals = self.question.spec.num_actions, len(self.question.order)
        return int(2 * (math.prod(agents) + self.prob.shape[2] + goals) + 48)


def unroll(world: WorldModel, theory: CompleteTheory) -> Game:
    """All states that can be reached within the world's horizon, and their transitions.

    Raises:
        ValueError: The world has no horizon.
    """
    spec = world.spec
    if spec.horizon is None:
        raise ValueError(f"{spec.name!r} has no horizon")
    nothing = cast(Any, None)  # Policies are not given here.
    shared = {name: getattr(theory, name) for name in TheoryParams.model_fields}
    question = Question(world, nothing, nothing, TheoryParams(**shared), theory.accrual)
    number = {tuple(world.initial_state().tolist()): 0}
    first = 0
    counts: list[int] = []
    targets: list[int] = []
    probs: list[float] = []
    durations: list[float] = []
    for _ in range(spec.horizon):
        block, first = list(number)[first:], len(number)
        if not block:
            break
        found = world.transitions(torch.tensor(block, dtype=spec.state_dtype))
        targets += [number.setdefault(tuple(row), len(number)) for row in found.states.tolist()]
        counts += found.offsets.diff().tolist()
        probs += found.prob.tolist()
        durations += [1.0] * len(found.prob) if found.duration is None else found.duration.tolist()
    states, length = torch.tensor(list(number), dtype=spec.state_dtype), np.array(counts)
    shape = (len(states), spec.num_joint_actions, max(int(length.max()), 1))
    place = np.repeat(np.arange(len(length)), length)
    slot = np.arange(len(place)) - np.repeat(np.cumsum(length) - length, length)
    where = (*np.divmod(place, shape[1]), slot)
    successor, prob, duration = np.zeros(shape, np.int64), np.zeros(shape), np.ones(shape)
    successor[where], prob[where], duration[where] = targets, probs, durations
    reached = np.zeros((spec.horizon + 1, len(states)), np.bool_)
    reached[0, 0] = True
    for time in range(spec.horizon):
        possible = reached[time, :, None, None] & (prob > 0)
        reached[time + 1, successor[possible]] = True
    available, achieved = world.available(states).numpy(), world.achieved(states).numpy()
    return Game(
        *(question, theory, states.numpy(), successor, prob, duration),
        *(available, achieved[:, question.order], reached),
    )


@dataclass
class Intervals:
    """Bounds of all pairs, which ``induce`` narrows.

    Attributes:
        v_m: Of V_h^m [time state goal].
        v_e: Of V_h^e [time state goal].
        loss: Of -V_r [time state].
    """

    v_m: Bounds
    v_e: Bounds
    loss: Bounds


def a_priori(game: Game, assumed: Assumptions) -> Intervals:
    """What holds before anything is expanded; at the end of an episode everything is known.

    Raises:
        ValueError: Nothing bounds -V_r from above.
    """
    times, states = game.reached.shape
    found = frontier_bounds(
        game.question, assumed, times, is_timed=bool((game.duration != 1.0).any())
    )
    if not np.isfinite(found.loss.high).all():
        raise ValueError("an assumption of min_power, or unit durations, are needed")
    over, end = ~game.alive, -game.theory.terminal_value
    loss = [np.repeat(side[:, None], states, 1) for side in found.loss]
    for side in loss:
        side[over] = end
    chance = np.where(over, 0.0, found.v_e.high[:, None])
    v_e = np.repeat(chance[:, :, None], game.achieved.shape[1], 2)
    v_m = np.where(game.achieved, 0.0, v_e)
    return Intervals(
        Bounds(np.zeros_like(v_m), v_m), Bounds(np.zeros_like(v_e), v_e), Bounds(loss[0], loss[1])
    )


@dataclass
class Policies:
    """Policies of everybody in the expanded pairs of all times.

    Attributes:
        robot: The power law at the upper bounds of Q_r [time state robot_action].
        marginal: The middle of the bounds of each human's mean policy [time state human action].
        humans: Bounds of each human's policy, by time [human]: [pair action goal].
    """

    robot: Floats
    marginal: Floats
    humans: dict[int, list[Bounds]] = field(default_factory=dict)


def induce(
    game: Game,
    assumed: Assumptions,
    intervals: Intervals,
    expanded: Flags,
    given: Policies | None = None,
) -> Policies:
    """Narrow the bounds of expanded pairs, from the last to the first.

    Args:
        game: What was unrolled.
        assumed: Claims about power.
        intervals: Valid bounds; those of expanded pairs are narrowed.
        expanded: The pairs that are expanded [time state].
        given: Human policies where all pairs are expanded: Phase 1 is known then.

    Returns:
        What is known of everybody's policies.
    """
    spec, alive = game.question.spec, game.alive
    times, states = expanded.shape
    joint = math.prod(spec.num_actions[robot] for robot in spec.robots)
    found = Policies(
        np.zeros((times, states, joint)),
        np.zeros((times, states, len(spec.humans), max(spec.num_actions))),
    )
    for time in range(times - 2, -1, -1):
        everyone, kept = np.flatnonzero(alive[time]), []
        for part in _parts(game, np.flatnonzero(expanded[time] & alive[time])):
            if given is None:
                boxes = _phase_1(game, part, intervals, time)
            else:
                position = np.searchsorted(everyone, part)
                boxes = [
                    Bounds(box.low[position], box.high[position]) for box in given.humans[time]
                ]
            kept.append(boxes)
            _phase_2(game, assumed, part, boxes, (intervals, found, time))
        if given is None:
            found.humans[time] = [
                Bounds(*(np.concatenate(each) for each in zip(*boxes, strict=True)))
                for boxes in zip(*kept, strict=True)
            ]
    return found


def _parts(game: Game, chosen: Longs) -> Iterator[Longs]:
    """States in pieces that are not too large."""
    per_state = game.prob.shape[1] * game.prob.shape[2] * game.achieved.shape[1]
    size = max(1, ENTRIES // per_state)
    for first in range(0, len(chosen), size):
        yield chosen[first : first + size]


def expected(game: Game, part: Longs, weight: Floats, table: Floats) -> Floats:
    """Sums over outcomes of weight [state joint outcome] times a table [state column].

    Returns:
        With axes for the robots together and for each human [state robots human... column].
    """
    total = sum(
        weight[part, :, outcome, None] * table[game.successor[part, :, outcome]]
        for outcome in range(weight.shape[2])
    )
    return by_agent(game, np.asarray(total))


def by_agent(game: Game, array: NDArray[Any]) -> NDArray[Any]:
    """An array [state joint column] as [state robots human... column]."""
    spec, agents = game.question.spec, game.question.spec.num_actions
    digits = array.reshape(len(array), *reversed(agents), array.shape[2])
    axes = [len(agents) - agent for agent in (*reversed(spec.robots), *spec.humans)]
    moved = digits.transpose(0, *axes, len(agents) + 1)
    humans = (agents[human] for human in spec.humans)
    return moved.reshape(len(array), -1, *humans, array.shape[2])


def arrival(game: Game, part: Longs, table: Floats) -> Floats:
    """Expected worth of where actions lead: 1 in a goal, else discounted [... goal].

    ``table`` has V_h^m or V_h^e one step later [state goal].
    """
    paid = expected(game, part, game.prob, game.achieved.astype(np.float64))
    return paid + expected(game, part, game.of_humans, np.where(game.achieved, 0.0, table))


def _robots(game: Game, part: Longs) -> Flags:
    """Whether joint robot actions are available, robot 0 fastest [state robots]."""
    joint = np.ones((len(part), 1), np.bool_)
    for robot in game.question.spec.robots:
        own = game.available[part, robot, : game.question.spec.num_actions[robot]]
        joint = (own[:, :, None] & joint[:, None, :]).reshape(len(part), -1)
    return joint


def _own(game: Game, human: int) -> slice:
    """The goals of a human, by its position among humans."""
    return slice(game.question.first_goal[human], game.question.first_goal[human + 1])


def _phase_1(game: Game, part: Longs, intervals: Intervals, time: int) -> list[Bounds]:
    """Equations (1)-(3): narrows V_h^m, and returns each human's policy [state action goal]."""
    spec, theory, terms = game.question.spec, game.theory, game.terms
    robots = _robots(game, part)
    worst = theory.robot_model != "optimistic"
    reply = (np.min if worst else np.max), (np.inf if worst else -np.inf)
    sides = []
    for side, outwards in zip(intervals.v_m, (down, up), strict=True):
        worth = arrival(game, part, side[time + 1])
        unavailable = ~robots.reshape(*robots.shape, *[1] * (worth.ndim - 2))
        sides.append(outwards(reply[0](np.where(unavailable, reply[1], worth), 1), terms))
    boxes = []
    for position, human in enumerate(spec.humans):
        own, quality = _own(game, position), []
        for side, outwards in zip(sides, (down, up), strict=True):
            mean = side[..., own]
            for other in range(len(spec.humans) - 1, -1, -1):
                if other != position:
                    agent = spec.humans[other]
                    able = game.available[part, agent, : spec.num_actions[agent]]
                    belief = able / able.sum(-1, keepdims=True)
                    mean = np.moveaxis(mean, other + 1, 1)
                    shape = (*belief.shape, *[1] * (mean.ndim - 2))
                    mean = (mean * belief.reshape(shape)).sum(1, keepdims=True)
                    mean = np.moveaxis(mean, 1, other + 1)
            mean = mean.reshape(len(part), spec.num_actions[human], -1)
            quality.append(outwards(mean, terms).swapaxes(1, 2))  # [state goal action].
        able = game.available[part, human, : spec.num_actions[human]][:, None, :]
        able = np.broadcast_to(able, quality[0].shape)
        box = softmax_box(float(theory.beta_h), Bounds(quality[0], quality[1]), able, terms)
        if theory.nu:
            habit = theory.nu * able / able.sum(-1, keepdims=True)
            box = Bounds(
                *(
                    outwards(habit + (1 - theory.nu) * side, 8)
                    for side, outwards in zip(box, (down, up), strict=True)
                )
            )
        done = game.achieved[part][:, own]
        low = np.maximum(least_mean(quality[0], box), np.where(able, quality[0], np.inf).min(-1))
        high = np.minimum(greatest_mean(quality[1], box), np.where(able, quality[1], 0).max(-1))
        mean_value = Bounds(
            np.where(done, 0.0, down(low, terms)), np.where(done, 0.0, up(high, terms))
        )
        narrow(intervals.v_m, (time, part[:, None], np.arange(own.start, own.stop)), mean_value)
        first = np.zeros_like(box.low)
        np.put_along_axis(first, able.argmax(-1)[..., None], 1.0, -1)
        boxes.append(
            Bounds(*(np.where(done[..., None], first, side).swapaxes(1, 2) for side in box))
        )
    return boxes


def _phase_2(
    game: Game,
    assumed: Assumptions,
    part: Longs,
    boxes: list[Bounds],
    into: tuple[Intervals, Policies, int],
) -> None:
    """Equations (4)-(9): narrows V_h^e and -V_r at a time."""
    question, theory, terms = game.question, game.theory, game.terms
    spec, (intervals, found, time) = question.spec, into
    mean = []
    for position, box in enumerate(boxes):
        share = question.weights[position] / question.weights[position].sum()
        mean.append(Bounds(down(box.low @ share, terms), up(box.high @ share, terms)))
        middle = (mean[-1].low + mean[-1].high) / 2
        middle /= middle.sum(-1, keepdims=True)
        found.marginal[time, part, position, : middle.shape[1]] = middle

    def averaged(side: int, payoff: Floats, chosen: list[Bounds]) -> Floats:
        """The least or greatest mean over all humans, the last of them first [state robots ...]."""
        pick = (least_mean, greatest_mean)[side]
        for human in range(len(chosen) - 1, -1, -1):
            payoff = np.moveaxis(payoff, human + 2, -1)
            box = chosen[human]
            shape = (len(part), *[1] * (payoff.ndim - 2), -1)
            if box.low.ndim == 3:  # By goal, which is the axis before the last.
                shape = (len(part), *[1] * (payoff.ndim - 3), box.low.shape[2], box.low.shape[1])
                box = Bounds(*(each.swapaxes(1, 2) for each in box))
            payoff = pick(payoff, Bounds(*(each.reshape(shape) for each in box)))
            payoff = (down, up)[side](payoff, terms)
        return payoff

    robots = _robots(game, part)
    means = []
    for side, outwards in enumerate((down, up)):
        later = intervals.loss[side][time + 1][:, None]
        payoff = outwards(expected(game, part, game.of_robots, later), terms)
        means.append(averaged(side, payoff, mean)[..., 0])
    quality = Bounds(means[0], means[1])
    robot = power_box(theory.beta_r, quality, robots, terms)
    optimist = power_box(theory.beta_r, Bounds(quality.low, quality.low), robots, terms).high
    found.robot[time, part] = optimist / optimist.sum(-1, keepdims=True)
    over_robots = Bounds(robot.low[:, None, :], robot.high[:, None, :])
    attained = []
    for side, (pick, outwards) in enumerate(((least_mean, down), (greatest_mean, up))):
        worth = outwards(arrival(game, part, intervals.v_e[side][time + 1]), terms)
        by_human = []
        for position in range(len(spec.humans)):
            chosen = [*mean]
            chosen[position] = boxes[position]
            of_robots = averaged(side, worth[..., _own(game, position)], chosen)
            by_human.append(outwards(pick(of_robots.swapaxes(1, 2), over_robots), terms))
        attained.append(np.concatenate(by_human, 1))
    narrow(intervals.v_e, (time, part), Bounds(attained[0], attained[1]))
    power = power_bounds(question, Bounds(*(side[time, part] for side in intervals.v_e)))
    if assumed.min_power is not None and (power.high < assumed.min_power).any():
        raise ValueError(f"somebody's power is less than {assumed.min_power} at time {time}")
    least = np.maximum(power.low, assumed.min_power or 0.0)
    lack = lack_bounds(question, Bounds(least, power.high))
    loss = []
    for side, (pick, outwards) in enumerate(((least_mean, down), (greatest_mean, up))):
        total = pick(quality[side], robot)
        counted = np.ones(len(part))
        if theory.accrual == "continuous":
            each = expected(game, part, game.accrued, np.ones((len(game.rows), 1)))
            counted = pick(averaged(side, each, mean)[..., 0], robot)
        loss.append(outwards(outwards(counted, terms) * lack[side] + total, terms))
    narrow(intervals.loss, (time, part), Bounds(loss[0], loss[1]))
