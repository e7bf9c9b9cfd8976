"""The bounds of a certificate in plain loops, one pair at a time: what fast code is checked by.

Nothing is rounded outwards here, so results agree with certified ones to many digits, not to all.
It shares no code with ``kernels``, ``induction``, ``power`` and ``assumptions``, and neither does
``plain_frontier``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64

from empo_bounds.plain_frontier import PlainFrontier, counts_of, lack_of
from empo_bounds.recorded import Contradiction, Recorded
from empo_worlds.contract import successors_of
from empo_worlds.samples import joint_actions

ROUNDING = 1e-11
"""Largest relative error of plain bounds."""
SUM_TOLERANCE = 1e-9
"""Allowed distance of a sum of transition probabilities from 1."""
SMALLEST, TINY = 5e-324, 1e-300
"""The smallest positive number, and one that is so small that factors below it are replaced."""

Weights = dict[int, float]
"""Probability of each landing."""


@dataclass(frozen=True)
class PlainBounds:
    """Bounds at one pair: from below, from above.

    Attributes:
        v_e: Of V_h^e, goals human by human [side goal].
        x_h: Of X_h [side human].
        lack: Of -U_r.
        loss: Of -V_r.
    """

    v_e: Float64[np.ndarray, "2 goal"]
    x_h: Float64[np.ndarray, "2 human"]
    lack: tuple[float, float]
    loss: tuple[float, float]


@dataclass
class Summary:
    """Sums over the pairs of a certificate.

    Attributes:
        transitions: Transitions of all moments.
        outside: Occupancy of the frontier, all times together.
    """

    transitions: int = 0
    outside: float = 0.0


def plain_bounds(
    recorded: Recorded, report: Callable[[int, int], object], summary: Summary | None = None
) -> Iterator[tuple[int, list[PlainBounds]]]:
    """Times and the bounds of their pairs, from the last time to the first.

    Args:
        recorded: Pairs and policies that make sense (``Recorded.require_sense``).
        report: Is told of how many times are done, and of how many there are.
        summary: Is filled in, at the end.

    Raises:
        Contradiction: if a successor is missing, or a claim is wrong.
    """
    times, goes_on = recorded.times, recorded.goes_on.tolist()
    moments, frontier = _Moments(recorded), PlainFrontier(recorded)
    later: dict[int, PlainBounds] = {}
    for time in range(times - 1, -1, -1):
        report(times - 1 - time, times)
        bounds = {}
        for pair in recorded.pairs(time):
            moment = int(recorded.arrays["pair_moment"][pair])
            if moment < 0:
                bounds[pair] = _unexpanded(recorded, frontier, time, goes_on=goes_on[pair])
                continue
            leads_to = moments.landings(moment)
            if not leads_to <= later.keys():
                raise Contradiction(f"a successor of pair {pair} is missing at time {time + 1}")
            arrivals = {
                landing: _arrival(recorded, landing, later[landing]) for landing in leads_to
            }
            bounds[pair] = _value(recorded, moments, moment, arrivals)
            _require_power(recorded, bounds[pair], pair)
        yield time, list(bounds.values())
        later = {
            int(recorded.arrays["pair_landing"][pair]): pair_bounds
            for pair, pair_bounds in bounds.items()
        }
    if summary is not None:
        summary.transitions = moments.transitions
        summary.outside = _outside(recorded, moments, goes_on)
    report(times, times)


def _require_power(recorded: Recorded, bounds: PlainBounds, pair: int) -> None:
    min_power = recorded.min_power
    if min_power is not None and (bounds.x_h[1] < min_power * (1.0 - ROUNDING)).any():
        raise Contradiction(
            f"X_h of pair {pair} is at most {bounds.x_h[1].min():.6g}, and it says that it is "
            f"at least {min_power:.6g} everywhere"
        )


def _outside(recorded: Recorded, moments: _Moments, goes_on: list[bool]) -> float:
    """Occupancy of the frontier, with humans who act by their average."""
    here, outside = {int(recorded.arrays["pair_landing"][0]): 1.0}, 0.0
    theory, horizon = recorded.question.theory, recorded.question.spec.horizon
    gamma = max(theory.gamma_h, theory.gamma_r) if horizon is None else 1.0
    for time in range(recorded.times):
        there: dict[int, float] = {}
        for pair in recorded.pairs(time):
            mass = here.get(int(recorded.arrays["pair_landing"][pair]), 0.0)
            moment = int(recorded.arrays["pair_moment"][pair])
            if moment < 0:
                outside += mass if goes_on[pair] else 0.0
                continue
            _, policies = moments.policies(moment)
            for mean, chances in zip(
                moments.average(0, policies[0]), moments.of(moment)[0], strict=True
            ):
                for landing, weight in chances.items():
                    duration = float(recorded.arrays["landing_duration"][landing])
                    share = mean * weight * gamma**duration
                    there[landing] = there.get(landing, 0.0) + mass * share
        here = there
    return outside


class _Moments:
    """Transitions of every moment, by human and its action; worked out from the world once."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded, self._question = recorded, recorded.question
        states = [tuple(row) for row in recorded.arrays["states"].tolist()]
        durations = recorded.arrays["landing_duration"].tolist()
        self._landing = {
            (states[state], duration): landing
            for landing, (state, duration) in enumerate(
                zip(recorded.arrays["landing_state"].tolist(), durations, strict=True)
            )
        }
        self._condensed_by_moment: dict[int, list[list[Weights]]] = {}
        self.transitions = 0

    def landings(self, moment: int) -> set[int]:
        """Everything that a moment leads to."""
        return {
            landing for actions in self.of(moment) for weights in actions for landing in weights
        }

    def of(self, moment: int) -> list[list[Weights]]:
        """For each human and each of its actions, the chances of landings, others on average."""
        if moment not in self._condensed_by_moment:
            self._condensed_by_moment[moment] = self._condensed(moment)
        return self._condensed_by_moment[moment]

    def policies(self, moment: int) -> tuple[list[float], list[np.ndarray]]:
        """The robots' joint policy, and each human's for its goals [goal action]."""
        _, robot, *human = self._recorded.arrays["moments"][moment].tolist()
        tables = [
            self._recorded.arrays[f"human_policy_{position}"][number]
            for position, number in enumerate(human)
        ]
        return self._recorded.arrays["robot_policy"][robot].tolist(), tables

    def average(self, human: int, policy: np.ndarray) -> list[float]:
        """A human's policy averaged over its goals."""
        weights = self._question.weights[human].tolist()
        columns = policy.T.tolist()
        means = []
        for column in columns:
            mean = sum(w * p for w, p in zip(weights, column, strict=True)) / sum(weights)
            possible = any(w > 0 and p > 0 for w, p in zip(weights, column, strict=True))
            means.append(max(mean, SMALLEST) if possible else mean)
        return means

    def _place(self, row: tuple[int, ...], duration: float) -> int:
        """The landing of a transition."""
        if (row, duration) not in self._landing:
            raise Contradiction(f"a successor {row}, after {duration:g}, is none of its landings")
        return self._landing[row, duration]

    def _condensed(self, moment: int) -> list[list[Weights]]:
        spec = self._question.spec
        state = int(self._recorded.arrays["moments"][moment, 0])
        row = torch.from_numpy(self._recorded.arrays["states"][state : state + 1].copy())
        robot, human = self.policies(moment)
        averages = [self.average(position, policy) for position, policy in enumerate(human)]
        successors = successors_of(self._question.world, row)
        offsets = successors.offsets.tolist()
        rows = [tuple(row) for row in successors.states.tolist()]
        prob = successors.prob.double().tolist()
        duration = None if successors.duration is None else successors.duration.double().tolist()
        condensed: list[list[Weights]] = [
            [{} for _ in range(self._question.num_actions)] for _ in spec.humans
        ]
        for joint, actions in enumerate(joint_actions(spec).tolist()):
            chance, stride = 0, 1
            for agent in spec.robots:
                chance += actions[agent] * stride
                stride *= spec.num_actions[agent]
            is_possible = False
            for position, agent in enumerate(spec.humans):
                factors = [robot[chance]]
                for other, another in enumerate(spec.humans):
                    if other != position:
                        factors.append(averages[other][actions[another]])
                if min(factors) == 0.0 or not (human[position][:, actions[agent]] > 0).any():
                    continue
                weight = max(math.prod(factors), SMALLEST)
                is_possible = True
                mine = condensed[position][actions[agent]]
                for item in range(offsets[joint], offsets[joint + 1]):
                    time = 1.0 if duration is None else duration[item]
                    if prob[item] > 0.0:
                        landing = self._place(rows[item], time)
                        chance_there = max(weight * prob[item], SMALLEST)
                        mine[landing] = mine.get(landing, 0.0) + chance_there
            if not is_possible:
                continue
            self.transitions += offsets[joint + 1] - offsets[joint]
            total = sum(prob[offsets[joint] : offsets[joint + 1]])
            if not abs(total - 1.0) <= SUM_TOLERANCE:
                raise Contradiction(
                    f"in state {state} the world gives what everybody does there probabilities "
                    f"that sum to {total!r}, not to 1"
                )
        return condensed


