"""The bounds of a certificate by the reference solver, one pair at a time.

What was expanded is a world of its own: a state is a pair, and a step leads to a pair of the next
time. The recorded policies act there, and where nothing was expanded values are given. For these
policies all equations are monotone in them (see ``induction``), so the reference finds bounds of
everything from their worst and their best. It shares nothing with the compiled induction, and
nothing is rounded outwards: results agree with certified ones to many digits, not to all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from empo_bounds.assumptions import FrontierBounds, frontier_bounds
from empo_bounds.certificate import symbols_of
from empo_bounds.induction import PairBounds
from empo_bounds.question import Question
from empo_bounds.recorded import Contradiction, Recorded
from empo_bounds.round_off import Bounds
from empo_core.types import Successors
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference, State, Values
from empo_worlds.base import BaseWorld
from empo_worlds.contract import successors_of
from empo_worlds.samples import joint_actions, part_index

ValuesByPair = dict[tuple[State, int | None], Values]
"""Values of pairs, as the reference takes what it need not compute."""
PAIRS_AT_ONCE = 32
"""Pairs between two reports."""


@dataclass(frozen=True)
class _Moment:
    """What may follow a state under its policies, one item for each joint action and outcome.

    Attributes:
        offsets: Start of each joint action's items; what nobody takes has none [joint + 1].
        landing: Where each item leads, and how long that takes.
        prob: Its probability under its joint action.
        chance: Its probability with everybody acting by the average over goals.
    """

    offsets: Tensor
    landing: list[int]
    prob: Tensor
    chance: Float64[np.ndarray, " item"]


class ExpandedWorld(BaseWorld):
    """The pairs of a certificate as states; those that were not expanded are terminal."""

    def __init__(self, recorded: Recorded) -> None:
        question, arrays = recorded.question, recorded.arrays
        self.spec = replace(
            question.spec, state_words=1, state_dtype=torch.int64, horizon=None, features=None
        )
        self._recorded, self._question = recorded, question
        self._states = torch.from_numpy(arrays["states"].copy())
        state = torch.from_numpy(arrays["landing_state"][arrays["pair_landing"]]).long()
        expanded = torch.from_numpy(recorded.expanded)[:, None, None]
        self._available = question.world.available(self._states)[state] & expanded
        self._achieved = question.world.achieved(self._states)[state]
        self._actions = joint_actions(question.spec)
        self._time = recorded.time_of.tolist()
        met = zip(self._time, arrays["pair_landing"].tolist(), strict=True)
        self._pair = {arrival: pair for pair, arrival in enumerate(met)}
        rows = [tuple(row) for row in arrays["states"].tolist()]
        landings = zip(
            arrays["landing_state"].tolist(), arrays["landing_duration"].tolist(), strict=True
        )
        self._landing = {
            (rows[state], took): number for number, (state, took) in enumerate(landings)
        }
        self._moments: dict[int, _Moment] = {}

    def initial_state(self) -> Int[Tensor, " word"]:
        """The only pair of the first time."""
        return torch.zeros(1, dtype=torch.int64)

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """As in the world where a pair was expanded, and nothing elsewhere."""
        return self._available[states[:, 0]]

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """As in the world."""
        return self._achieved[states[:, 0]]

    def transitions(
        self, states: Int[Tensor, "state word"], actions: Int[Tensor, "state agent"] | None = None
    ) -> Successors:
        """Of one pair that was expanded, under all joint actions that somebody takes.

        Raises:
            Contradiction: if a successor is missing.
        """
        assert actions is None
        (pair,) = states[:, 0].tolist()
        moment, following = self._moment(pair), torch.tensor(self._following(pair))
        duration = self._recorded.arrays["landing_duration"][moment.landing]
        return Successors(
            moment.offsets, following.view(-1, 1), moment.prob, torch.from_numpy(duration)
        )

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """Its number."""
        return f"pair {int(state)}"

    @property
    def num_transitions(self) -> int:
        """Transitions of all moments that were asked about."""
        return sum(len(moment.landing) for moment in self._moments.values())

    def outside(self) -> float:
        """Occupancy of the frontier, all times together, with humans who act by their average."""
        expanded, durations = self._recorded.expanded, self._recorded.arrays["landing_duration"]
        mass = np.zeros(len(expanded))
        mass[0] = 1.0
        for pair in np.flatnonzero(expanded).tolist():  # Which are in order of time.
            moment = self._moment(pair)
            arriving = self._question.occupancy_discount ** durations[moment.landing]
            np.add.at(mass, self._following(pair), mass[pair] * moment.chance * arriving)
        return float(mass[self._recorded.goes_on & ~expanded].sum())

    def _following(self, pair: int) -> list[int]:
        """The pair of the next time that each item leads to."""
        time = self._time[pair] + 1
        try:
            return [self._pair[time, landing] for landing in self._moment(pair).landing]
        except KeyError:
            raise Contradiction(f"a successor of pair {pair} is missing at time {time}") from None

    def _moment(self, pair: int) -> _Moment:
        number = int(self._recorded.arrays["pair_moment"][pair])
        if number not in self._moments:
            self._moments[number] = self._asked(number)
        return self._moments[number]

    def _asked(self, number: int) -> _Moment:
        """A moment, by its state and policies, worked out from the world."""
        arrays, question, spec = self._recorded.arrays, self._question, self._question.spec
        state, robot, *humans = arrays["moments"][number].tolist()
        actions = self._actions.numpy()
        of_robots = arrays["robot_policy"][robot][part_index(spec, spec.robots, actions)]
        means, may, may_on_average = [], [], []
        for position, weights in enumerate(question.weights):
            policies = arrays[f"human_policy_{position}"][humans[position]]
            mine = actions[:, spec.humans[position]]
            means.append((weights @ policies / weights.sum())[mine])
            may.append((policies > 0).any(0)[mine])
            may_on_average.append((policies[weights > 0] > 0).any(0)[mine])
        possible = np.zeros(len(actions), np.bool_)
        for position, acts in enumerate(may):
            others = may_on_average[:position] + may_on_average[position + 1 :]
            possible |= np.all([of_robots > 0, acts, *others], axis=0)
        (joint,) = possible.nonzero()
        rows = self._states[state].expand(len(joint), -1)
        successors = successors_of(question.world, rows, self._actions[joint])
        counts = np.zeros(len(actions), np.int64)
        counts[joint] = successors.offsets.diff().numpy()
        prob = successors.prob.double()
        chance = np.prod([of_robots, *means], axis=0).repeat(counts) * prob.numpy()
        offsets = torch.from_numpy(np.concatenate([[0], counts.cumsum()]))
        return _Moment(offsets, self._landings(successors), prob, chance)

    def _landings(self, successors: Successors) -> list[int]:
        """The landing of each transition.

        Raises:
            Contradiction: if there is none.
        """
        took = [1.0] * len(successors.prob)
        if successors.duration is not None:
            took = successors.duration.double().tolist()
        keys = list(zip(map(tuple, successors.states.tolist()), took, strict=True))
        missing = [key for key in keys if key not in self._landing]
        if missing:
            row, duration = missing[0]
            raise Contradiction(f"a successor {row}, after {duration:g}, is none of its landings")
        return [self._landing[key] for key in keys]


@dataclass(frozen=True)
class RecordedPolicy:
    """Robots or humans who act in pairs as they are recorded."""

    recorded: Callable[[np.ndarray], np.ndarray]

    def policy(
        self, states: Int[Tensor, "state 1"], steps_left: Int[Tensor, " state"]
    ) -> Float64[Tensor, "state ..."]:
        """Probabilities of joint robot actions, or of actions of each goal's human."""
        return torch.from_numpy(self.recorded(states[:, 0].numpy()))


