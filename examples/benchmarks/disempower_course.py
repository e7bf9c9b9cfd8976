"""One layout with its humans: exact occupancies, power and baselines of all its robots."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import disempower_kernels as kernels
import numpy as np
from disempower_induction import Humans, Induction, exact_params
from disempower_settings import Settings
from esr_scores import paired_difference

from empo_benchmarks.disempower.params import DisempowerParams, Layout
from empo_benchmarks.disempower.world import DisempowerWorld, load_world
from empo_exact.graph import StateGraph, build_graph
from empo_exact.result import ExactResult
from empo_exact.solve import solve

HUMANS = 2
IDLE, RANDOM = "idle", "random"
REFERENCES = (IDLE, RANDOM)
PROXIES = ("ave", "mc_emp", "discrete", "entropic", "joint")
"""Exact versions of the publication's robots."""
NOTHING = -1e-10
"""V_r where the episode is over."""
ROOM = 4_000_000_000
"""Bytes of policies that are kept at a time."""
EQUAL = 1e-9
"""Differences below this are rounding."""


@dataclass(frozen=True)
class Score:
    """What a robot does to user and bystander; pairs of numbers are about them.

    Attributes:
        bits: I_h at the start, humans over all their goals.
        empowerment: Mean over steps of the exact mc_emp where humans pursue their true goals.
        steps: Expected steps on the true goal.
        arrives: Chance to be on it at some time.
        v_r: V_r at the start, by the theory of the primary robot or the robot's own.
        cpu_seconds: What it took to make the robot: without graph and Phase 1, which robots share;
            where episodes are sampled, with these and all robots of the same goal cell.
        episodes: Empowerment of user and bystander in each of some sampled episodes; None where
            occupancies are exact.
    """

    bits: tuple[float, float]
    empowerment: tuple[float, float]
    steps: tuple[float, float]
    arrives: tuple[float, float]
    v_r: float
    cpu_seconds: float
    episodes: tuple[list[float], list[float]] | None = None

    def changes(self, other: Score, resamples: int) -> tuple[int, int]:
        """Signs of the change in empowerment from another robot; 0 where it may be chance.

        Args:
            other: The other robot's score.
            resamples: Of the paired bootstrap of sampled episodes.
        """
        if self.episodes is None or other.episodes is None:
            difference = np.subtract(self.empowerment, other.empowerment)
            user, bystander = np.sign(np.where(np.abs(difference) < EQUAL, 0, difference))
            return int(user), int(bystander)
        signs = []
        for ours, others in zip(self.episodes, other.episodes, strict=True):
            estimate = paired_difference(np.array(ours), np.array(others), resamples, 0)
            signs.append(int(estimate.low > 0) - int(estimate.high < 0))
        return signs[0], signs[1]

    def disempowers(self, other: Score, resamples: int) -> bool:
        """The user gains empowerment and the bystander loses some, compared with another robot."""
        return self.changes(other, resamples) == (1, -1)


def solved(
    world: DisempowerWorld, settings: Settings, humans: str, robot: dict[str, Any]
) -> ExactResult:
    """The exact solution for a robot and the humans whom it expects."""
    return solve(world, exact_params(robot, settings.humans[humans]))


class Stepping(Protocol):
    """What is worked out from the last step back."""

    def step(self, moment: int, humans: Humans) -> None:
        """Go a step back, to a time at which both humans are like this."""


