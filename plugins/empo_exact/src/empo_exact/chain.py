"""The Markov chain that humans and robot form together, and questions about it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Int64, Shaped
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.runs.atomic import make_folder
from empo_exact.game import Game
from empo_exact.solution import AT_ONCE, Solution
from empo_exact.storm import write_labels, write_rewards
from empo_exact.sweep import MeanPolicies
from empo_theory.inspection import LoopStep
from empo_worlds.compilation import compiled

OfStates = Callable[[Int[Tensor, "state word"]], Float[Tensor, " state"]]
Event = Callable[[Int[Tensor, "state word"]], Bool[Tensor, " state"]]


@dataclass(frozen=True)
class Chain:
    """A finite acyclic Markov chain over (time, state) nodes; node 0 is the start.

    Attributes:
        time: When the chain is at each node [node].
        state: Which state of the graph each node is [node].
        rows: The state row of each node [node word].
        offsets: Start of each node's steps [node + 1]; a node without steps is final.
        target: Node reached [step].
        prob: Probability of each step [step].
        achieved: Whether each node achieves each goal of ``spec.goals`` [node goal].
        U_r: The robot's intrinsic reward at each node; 0 at final ones [node].
        goal_names: One label per goal.
    """

    time: Int64[np.ndarray, " node"]
    state: Int64[np.ndarray, " node"]
    rows: Shaped[np.ndarray, "node word"]
    offsets: Int64[np.ndarray, " offset"]
    target: Int64[np.ndarray, " step"]
    prob: Float64[np.ndarray, " step"]
    achieved: Bool[np.ndarray, "node goal"]
    U_r: Float64[np.ndarray, " node"]
    goal_names: tuple[str, ...]

    @property
    def initial(self) -> int:
        """The node that the chain starts at."""
        return 0

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.time)

    @property
    def final(self) -> Bool[np.ndarray, " node"]:
        """Nodes at which the chain ends [node]."""
        final: Bool[np.ndarray, " node"] = np.diff(self.offsets) == 0
        return final

    def expected_total(
        self, reward: Float64[np.ndarray, " node"] | OfStates, gamma: float = 1.0
    ) -> Float64[np.ndarray, " node"]:
        """Expected discounted total of a reward per visited node, from each node on [node].

        Args:
            reward: The reward of each node, or a function of state rows.
            gamma: Discount per step.
        """
        per_node = np.asarray(self._of_nodes(reward), np.float64)
        total = np.zeros(self.num_nodes)
        for node in range(self.num_nodes - 1, -1, -1):
            steps = slice(self.offsets[node], self.offsets[node + 1])
            total[node] = per_node[node] + gamma * self.prob[steps] @ total[self.target[steps]]
        return total

    def event_probability(
        self, event: Bool[np.ndarray, " node"] | Event
    ) -> Float64[np.ndarray, " node"]:
        """Probability of ever being at a node of an event, from each node on [node].

        Args:
            event: Which nodes belong to it, or a function of state rows.
        """
        inside = np.asarray(self._of_nodes(event), np.bool_)
        chance = np.zeros(self.num_nodes)
        for node in range(self.num_nodes - 1, -1, -1):
            steps = slice(self.offsets[node], self.offsets[node + 1])
            chance[node] = 1.0 if inside[node] else self.prob[steps] @ chance[self.target[steps]]
        return chance

    def export_storm(self, directory: Path) -> list[Path]:
        """Write the chain in Storm's explicit format: chain.tra, chain.lab, chain.state.rew.

        Final nodes get a step to themselves, as Storm wants. Labels: ``init``, ``final``,
        ``time_<t>`` and ``goal_<i>`` for the goals in ``spec.goals``. The reward is -U_r, because
        Storm wants rewards that are not negative.
        """
        make_folder(directory)
        lines = ["dtmc"]
        for node in range(self.num_nodes):
            steps = range(self.offsets[node], self.offsets[node + 1])
            lines += [f"{node} {self.target[i]} {float(self.prob[i])!r}" for i in steps]
            if not steps:
                lines.append(f"{node} {node} 1")
        files = [directory / name for name in ("chain.tra", "chain.lab", "chain.state.rew")]
        files[0].write_text("\n".join(lines) + "\n")
        labels = {"init": np.arange(self.num_nodes) == 0, "final": self.final}
        labels |= {f"time_{t}": self.time == t for t in np.unique(self.time)}
        labels |= {f"goal_{i}": self.achieved[:, i] for i in range(len(self.goal_names))}
        write_labels(files[1], labels)
        write_rewards(files[2], -self.U_r)
        return files

    def _of_nodes(
        self, source: Shaped[np.ndarray, "*batch"] | OfStates | Event
    ) -> Shaped[np.ndarray, " node"]:
        if callable(source):
            values: Shaped[np.ndarray, " node"] = source(torch.from_numpy(self.rows)).numpy()
            return values
        if len(source) != self.num_nodes:
            raise ValueError(f"give one value per node ({self.num_nodes}), not {len(source)}")
        return source


def close_loop(solution: Solution) -> Chain:
    """The chain of a solved world: the robot's policy, and humans over all their goals.

    Raises:
        SolveError: if episodes start from several states, or robots may fail.
    """
    if solution.failed is not None:
        raise SolveError(
            f"robots of {solution.spec.name!r} may fail (defunct.rate), which is no part of its "
            "states, and a chain has one node per state and time; solve it with defunct.rate 0 "
            "for a chain"
        )
    if (number := len(solution.start)) > 1:
        raise SolveError(
            f"{solution.spec.name!r} starts in one of {number} states by chance, and a chain has "
            "one initial node; solve the world with start=, one row, for the chain from there"
        )
    here = np.zeros(1, np.int64)
    times, states, rewards, counts, targets, probs = [], [], [], [], [], []
    first = 0
    for time in range(
        solution.graph.num_states + 1 if solution.horizon is None else solution.horizon + 1
    ):
        times.append(np.full(len(here), time))
        states.append(here)
        source, target, prob, reward = _steps(solution, here, time)
        first += len(here)
        here, position = np.unique(target, return_inverse=True)
        targets.append(first + position)
        probs.append(prob)
        rewards.append(reward)
        counts.append(np.bincount(source, minlength=len(reward)))
        if not len(here):
            break
    state = np.concatenate(states)
    rows = solution.graph.states[state]
    return Chain(
        time=np.concatenate(times),
        state=state,
        rows=rows,
        offsets=np.concatenate([[0], np.cumsum(np.concatenate(counts))]),
        target=np.concatenate(targets),
        prob=np.concatenate(probs),
        achieved=solution.problem.world.achieved(torch.from_numpy(rows)).numpy(),
        U_r=np.concatenate(rewards),
        goal_names=tuple(goal.name for goal in solution.spec.goals),
    )


def visits_over_time(
    solution: Solution, start: Float64[np.ndarray, " start"], first_time: int = 0
) -> Iterator[tuple[int, Int64[np.ndarray, " state"], Float64[np.ndarray, " state"]]]:
    """Time, states that episodes are in then, and the chance of each; of the closed loop.

    Where robots may fail, these are episodes in which they have not.

    Args:
        solution: The solved world.
        start: The chance of each of the first states to be the one that episodes begin in.
        first_time: The time at which they do.
    """
    here = np.flatnonzero(start)
    visits = start[here, None]
    for time in itertools.count(first_time):
        if not len(here):
            return
        problem = solution.problem
        share = problem.working * problem.game.prob
        after = _advance(solution, here, time, visits, share)
        yield time, here, visits[:, 0]  # Who asks for policies there finds them remembered.
        here, visits, _ = after


def occupancy(
    solution: Solution,
) -> Iterator[tuple[int, Int64[np.ndarray, " state"], Float64[np.ndarray, " state"]]]:
    """Time, states from which episodes go on, and expected visits; without a horizon all at 0."""
    total = np.zeros(solution.graph.num_states)
    for time, here, visits in visits_over_time(solution, solution.start):
        alive = solution.alive(here, time)
        if solution.horizon is None:
            total[here[alive]] += visits[alive]
        elif alive.any():
            yield time, here[alive], visits[alive]
    visited = np.flatnonzero(total)
    if len(visited):
        yield 0, visited, total[visited]


class SolvedLoop:
    """The closed loop of a solved world; see ``empo_theory.inspection.ClosedLoop``."""

    def __init__(self, solution: Solution) -> None:
        self._solution = solution

    def follow(
        self,
        states: Int64[np.ndarray, " state"],
        time: int,
        mass: Float64[np.ndarray, "state process"],
    ) -> LoopStep:
        """What follows some states at a time, with the mass that is there."""
        solution, alive = self._solution, self._solution.alive(states, time)
        v_e = np.zeros((len(states), len(solution.spec.goals)))
        if alive.any():
            v_e[alive] = solution.goal_values_in(states[alive], time)
        if solution.problem.counts_presence:
            achieved = solution.problem.game.achieved[states[~alive]]
            v_e[~alive] = achieved[:, solution.problem.places]
        discounted = solution.problem.game.discounted_r
        reached, there, accrued = _advance(solution, states, time, mass, discounted)
        return LoopStep(alive, v_e, accrued, reached, there)


def _advance(
    solution: Solution,
    here: Int64[np.ndarray, " state"],
    time: int,
    mass: Float64[np.ndarray, "state process"],
    share: Float64[np.ndarray, " code"],
) -> tuple[
    Int64[np.ndarray, " reached"],
    Float64[np.ndarray, "reached process"],
    Float64[np.ndarray, " state"],
]:
    """States that follow some others, the mass there, and the expected weight of U_r until then.

    Args:
        solution: The solved world.
        here: Numbers of states.
        time: The time.
        mass: Mass of some processes in them.
        share: Share of the mass that goes along a transition, if its joint action is taken.
    """
    graph = solution.graph
    game = solution.problem.game._replace(successor=graph.successor)
    there = np.zeros((graph.num_states, mass.shape[1]))
    accrued = np.zeros(len(here))
    alive = np.flatnonzero(solution.alive(here, time))
    if not len(alive):
        return alive, there[alive], accrued
    means = solution.mean_policies(time, here[alive])
    for first in range(0, len(alive), AT_ONCE):
        block = alive[first : first + AT_ONCE]
        chance = _joint_actions(game, means, slice(first, first + AT_ONCE))
        weight = np.zeros(len(block))
        spread(game, here[block], chance, mass[block], share, there, weight)
        accrued[block] = weight
    reached = np.flatnonzero((there != 0).any(1))
    return reached, there[reached], accrued


@compiled
def spread(
    game: Game,
    here: Int64[np.ndarray, " state"],
    chance: Float64[np.ndarray, "state joint"],
    mass: Float64[np.ndarray, "state process"],
    share: Float64[np.ndarray, " code"],
    there: Float64[np.ndarray, "row process"],
    accrued: Float64[np.ndarray, " state"],
) -> None:
    """Add the mass of some states to those that follow, by the chance of each joint action."""
    for i in range(len(here)):
        for joint in range(game.num_joint):
            likely = chance[i, joint]
            if likely == 0.0:
                continue
            pair = here[i] * game.num_joint + joint
            for item in range(game.offsets[pair], game.offsets[pair + 1]):
                code, state = game.code[item], game.successor[item]
                accrued[i] += likely * game.accrued[code]
                part = likely * share[code]
                for process in range(mass.shape[1]):
                    there[state, process] += part * mass[i, process]


def _joint_actions(
    game: Game, means: MeanPolicies, block: slice
) -> Float64[np.ndarray, "state joint"]:
    """Chance of each joint action in some of the states from which the episode goes on."""
    chance: Float64[np.ndarray, "state joint"] = means.pi_r[block][:, game.robot]
    for human, chosen in enumerate(means.humans):
        chance *= chosen[block][:, game.action[human, game.profile]]
    return chance


def _steps(
    solution: Solution, here: Int64[np.ndarray, " state"], time: int
) -> tuple[
    Int64[np.ndarray, " step"],
    Int64[np.ndarray, " step"],
    Float64[np.ndarray, " step"],
    Float64[np.ndarray, " state"],
]:
    """Steps of the chain from some states: source position, target state, probability, U_r."""
    graph = solution.graph
    joint = solution.spec.num_joint_actions
    reward = np.zeros(len(here))
    alive = np.flatnonzero(solution.alive(here, time))
    if not len(alive):
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, np.zeros(0), reward
    means = solution.mean_policies(time, here[alive])
    weight, reward[alive] = _joint_actions(solution.problem.game, means, slice(None)), means.u_r
    pairs = (here[alive, None] * joint + np.arange(joint)).ravel()
    begin, end = graph.offsets[pairs].astype(np.int64), graph.offsets[pairs + 1].astype(np.int64)
    length = end - begin
    item = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(length.sum())
    prob = np.repeat(weight.ravel(), length) * graph.prob[graph.code[item]]
    source = alive[np.repeat(np.arange(len(pairs)) // joint, length)]
    possible = prob > 0
    key = source[possible] * graph.num_states + graph.successor[item[possible]]
    distinct, position = np.unique(key, return_inverse=True)
    merged = np.bincount(position, weights=prob[possible], minlength=len(distinct)).astype(
        np.float64
    )
    at, target = np.divmod(distinct.astype(np.int64), graph.num_states)
    return at, target, merged, reward


def marginals(
    solution: Solution, pi_h: Float64[np.ndarray, "state goal action"]
) -> list[Float64[np.ndarray, "state action"]]:
    """Each human's policy averaged over its goals by weight [state action]."""
    spec, policies = solution.spec, []
    for human in spec.humans:
        goals = list(spec.goals_of(human))
        weight = np.array([spec.goals[goal].weight for goal in goals], np.float64)
        mixed = np.einsum("g,sga->sa", weight, pi_h[:, goals])
        policies.append(mixed / mixed.sum(-1, keepdims=True))
    return policies