def reference_bounds(
    recorded: Recorded, world: ExpandedWorld, report: Callable[[int, int], object]
) -> Iterator[tuple[int, PairBounds]]:
    """Times and the bounds of their pairs, from the last time to the first.

    Args:
        recorded: Pairs and policies that make sense (``Recorded.require_sense``).
        world: What was expanded of it.
        report: Is told of how many pairs are done, and of how many there are.

    Raises:
        Contradiction: if a successor is missing, or numbers are too large to be worked with.
    """
    question, assumed = recorded.question, recorded.assumed
    theory = CompleteTheory.model_validate(symbols_of(question))
    humans, robots = RecordedPolicy(recorded.human_policy), RecordedPolicy(recorded.robot_policy)
    frontier = frontier_bounds(question, assumed, recorded.times, is_timed=recorded.is_timed)
    worst, best = ValuesByPair(), ValuesByPair()
    for time in range(recorded.times - 1, -1, -1):
        pairs = recorded.pairs(time)
        of_worst, of_best = (
            Reference(
                world,
                theory,
                humans,
                robots=robots,
                boundary=boundary,
                min_power=min_power,
                counts=question.counts,
            )
            for boundary, min_power in ((worst, assumed.min_power or 0.0), (best, 0.0))
        )
        worst, best = {}, {}
        for pair in pairs:
            if pair % PAIRS_AT_ONCE == 0:
                report(
                    len(recorded.expanded) - pairs.stop + pair - pairs.start, len(recorded.expanded)
                )
            key = (pair,), None
            try:
                if recorded.expanded[pair]:
                    worst[key], best[key] = of_worst.at(*key), of_best.at(*key)
                else:
                    worst[key], best[key] = _unexpanded(recorded, frontier, pair, time)
            except OverflowError:
                raise Contradiction(f"values of pair {pair} are too large for numbers") from None
        yield time, _bounds(question, list(worst.values()), list(best.values()))
    report(len(recorded.expanded), len(recorded.expanded))