class Course:
    """A layout whose states are few enough for exact occupancies.

    Attributes:
        settings: The settings.
        world: The world.
        humans: Name of the humans in the settings.
        graph: All states.
        successor: Where each joint action leads [state joint].
        alike: The first of the robot's actions that leads where an action does [state robot].
    """

    def __init__(self, settings: Settings, layout: str | Layout, steps: int, humans: str) -> None:
        self.settings, self.humans = settings, humans
        params = {"layout": layout, "max_steps": steps}
        self.world = load_world(DisempowerParams.model_validate(params))
        self.graph: StateGraph = build_graph(self.world, None)
        joint = self.world.spec.num_joint_actions
        self.successor = self.graph.successor.reshape(-1, joint)
        self.alike = np.empty((len(self.successor), self.robots), np.int8)
        kernels.find_alike(self.successor, self.alike)
        self.steps = steps
        self._human_policies: dict[int, np.ndarray] = {}

    @property
    def robots(self) -> int:
        """Number of the assistant's actions."""
        return self.world.spec.num_robot_actions

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.world.board.cells

    @cached_property
    def where(self) -> np.ndarray:
        """Cells of user and bystander [human state]."""
        return np.ascontiguousarray(self.graph.states[:, :HUMANS].T.astype(np.int32))

    @cached_property
    def is_achieved(self) -> np.ndarray:
        """Whether each human is in each cell, the user's first [state goal]."""
        return np.concatenate([np.eye(self.cells, dtype=bool)[where] for where in self.where], 1)

    @cached_property
    def true_goals(self) -> list[int]:
        """The cell that user and bystander really want to be in."""
        board = self.world.board
        goals = [board.cell(goal) for goal in board.layout.goal_pos]
        return [goals[0], goals[-1]]

    @cached_property
    def walks(self) -> list[list[np.ndarray]]:
        """Chances to be in each cell after 0, 1, ... random steps [human][steps][state cell]."""
        steps = self.settings.proxies.steps
        return [list(walk(self.successor, self.where[h], self.cells, steps)) for h in range(HUMANS)]

    @cached_property
    def empowerment(self) -> np.ndarray:
        """Information in bits between the first of some random steps and the cell [human state]."""
        return np.stack(
            [information(self.successor, h, *self.walks[h][-2:]) for h in range(HUMANS)]
        )

    def rewards(self, proxy: str) -> np.ndarray:
        """What a state is worth to one of the publication's robots, in expectation [state]."""
        chance, given = self.walks[0][-1], self.settings.proxies
        if proxy == "ave":
            places = np.array(self.world.board.places, np.float64)
            return (chance @ places**2 - (chance @ places) ** 2).sum(1)
        if proxy == "discrete":
            return (1 - (1 - chance) ** given.rollouts).sum(1)
        if proxy == "entropic":
            return -(chance * np.log2(np.where(chance > 0, chance, 1))).sum(1)
        user, bystander = self.empowerment
        return user if proxy == "mc_emp" else user + bystander

    def human_policies(self, moment: int, human: int) -> np.ndarray:
        """Policy of a human who pursues its true goal [state action]."""
        policy: np.ndarray = self._human_policies[moment][human]
        return policy

    def play(self, robot: Iterable[np.ndarray]) -> dict[str, tuple[float, float]]:
        """Empowerment, steps on true goals and arrivals, by exact occupancies."""
        states = self.graph.num_states
        visits = np.zeros((1 + HUMANS, states))
        visits[:, 0] = 1
        on_goal = np.stack([self.where[h] == goal for h, goal in enumerate(self.true_goals)])
        emp, steps = np.zeros(HUMANS), np.zeros(HUMANS)
        for moment, policy in enumerate(robot):
            after = np.zeros_like(visits)
            humans = [self.human_policies(moment, human) for human in range(HUMANS)]
            kernels.spread(self.successor, *humans, self.merged(policy), visits, after)
            emp += self.empowerment @ after[0]
            steps += on_goal @ after[0]
            for human in range(HUMANS):
                after[1 + human, on_goal[human]] = 0
            visits = after
        arrives = 1 - visits[1:].sum(1)
        return {
            "empowerment": pair(emp / self.steps),
            "steps": pair(steps),
            "arrives": pair(arrives),
        }

    def merged(self, policy: np.ndarray) -> np.ndarray:
        """A robot's policy in which one of several actions that lead to the same stands for all."""
        merged = np.zeros_like(policy)
        kernels.merge(policy, self.alike, merged)
        return merged

    def scores(self, names: Sequence[str]) -> Iterator[tuple[str, Score]]:
        """Scores of robots by name: those that are compared first, as many at a time as fit."""
        primary, solved_robots = self.settings.primary, self.settings.solved_robots()
        first = [name for name in (primary.rival, primary.proposal) if name in names]
        others = [name for name in names if name in solved_robots and name not in first]
        size = self.steps * self.graph.num_states * self.robots * 8
        at_once, to_solve = max(1, ROOM // size), [*first, *others]
        some = [name for name in names if name not in solved_robots]
        while some or to_solve:
            some, to_solve = [*some, *to_solve[:at_once]], to_solve[at_once:]
            robots = {name: self._robot(name) for name in some}
            self.work_out(list(robots.values()))
            for name, robot in robots.items():
                yield name, robot.score()
            some = []

    def _robot(self, name: str) -> FixedRobot | SolvedRobot:
        solved_robots = self.settings.solved_robots()
        if name in solved_robots:
            return SolvedRobot(self, solved_robots[name])
        return FixedRobot(self, name)

    def work_out(self, robots: Sequence[Stepping]) -> None:
        """All policies of robots, from the last step back, and of the humans beside them."""
        params = exact_params({"theory": self.settings.theory}, self.settings.humans[self.humans])
        phase1 = Induction(self.world, self.graph, params, has_robot=False)
        for moment in reversed(range(self.steps)):
            policies, _ = phase1.step(moment)
            humans = Humans.of(policies, phase1.places, self.true_goals)
            self._human_policies[moment] = humans.truly
            for robot in robots:
                robot.step(moment, humans)


class Power:
    """V_h^e, X_h and V_r of a given robot, worked out from the last step back.

    Attributes:
        bits: I_h at the start, by the steps so far.
        v_r: V_r at the start.
    """

    def __init__(self, course: Course) -> None:
        self._course = course
        states = course.graph.num_states
        self._later = np.zeros((states, HUMANS * course.cells))
        self._value = np.full(states, NOTHING)
        self.bits, self.v_r = (float("nan"),) * 2, NOTHING

    def step(self, humans: Humans, robot: np.ndarray) -> None:
        """Go a step back.

        Args:
            humans: Both humans at that time.
            robot: The robot's policy [state robot].
        """
        course, theory, count = self._course, self._course.settings.theory, len(robot)
        gamma_h, gamma_r, zeta, xi, eta = (
            float(theory[key]) for key in ("gamma_h", "gamma_r", "zeta", "xi", "eta")
        )
        robot = course.merged(robot)
        now, value = np.zeros_like(self._later), np.zeros_like(self._value)
        payoff = np.where(course.is_achieved, 1, gamma_h * self._later)
        scratch = np.zeros((kernels.HUMAN_ACTIONS, payoff.shape[1]))
        kernels.attainable(
            course.successor, humans.of_goals, humans.mean, robot, payoff, scratch, now
        )
        kernels.expected_next(course.successor, humans.mean, robot, self._value, value)
        x = (now[:count].reshape(count, HUMANS, -1) ** zeta).sum(2)
        with np.errstate(divide="ignore"):
            value[:count] = -((x**-xi).sum(1) ** eta) + gamma_r * value[:count]
        self._later, self._value = now, value
        self.bits, self.v_r = pair(np.log2(x[0])), float(value[0])


class SolvedRobot:
    """A robot that is solved for: its policies, from the last step back, and its power.

    Args:
        course: The layout.
        robot: Params of ``exact``. Preset fair counts power otherwise: humans whom it expects
            discount their way to a goal in another way, and its power is worked out as that of
            the others.
    """

    def __init__(self, course: Course, robot: dict[str, Any]) -> None:
        self._course = course
        params = exact_params(robot, course.settings.humans[course.humans])
        self._induction = Induction(course.world, course.graph, params)
        self._power = Power(course) if robot.get("preset") == "fair" else None
        self._policies: dict[int, np.ndarray] = {}
        self._bits, self._v_r = (float("nan"),) * 2, NOTHING

    def step(self, moment: int, humans: Humans) -> None:
        """Go a step back, to a time at which both humans are like this."""
        same = humans.policies if self._power is None else None
        policies, values = self._induction.step(moment, same)
        self._policies[moment] = policies.pi_r
        self._bits, self._v_r = pair(np.log2(policies.x_h[0])), float(values.v_r[0])
        if self._power is not None:
            self._power.step(humans, policies.pi_r)
            self._bits, self._v_r = self._power.bits, self._power.v_r

    def policy(self, moment: int) -> np.ndarray:
        """The policy at a time [state robot]."""
        return self._policies[moment]

    def score(self) -> Score:
        """The score, once all steps are done."""
        played = self._course.play(map(self.policy, range(self._course.steps)))
        seconds = self._induction.seconds
        return Score(bits=self._bits, v_r=self._v_r, cpu_seconds=seconds, **played)


class FixedRobot:
    """A reference or a proxy: its actions, from the last step back, and its power.

    Args:
        course: The layout.
        name: Name of the reference or of the proxy.
    """

    def __init__(self, course: Course, name: str) -> None:
        self._course, self._name, self._seconds = course, name, 0.0
        self._power = Power(course)
        self._choices: dict[int, np.ndarray] = {}
        self._value = np.zeros(course.graph.num_states)
        self._reward = course.rewards(name) if name in PROXIES else self._value

    def step(self, moment: int, humans: Humans) -> None:
        """Go a step back, to a time at which both humans are like this."""
        course = self._course
        choices = np.zeros(len(humans.of_goals), np.int64)
        if self._name in PROXIES:
            begin = time.process_time()
            before = np.zeros_like(self._value)
            kernels.best_actions(
                course.successor, course.alike, *humans.truly, self._reward, self._value,
                course.settings.proxies.discount, np.zeros(course.robots), choices, before,
            )  # fmt: skip
            self._value = before
            self._seconds += time.process_time() - begin
        self._choices[moment] = choices
        self._power.step(humans, self._policy(moment))

    def _policy(self, moment: int) -> np.ndarray:
        """The policy at a time [state robot]."""
        choices, robots = self._choices[moment], self._course.robots
        if self._name == RANDOM:
            return np.full((len(choices), robots), 1 / robots)
        policy = np.zeros((len(choices), robots))
        policy[np.arange(len(choices)), choices] = 1
        return policy

    def score(self) -> Score:
        """The score, once all steps are done."""
        played = self._course.play(map(self._policy, range(self._course.steps)))
        return Score(
            bits=self._power.bits, v_r=self._power.v_r, cpu_seconds=self._seconds, **played
        )


def walk(successor: np.ndarray, where: np.ndarray, cells: int, steps: int) -> Iterator[np.ndarray]:
    """Chances of a human to be in each cell after 0, 1, ... random steps [state cell]."""
    row = np.eye(cells)[where]
    yield row
    for _ in range(steps):
        before = np.empty_like(row)
        kernels.random_walk(successor, row, before)
        row = before
        yield row


def information(
    successor: np.ndarray, human: int, later: np.ndarray, total: np.ndarray
) -> np.ndarray:
    """Bits between a human's first action and its cell, given a walk's last two rows [state]."""
    stride = (1, kernels.HUMAN_ACTIONS)
    bits = np.zeros(len(total))
    for action in range(kernels.HUMAN_ACTIONS):
        own = np.zeros_like(total)
        for other in range(kernels.HUMAN_ACTIONS):
            joint = action * stride[human] + other * stride[1 - human]
            own += later[successor[:, joint]] / kernels.HUMAN_ACTIONS
        bits += relative_entropy(own, total) / kernels.HUMAN_ACTIONS
    return bits


def relative_entropy(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """In bits, row by row."""
    ratio = np.where(first > 0, first, 1) / np.where(second > 0, second, 1)
    return np.where(first > 0, first * np.log2(ratio), 0).sum(1)


def pair(values: Iterable[float]) -> tuple[float, float]:
    """Numbers of user and bystander."""
    user, bystander = map(float, values)
    return user, bystander
