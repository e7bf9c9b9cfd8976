"""Backward induction of other quantities, with everybody acting as a solved world has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64, Shaped

from empo_exact.acyclic import levels_of
from empo_exact.chain import marginals
from empo_exact.game import Floats, Game
from empo_exact.graph import StateGraph
from empo_exact.problem import Problem
from empo_exact.solution import Solution
from empo_worlds.compilation import compiled

NUMBERS_AT_ONCE = 1 << 22
"""Numbers in one array of outcomes."""


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

ROBOTS = -1
"""Stands for the robots among agents."""


@dataclass(frozen=True)
class Outcomes:
    """Expected values after actions of some agents.

    Attributes:
        values: An axis for each agent, between those of states and of columns.
        agents: The agents by axis: humans by agent index, and ``ROBOTS``.
    """

    values: Float64[np.ndarray, "state *agent column"]
    agents: tuple[int, ...]

    def expect(self, agent: int, policy: Shaped[np.ndarray, "state action *column"]) -> Outcomes:
        """Expected values over the action of one agent; its policy may depend on the column."""
        axis = self.agents.index(agent)
        actions = np.moveaxis(self.values, axis + 1, 1)
        total = np.zeros_like(actions[:, 0])
        for action in range(actions.shape[1]):
            chance = policy[:, action]
            shape = (len(chance), *[1] * (len(self.agents) - 1), *(chance.shape[1:] or (1,)))
            total += chance.reshape(shape) * actions[:, action]
        return Outcomes(total, self.agents[:axis] + self.agents[axis + 1 :])

    def together(self) -> Float64[np.ndarray, "state joint column"]:
        """The values by joint action of all agents that are left, the last one fastest."""
        return self.values.reshape(len(self.values), -1, self.values.shape[-1])


def joint_chances(
    agents: Sequence[int], policies: dict[int, Shaped[np.ndarray, "state action"]]
) -> Shaped[np.ndarray, "state joint"]:
    """What agents that act independently do together, in the order of ``Outcomes.together``."""
    like = next(iter(policies.values()))
    chances: Shaped[np.ndarray, "state joint"] = np.ones_like(like[:, :1])
    for agent in agents:
        chances = (chances[:, :, None] * policies[agent][:, None]).reshape(len(like), -1)
    return chances


class Quantity(Protocol):
    """Numbers of each state that follow from those of its successors; a column for each goal.

    Attributes:
        achieved: States that achieve each column's goal [state column].
    """

    achieved: Bool[np.ndarray, "state column"]

    def of(self, here: Behaviour, outcomes: Outcomes) -> Float64[np.ndarray, "state column"]:
        """The numbers of some states.

        Args:
            here: How everybody acts there.
            outcomes: Expected capability after each action of all humans and of the robots.
        """


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

    def at_start(self, quantities: Sequence[Quantity]) -> list[Float64[np.ndarray, "start column"]]:
        """The numbers of each quantity in the initial states, in the first layer."""
        ends = [quantity.achieved * float(self.problem.counts_presence) for quantity in quantities]
        now = [[end.copy() for end in ends] for _ in self._layers]
        for states, time in self._times():
            after = now
            if self.problem.horizon is not None:
                now = [[end.copy() for end in ends] for _ in self._layers]
            for number, layer in enumerate(self._layers):
                here = layer.acts(states, time)
                for k, quantity in enumerate(quantities):
                    later = [values[k] for values in after[number : number + 2]]
                    now[number][k][states] = self._of(quantity, here, layer, later)
        starts = len(self.problem.start)
        return [values[:starts] for values in now[0]]

    def _times(self) -> Iterator[tuple[Int64[np.ndarray, " state"], int]]:
        """States whose successors have their numbers, and the time, from the end on."""
        graph, horizon = self.problem.graph, self.problem.horizon
        if horizon is None:
            for level in levels_of(graph, self.problem.world):
                yield level[graph.alive[level]].astype(np.int64), 0
            return
        for time in range(horizon - 1, -1, -1):
            within = graph.expanded_within(time)
            yield np.flatnonzero(graph.alive[:within]), time

    def _of(
        self, quantity: Quantity, here: Behaviour, layer: Layer, later: list[Floats]
    ) -> Float64[np.ndarray, "state column"]:
        """The numbers of some states, from those of what follows in this layer and the next."""
        columns = quantity.achieved.shape[1]
        size = max(1, NUMBERS_AT_ONCE // max(1, layer.game.num_joint * columns))
        numbers = np.zeros((len(here.states), columns))
        for first in range(0, len(here.states), size):
            chosen = slice(first, first + size)
            part = here.part(chosen)
            outcomes = self._outcomes(part.states, quantity.achieved, layer, later)
            numbers[chosen] = quantity.of(part, outcomes)
        if self.problem.counts_presence:
            numbers[quantity.achieved[here.states]] = 1.0
        return numbers

    def _outcomes(
        self,
        states: Int64[np.ndarray, " chosen"],
        achieved: Bool[np.ndarray, "state column"],
        layer: Layer,
        later: list[Floats],
    ) -> Outcomes:
        game, spec = layer.game, layer.graph.spec
        out = np.zeros((len(states), game.num_robot_actions, game.num_profiles, achieved.shape[1]))
        for values, share in zip(later, (1.0 - layer.fails, layer.fails), strict=False):
            add_expected(
                game,
                layer.graph.successor,
                states,
                achieved,
                values,
                share * game.arrived,
                share * game.discounted_h,
                out,
            )
        sizes = [spec.num_actions[human] for human in reversed(spec.humans)]
        agents = (ROBOTS, *reversed(spec.humans))
        return Outcomes(out.reshape(*out.shape[:2], *sizes, out.shape[-1]), agents)


@compiled
def add_expected(
    game: Game,
    successor: Int32[np.ndarray, " transition"],
    states: Int64[np.ndarray, " chosen"],
    achieved: Bool[np.ndarray, "state column"],
    values: Float64[np.ndarray, "state column"],
    entered: Float64[np.ndarray, " code"],
    discounted: Float64[np.ndarray, " code"],
    out: Float64[np.ndarray, "chosen robot profile column"],
) -> None:
    """Add E over s' of the bracket in (6) for each joint action; see ``rows.payoff``.

    ``game.successor`` is of no use here: it names rows of tables where robots may fail.
    """
    for position in range(len(states)):
        for robot in range(game.num_robot_actions):
            for profile in range(game.num_profiles):
                pair = states[position] * game.num_joint
                pair += game.profile_joint[profile] + game.robot_joint[robot]
                for item in range(game.offsets[pair], game.offsets[pair + 1]):
                    code, after = game.code[item], successor[item]
                    for column in range(values.shape[1]):
                        out[position, robot, profile, column] += (
                            entered[code]
                            if achieved[after, column]
                            else discounted[code] * values[after, column]
                        )


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
