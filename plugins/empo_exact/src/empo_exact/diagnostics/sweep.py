"""Backward induction of other quantities, with everybody acting as a solved world has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float64, Int, Int32, Int64, Shaped

from empo_core.types import WorldSpec
from empo_exact.acyclic import levels_of
from empo_exact.chain import marginals
from empo_exact.game import Floats, Game
from empo_exact.graph import StateGraph
from empo_exact.problem import Problem
from empo_exact.solution import Solution
from empo_worlds.compilation import compiled

STATES_AT_ONCE = 1 << 10
"""States whose outcomes are in RAM at a time."""


class Behaviour(NamedTuple):
    """How everybody acts in some states at one time.

    Attributes:
        states: Numbers of the states, from which the episode goes on [state].
        pi_h: Policy of each goal's human [state goal action].
        mean: Policy of each human over all its goals, by agent index [state action].
        pi_r: The robots' policy [state robot].
        may: The actions that each human's mean policy may take [state action].
        robots_may: Joint actions that the robots' policy may take [state robot].
    """

    states: Int64[np.ndarray, " state"]
    pi_h: Float64[np.ndarray, "state goal action"]
    mean: dict[int, Float64[np.ndarray, "state action"]]
    pi_r: Float64[np.ndarray, "state robot"]
    may: dict[int, Bool[np.ndarray, "state action"]]
    robots_may: Bool[np.ndarray, "state robot"]

    def part(self, chosen: slice) -> Behaviour:
        """The same of some of the states."""
        return Behaviour(
            self.states[chosen],
            self.pi_h[chosen],
            {human: policy[chosen] for human, policy in self.mean.items()},
            self.pi_r[chosen],
            {human: may[chosen] for human, may in self.may.items()},
            self.robots_may[chosen],
        )


Behaving = Callable[[Int64[np.ndarray, " state"], int], Behaviour]
"""How everybody acts in some states, given by number, at a time."""


@dataclass(frozen=True)
class Grouping:
    """How outcomes of joint actions of all humans and of the robots are summed up.

    Attributes:
        group: The group of each [profile robot].
        size: Number of groups.
        profile_chance: Weight of each profile of the humans [state profile].
        robot_chance: Weight of each joint action of the robots [state robot].
        pursuit: A further weight of each goal, by an action [state action column].
        own_action: That action in each profile [profile].
    """

    group: Int64[np.ndarray, "profile robot"]
    size: int
    profile_chance: Float64[np.ndarray, "state profile"]
    robot_chance: Float64[np.ndarray, "state robot"]
    pursuit: Float64[np.ndarray, "state action column"]
    own_action: Int64[np.ndarray, " profile"]


class Quantity(Protocol):
    """Numbers of each state that follow from those of its successors; a column for each goal.

    Attributes:
        achieved: States that achieve each column's goal [state column].
    """

    achieved: Bool[np.ndarray, "state column"]

    def grouping(self, here: Behaviour) -> Grouping:
        """How outcomes are summed up in some states."""

    def of(
        self, here: Behaviour, outcomes: Float64[np.ndarray, "state group column"]
    ) -> Float64[np.ndarray, "state column"]:
        """The numbers of some states.

        Args:
            here: How everybody acts there.
            outcomes: Sums of expected capability by groups of joint actions.
        """


def parts_of(spec: WorldSpec, humans: Sequence[int]) -> Int64[np.ndarray, " profile"]:
    """What some humans do together in each profile of all; the first counts fastest."""
    part, stride, among = np.zeros(spec.num_human_actions, np.int64), 1, 1
    profile = np.arange(spec.num_human_actions)
    for human in spec.humans:
        actions = spec.num_actions[human]
        if human in humans:
            part += profile // among % actions * stride
            stride *= actions
        among *= actions
    return part


def joint_chances(
    humans: Sequence[int], policies: dict[int, Shaped[np.ndarray, "state action"]]
) -> Shaped[np.ndarray, "state joint"]:
    """What humans who act independently do together; the first counts fastest."""
    like = next(iter(policies.values()))
    chances: Shaped[np.ndarray, "state joint"] = np.ones_like(like[:, :1])
    for human in humans:
        chances = (policies[human][:, :, None] * chances[:, None]).reshape(len(like), -1)
    return chances


@dataclass(frozen=True)
class Layer:
    """The game where robots work, or where they have failed for good.

    Attributes:
        graph: Its graph; all layers have the same states.
        game: The same as the kernels read it.
        acts: How everybody acts.
        fails: Chance that what follows is the next layer, by code of the transition [code].
    """

    graph: StateGraph
    game: Game
    acts: Behaving
    fails: Float64[np.ndarray, " code"]


class Sweep:
    """Backward induction over the states and times of a solved world.

    Attributes:
        problem: The problem that was solved.
    """

    def __init__(self, problem: Problem, layers: Sequence[Layer]) -> None:
        """Nothing is worked out yet.

        Args:
            problem: The problem that was solved.
            layers: The layers, each of which may pass into the next; that of the start first.
        """
        self.problem = problem
        self._layers = layers

    def at(
        self, quantities: Sequence[Quantity], states: Int[np.ndarray, " place"], time: int = 0
    ) -> list[Float64[np.ndarray, "place column"]]:
        """The numbers of each quantity in some states at a time, in the first layer.

        Args:
            quantities: The quantities.
            states: Numbers of states that can be reached by then.
            time: The time; 0 in a world without a horizon.
        """
        ends = [quantity.achieved * float(self.problem.counts_presence) for quantity in quantities]
        now = [[end.copy() for end in ends] for _ in self._layers]
        for alive, when in self._times(time):
            after = now
            if self.problem.horizon is not None:
                now = [[end.copy() for end in ends] for _ in self._layers]
            for number, layer in enumerate(self._layers):
                here = layer.acts(alive, when)
                for k, quantity in enumerate(quantities):
                    later = [values[k] for values in after[number : number + 2]]
                    now[number][k][alive] = self._of(quantity, here, layer, later)
        return [values[states] for values in now[0]]

    def _times(self, first: int) -> Iterator[tuple[Int64[np.ndarray, " state"], int]]:
        """States whose successors have their numbers, and the time, from the end to the first."""
        graph, horizon = self.problem.graph, self.problem.horizon
        if horizon is None:
            for level in levels_of(graph, self.problem.world):
                yield level[graph.alive[level]].astype(np.int64), 0
            return
        for time in range(horizon - 1, first - 1, -1):
            within = graph.expanded_within(time)
            yield np.flatnonzero(graph.alive[:within]), time

    def _of(
        self, quantity: Quantity, here: Behaviour, layer: Layer, later: list[Floats]
    ) -> Float64[np.ndarray, "state column"]:
        """The numbers of some states, from those of what follows in this layer and the next."""
        terms = self._terms(quantity.achieved, layer, later)
        numbers = np.zeros((len(here.states), quantity.achieved.shape[1]))
        for first in range(0, len(here.states), STATES_AT_ONCE):
            chosen = slice(first, first + STATES_AT_ONCE)
            part = here.part(chosen)
            grouping = quantity.grouping(part)
            outcomes = np.zeros((len(part.states), grouping.size, numbers.shape[1]))
            for weight, table in terms:
                add_outcomes(
                    layer.game,
                    layer.graph.successor,
                    part.states,
                    grouping.group,
                    np.ascontiguousarray(grouping.profile_chance),
                    grouping.robot_chance,
                    grouping.pursuit,
                    grouping.own_action,
                    weight,
                    table,
                    outcomes,
                )
            numbers[chosen] = quantity.of(part, outcomes)
        if self.problem.counts_presence:
            numbers[quantity.achieved[here.states]] = 1.0
        return numbers

    def _terms(
        self, achieved: Bool[np.ndarray, "state column"], layer: Layer, later: list[Floats]
    ) -> list[tuple[Floats, Floats]]:
        """The bracket of (6), see ``rows.payoff``, as a sum of tables with weights by code.

        All are contiguous: for each other layout of an argument the kernel is compiled once more.
        """
        game, shares = layer.game, (1.0 - layer.fails, layer.fails)
        terms = [
            (share * game.discounted_h, np.ascontiguousarray(values))
            for values, share in zip(later, shares, strict=False)
        ]
        if self.problem.counts_presence:
            return terms  # Values are 1 where goals are achieved, as ``_of`` leaves them.
        elsewhere = [
            (weight, np.ascontiguousarray(np.where(achieved, 0.0, values)))
            for weight, values in terms
        ]
        return [(game.prob, achieved.astype(np.float64, order="C")), *elsewhere]


@compiled
def add_outcomes(
    game: Game,
    successor: Int32[np.ndarray, " transition"],
    states: Int64[np.ndarray, " chosen"],
    group: Int64[np.ndarray, "profile robot"],
    profile_chance: Float64[np.ndarray, "chosen profile"],
    robot_chance: Float64[np.ndarray, "chosen robot"],
    pursuit: Float64[np.ndarray, "chosen action column"],
    own_action: Int64[np.ndarray, " profile"],
    weight: Float64[np.ndarray, " code"],
    table: Float64[np.ndarray, "state column"],
    out: Float64[np.ndarray, "chosen group column"],
) -> None:
    """Add the weighted rows of all successors to the groups of the joint actions that lead there.

    ``game.successor`` is of no use here: it names rows of tables where robots may fail.
    """
    for position in range(len(states)):
        for profile in range(game.num_profiles):
            action = own_action[profile]
            for robot in range(game.num_robot_actions):
                chance = profile_chance[position, profile] * robot_chance[position, robot]
                if chance == 0.0:
                    continue
                pair = states[position] * game.num_joint
                pair += game.profile_joint[profile] + game.robot_joint[robot]
                index = group[profile, robot]
                for item in range(game.offsets[pair], game.offsets[pair + 1]):
                    share, after = chance * weight[game.code[item]], successor[item]
                    for column in range(table.shape[1]):
                        gain = pursuit[position, action, column] * table[after, column]
                        out[position, index, column] += share * gain


def achieved_in(problem: Problem) -> Bool[np.ndarray, "state goal"]:
    """The goals of ``spec.goals`` that each state achieves."""
    return problem.game.achieved[: problem.graph.num_states, problem.places] > 0


def acting(solution: Solution) -> Behaving:
    """How everybody acts by a solution."""
    problem, spec = solution.problem, solution.spec
    weight = np.array([goal.weight for goal in spec.goals])
    achieved = achieved_in(problem)

    def behaviour(states: Int64[np.ndarray, " state"], time: int) -> Behaviour:
        policies = solution.policies(time, states)
        means = marginals(solution, policies.pi_h)
        mean = {
            human: policy[:, : spec.num_actions[human]]
            for human, policy in zip(spec.humans, means, strict=True)
        }
        available = available_actions(solution, states)
        chooses = problem.prior is None and not problem.humans.has_greedy
        may = {}
        for human, policy in mean.items():
            goals = list(spec.goals_of(human))
            # A chance of a finitely rational human may underflow, and is positive all the same.
            strives = ((weight[goals] > 0) & ~achieved[states][:, goals]).any(1) & chooses
            may[human] = (policy > 0) | (strives[:, None] & available[human])
        robots_may = ~np.isnan(policies.q_r)
        return Behaviour(states, policies.pi_h, mean, policies.pi_r, may, robots_may)

    return behaviour


def available_actions(
    solution: Solution, states: Int64[np.ndarray, " state"]
) -> dict[int, Bool[np.ndarray, "state action"]]:
    """The actions that each human has in some states."""
    graph, game = solution.graph, solution.problem.game
    pairs = states[:, None] * game.num_joint + np.arange(game.num_joint)
    is_possible = graph.offsets[pairs + 1] > graph.offsets[pairs]
    actions = {}
    for h, human in enumerate(graph.spec.humans):
        chosen = game.action[h, game.profile]
        actions[human] = np.stack(
            [
                is_possible[:, chosen == action].any(1)
                for action in range(graph.spec.num_actions[human])
            ],
            axis=1,
        )
    return actions