def vacuous_v_r(recorded: Recorded) -> tuple[float, float]:
    """Bounds of V_r at the start before anything is expanded."""
    frontier = frontier_bounds(recorded.question, recorded.assumed, 1, is_timed=recorded.is_timed)
    worst, best = _unexpanded(recorded, frontier, 0, 0)
    return worst.v_r, best.v_r


def _unexpanded(
    recorded: Recorded, frontier: FrontierBounds, pair: int, time: int
) -> tuple[Values, Values]:
    """The worst and the best values of a pair that was not expanded."""
    question = recorded.question
    chance, v_r = [0.0, 0.0], [question.theory.terminal_value] * 2
    if recorded.goes_on[pair]:
        chance = [float(side[time]) for side in frontier.v_e]
        v_r = [-float(side[time]) for side in reversed(frontier.loss)]
    worst, best = (
        Values({}, {}, dict.fromkeys(range(len(question.order)), v_e),
               dict.fromkeys(question.spec.humans, x_h), u_r, {}, {}, v)
        for v_e, x_h, u_r, v in zip(chance, (0.0, math.inf), (-math.inf, 0.0), v_r, strict=True)
    )  # fmt: skip
    return worst, best


def _bounds(question: Question, worst: list[Values], best: list[Values]) -> PairBounds:
    """Bounds of pairs from their worst and their best values."""
    order = question.order.tolist()
    sides = (worst, best)
    v_e = (np.array([[values.v_e[goal] for goal in order] for values in side]) for side in sides)
    x_h = (np.array([list(values.x_h.values()) for values in side]) for side in sides)
    high_lack, low_lack = (np.array([-values.u_r for values in side]) for side in sides)
    high, low = (np.array([-values.v_r for values in side]) for side in sides)
    # A chance that is too small for a number, times infinity, is no number.
    high = np.where(np.isnan(high), np.inf, high)
    return PairBounds(Bounds(*v_e), Bounds(*x_h), Bounds(low_lack, high_lack), Bounds(low, high))
