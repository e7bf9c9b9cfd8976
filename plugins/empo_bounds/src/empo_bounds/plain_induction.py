"""The bounds of a certificate in plain loops, one pair at a time: what fast code is checked by.

Nothing is rounded outwards here, so results agree with certified ones to many digits, not to all.
It shares no code with ``kernels``, ``induction``, ``power`` and ``assumptions``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64

from empo_bounds.question import Question

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


@dataclass(frozen=True)
class Recorded:
    """Pairs and policies as a certificate's arrays have them.

    Attributes:
        question: The world and the theory.
        arrays: Arrays by name; see ``certificate.arrays_of``.
        min_power: X_h that is assumed; None where nothing is.
        never_ends_early: Whether that is assumed.
    """

    question: Question
    arrays: Mapping[str, np.ndarray]
    min_power: float | None
    never_ends_early: bool

    def pairs(self, time: int) -> range:
        """The pairs of a time."""
        first = self.arrays["first_pair"]
        return range(int(first[time]), int(first[time + 1]))

    def row(self, landing: int) -> torch.Tensor:
        """The state row of a landing, alone in a batch [1 word]."""
        state = int(self.arrays["landing_state"][landing])
        return torch.from_numpy(self.arrays["states"][state : state + 1].copy())


def plain_bounds(
    recorded: Recorded, told: Callable[[int, int], object]
) -> Iterator[tuple[int, list[PlainBounds]]]:
    """Times and the bounds of their pairs, from the last time to the first.

    Args:
        recorded: Pairs and policies.
        told: Is told of how many times are done, and of how many there are.
    """
    times = len(recorded.arrays["first_pair"]) - 1
    moments = _Moments(recorded)
    later: list[PlainBounds] = []
    place: dict[int, int] = {}
    for time in range(times - 1, -1, -1):
        told(times - 1 - time, times)
        found = []
        for pair in recorded.pairs(time):
            landing = int(recorded.arrays["pair_landing"][pair])
            moment = int(recorded.arrays["pair_moment"][pair])
            if moment < 0:
                found.append(_unexpanded(recorded, landing, time))
            else:
                arrivals = {
                    landing: _arrival(recorded, landing, later[place[landing]])
                    for landing in moments.landings(moment)
                }
                found.append(_value(recorded, moments, moment, arrivals))
        yield time, found
        later = found
        place = {
            int(recorded.arrays["pair_landing"][pair]): position
            for position, pair in enumerate(recorded.pairs(time))
        }
    told(times, times)


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
        self._found: dict[int, list[list[Weights]]] = {}

    def landings(self, moment: int) -> set[int]:
        """Everything that a moment leads to."""
        return {landing for actions in self.of(moment) for each in actions for landing in each}

    def of(self, moment: int) -> list[list[Weights]]:
        """For each human and each of its actions, the chances of landings, others on average."""
        if moment not in self._found:
            self._found[moment] = self._condensed(moment)
        return self._found[moment]

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
        found = []
        for column in columns:
            mean = sum(w * p for w, p in zip(weights, column, strict=True)) / sum(weights)
            possible = any(w > 0 and p > 0 for w, p in zip(weights, column, strict=True))
            found.append(max(mean, SMALLEST) if possible else mean)
        return found

    def _condensed(self, moment: int) -> list[list[Weights]]:
        spec = self._question.spec
        state = int(self._recorded.arrays["moments"][moment, 0])
        row = torch.from_numpy(self._recorded.arrays["states"][state : state + 1].copy())
        robot, human = self.policies(moment)
        averages = [self.average(position, policy) for position, policy in enumerate(human)]
        successors = self._question.world.transitions(row)
        offsets = successors.offsets.tolist()
        rows = [tuple(each) for each in successors.states.tolist()]
        prob = successors.prob.double().tolist()
        duration = None if successors.duration is None else successors.duration.double().tolist()
        found: list[list[Weights]] = [
            [{} for _ in range(self._question.num_actions)] for _ in spec.humans
        ]
        for joint in range(spec.num_joint_actions):
            actions = [
                joint // stride % number
                for stride, number in zip(spec.strides, spec.num_actions, strict=True)
            ]
            chance, stride = 0, 1
            for agent in spec.robots:
                chance += actions[agent] * stride
                stride *= spec.num_actions[agent]
            for position, agent in enumerate(spec.humans):
                factors = [robot[chance]]
                for other, another in enumerate(spec.humans):
                    if other != position:
                        factors.append(averages[other][actions[another]])
                if min(factors) == 0.0 or not (human[position][:, actions[agent]] > 0).any():
                    continue
                weight = max(math.prod(factors), SMALLEST)
                mine = found[position][actions[agent]]
                for item in range(offsets[joint], offsets[joint + 1]):
                    time = 1.0 if duration is None else duration[item]
                    landing = self._landing[rows[item], time]
                    if prob[item] > 0.0:
                        chance_there = max(weight * prob[item], SMALLEST)
                        mine[landing] = mine.get(landing, 0.0) + chance_there
        return found


@dataclass(frozen=True)
class _Arrival:
    """Worth of reaching a pair: 1 or discounted V_h^e, discounted -V_r, and what U_r counts."""

    worth: Float64[np.ndarray, "2 goal"]
    loss: tuple[float, float]
    counts: float


def _arrival(recorded: Recorded, landing: int, found: PlainBounds) -> _Arrival:
    question = recorded.question
    duration = float(recorded.arrays["landing_duration"][landing])
    achieved = question.world.achieved(recorded.row(landing))[0].numpy()[question.order]
    of_human = question.theory.gamma_h**duration
    of_robot = question.theory.gamma_r**duration
    worth = np.where(achieved, 1.0, of_human * found.v_e)
    losses = (_least(of_robot) * found.loss[0], _most(of_robot) * found.loss[1])
    return _Arrival(worth, losses, _counts(question, duration))


def _counts(question: Question, duration: float) -> float:
    """Weight of U_r in a transition that takes so long."""
    gamma = question.theory.gamma_r
    if question.accrual == "discrete":
        return 1.0
    return duration if gamma == 1.0 else (1.0 - gamma**duration) / -math.log(gamma)


def _value(
    recorded: Recorded, moments: _Moments, moment: int, arrivals: Mapping[int, _Arrival]
) -> PlainBounds:
    """Bounds at an expanded pair, from what its transitions are worth."""
    question, theory = recorded.question, recorded.question.theory
    _, policies = moments.policies(moment)
    v_e = np.zeros((2, len(question.order)))
    for human, policy in enumerate(policies):
        first = question.first_goal[human]
        own = slice(first, first + len(policy))
        for action, chances in enumerate(moments.of(moment)[human]):
            for landing, weight in chances.items():
                v_e[:, own] += weight * policy[:, action] * arrivals[landing].worth[:, own]
    x_h = np.zeros((2, len(policies)))
    for human, weights in enumerate(question.weights):
        first = question.first_goal[human]
        for goal, weight in enumerate(weights.tolist(), first):
            factor = weight if theory.x_agg == "weighted" else 1.0
            x_h[:, human] += factor * v_e[:, goal] ** theory.zeta
    least = 0.0 if recorded.min_power is None else recorded.min_power
    lack = (_lack(question, x_h[1]), _lack(question, np.maximum(x_h[0], least)))
    loss, counts = [0.0, 0.0], [0.0, 0.0]
    for action, mean in enumerate(moments.average(0, policies[0])):
        for landing, weight in moments.of(moment)[0][action].items():
            if mean > 0:
                for side, bound in enumerate((_least, _most)):
                    counts[side] += bound(mean * weight) * arrivals[landing].counts
                    loss[side] += bound(mean * weight) * arrivals[landing].loss[side]
    counts = counts if question.accrual == "continuous" else [1.0, 1.0]
    low, high = (n * u + ahead for n, u, ahead in zip(counts, lack, loss, strict=True))
    return PlainBounds(v_e, x_h, lack, (low, high))


def _least(factor: float) -> float:
    """A factor, from below: one so small that it has lost digits may meet a huge one."""
    return 0.0 if factor < TINY else factor


def _most(factor: float) -> float:
    """A factor, from above."""
    return max(factor, TINY)


def _lack(question: Question, x_h: Float64[np.ndarray, " human"]) -> float:
    """-U_r of these powers."""
    theory = question.theory
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        total = (x_h**-theory.xi).sum()
        if theory.u_agg == "mean":
            total /= len(x_h)
        return float(total**theory.eta)


def _unexpanded(recorded: Recorded, landing: int, time: int) -> PlainBounds:
    """Bounds at a pair that was not expanded."""
    question = recorded.question
    goals, humans = len(question.order), len(question.spec.humans)
    nothing = (0.0, math.inf)
    unknown = np.array([np.zeros(humans), np.full(humans, math.inf)])
    horizon = question.spec.horizon
    goes_on = bool(question.world.available(recorded.row(landing)).any()) and time != horizon
    if not goes_on:
        end = -question.theory.terminal_value
        return PlainBounds(np.zeros((2, goals)), unknown, nothing, (end, end))
    v_e = np.array([np.zeros(goals), np.ones(goals)])
    return PlainBounds(v_e, unknown, nothing, _frontier_loss(recorded, time))


def _frontier_loss(recorded: Recorded, time: int) -> tuple[float, float]:
    """-V_r at best and at worst where episodes go on and nothing was expanded."""
    question, theory = recorded.question, recorded.question.theory
    most = np.array([
        float(sum(weights) if theory.x_agg == "weighted" else len(weights))
        for weights in question.weights
    ])  # fmt: skip
    least = np.full(len(most), recorded.min_power or 0.0)
    best, worst = _lack(question, most), _lack(question, least)
    durations = recorded.arrays["landing_duration"]
    is_timed = bool((durations != 1.0).any())
    end, gamma, horizon = -theory.terminal_value, theory.gamma_r, question.spec.horizon
    counts = _counts(question, 1.0)
    if is_timed and question.accrual == "continuous":
        return 0.0, math.inf
    if horizon is None:
        bounded = gamma < 1.0 and not is_timed
        return counts * best, (counts * worst / (1.0 - gamma) + end if bounded else math.inf)
    low = high = end
    for _ in range(horizon - time):
        if not recorded.never_ends_early:
            low, high = min(low, end), max(high, end)
        low = counts * best + (0.0 if is_timed else gamma) * low
        high = counts * worst + (1.0 if is_timed else gamma) * high
    return low, high