@dataclass(frozen=True)
class _Arrival:
    """Worth of reaching a pair: 1 or discounted V_h^e, discounted -V_r, and what U_r counts."""

    goal_value: Float64[np.ndarray, "2 goal"]
    loss: tuple[float, float]
    counts: float


def _arrival(recorded: Recorded, landing: int, bounds: PlainBounds) -> _Arrival:
    question = recorded.question
    duration = float(recorded.arrays["landing_duration"][landing])
    achieved = question.world.achieved(recorded.row(landing))[0].numpy()[question.order]
    of_human = question.theory.gamma_h**duration
    of_robot = question.theory.gamma_r**duration
    goal_value = np.where(achieved, 1.0, of_human * bounds.v_e)
    losses = (_lower_factor(of_robot) * bounds.loss[0], _upper_factor(of_robot) * bounds.loss[1])
    return _Arrival(goal_value, losses, counts_of(question, duration))


def _value(
    recorded: Recorded, moments: _Moments, moment: int, arrivals: Mapping[int, _Arrival]
) -> PlainBounds:
    """Bounds at an expanded pair, from what its transitions are worth."""
    question, theory = recorded.question, recorded.question.theory
    _, policies = moments.policies(moment)
    v_e = np.zeros((2, len(question.order)))
    for human, policy in enumerate(policies):
        first = question.first_goal[human]
        goals = slice(first, first + len(policy))
        for action, chances in enumerate(moments.of(moment)[human]):
            for landing, weight in chances.items():
                v_e[:, goals] += weight * policy[:, action] * arrivals[landing].goal_value[:, goals]
    x_h = np.zeros((2, len(policies)))
    for human, weights in enumerate(question.weights):
        first = question.first_goal[human]
        for goal, weight in enumerate(weights.tolist(), first):
            factor = weight if theory.x_agg == "weighted" else 1.0
            x_h[:, human] += factor * v_e[:, goal] ** theory.zeta
    min_power = 0.0 if recorded.min_power is None else recorded.min_power
    lack = (lack_of(question, x_h[1]), lack_of(question, np.maximum(x_h[0], min_power)))
    loss, counts = [0.0, 0.0], [0.0, 0.0]
    for action, mean in enumerate(moments.average(0, policies[0])):
        for landing, weight in moments.of(moment)[0][action].items():
            if mean > 0:
                for side, bound in enumerate((_lower_factor, _upper_factor)):
                    counts[side] += bound(mean * weight) * arrivals[landing].counts
                    loss[side] += bound(mean * weight) * arrivals[landing].loss[side]
    counts = counts if question.accrual == "continuous" else [1.0, 1.0]
    low, high = (n * u + later_loss for n, u, later_loss in zip(counts, lack, loss, strict=True))
    return PlainBounds(v_e, x_h, lack, (low, high))


def _lower_factor(factor: float) -> float:
    """A factor, from below: one so small that it has lost digits may meet a huge one."""
    return 0.0 if factor < TINY else factor


def _upper_factor(factor: float) -> float:
    """A factor, from above."""
    return max(factor, TINY)


def _unexpanded(
    recorded: Recorded, frontier: PlainFrontier, time: int, *, goes_on: bool
) -> PlainBounds:
    """Bounds at a pair that was not expanded."""
    question = recorded.question
    goals, humans = len(question.order), len(question.spec.humans)
    nothing = (0.0, math.inf)
    unknown = np.array([np.zeros(humans), np.full(humans, math.inf)])
    if not goes_on:
        end = -question.theory.terminal_value
        return PlainBounds(np.zeros((2, goals)), unknown, nothing, (end, end))
    v_e = np.array([np.zeros(goals), np.full(goals, frontier.v_e(time))])
    return PlainBounds(v_e, unknown, nothing, frontier.loss(time))


def vacuous_bounds(recorded: Recorded) -> PlainBounds:
    """Bounds at the start before anything is expanded."""
    frontier = PlainFrontier(recorded)
    return _unexpanded(recorded, frontier, 0, goes_on=bool(recorded.goes_on[0]))
