"""One layout with its humans: exact occupancies, power and baselines of all its robots."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import disempower_kernels as kernels
import numpy as np
from disempower_settings import Settings
from esr_scores import paired_difference

from empo_benchmarks.disempower.params import DisempowerParams
from empo_benchmarks.disempower.world import DisempowerWorld, load_world
from empo_exact.graph import StateGraph, build_graph
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve

HUMANS = 2
IDLE, RANDOM = "idle", "random"
REFERENCES = (IDLE, RANDOM)
PROXIES = ("ave", "mc_emp", "discrete", "entropic", "joint")
"""Exact versions of the publication's robots."""
EQUAL = 1e-9
"""Differences below this are rounding."""


@dataclass(frozen=True)
class Score:
    """What a robot does to user and bystander; pairs of numbers are about them.

    Attributes:
        bits: I_h at the start, humans over all their goals; NaN where it was not worked out.
        empowerment: Mean over steps of the exact mc_emp where humans pursue their true goals.
        steps: Expected steps on the true goal.
        arrives: Chance to be on it at some time.
        v_r: V_r at the start, by the theory of the primary robot or the robot's own.
        cpu_seconds: What it took to make the robot.
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

    def changes(self, other: Score, resamples: int = 10_000, seed: int = 0) -> tuple[int, int]:
        """Signs of the change in empowerment from another robot; 0 where it may be chance."""
        if self.episodes is None or other.episodes is None:
            difference = np.subtract(self.empowerment, other.empowerment)
            user, bystander = np.sign(np.where(np.abs(difference) < EQUAL, 0, difference))
            return int(user), int(bystander)
        signs = []
        for ours, others in zip(self.episodes, other.episodes, strict=True):
            estimate = paired_difference(np.array(ours), np.array(others), resamples, seed)
            signs.append(int(estimate.low > 0) - int(estimate.high < 0))
        return signs[0], signs[1]

    def disempowers(self, other: Score) -> bool:
        """The user gains empowerment and the bystander loses some, compared with another robot."""
        return self.changes(other) == (1, -1)


def solved(
    world: DisempowerWorld, settings: Settings, humans: str, robot: dict[str, Any]
) -> ExactResult:
    """The exact solution for a robot and the humans whom it expects."""
    theory = {**robot["theory"], **settings.humans[humans]}
    params = ExactParams.model_validate(
        {**robot, "theory": theory, "keep": "all", "rollouts": 0, "inspector": False}
    )
    return solve(world, params)


class Course:
    """A layout whose states are few enough for exact occupancies.

    Attributes:
        settings: The settings.
        world: The world.
        humans: Name of the humans in the settings.
        graph: All states.
        successor: Where each joint action leads [state joint].
    """

    def __init__(self, settings: Settings, layout: str, steps: int, humans: str) -> None:
        self.settings, self.humans = settings, humans
        self.world = load_world(DisempowerParams(layout=layout, max_steps=steps))
        self.graph: StateGraph = build_graph(self.world, None)
        joint = self.world.spec.num_joint_actions
        self.successor = self.graph.successor.reshape(-1, joint)
        self.steps = steps
        self._human_policies: list[np.ndarray] = []

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

    def solve(self, robot: dict[str, Any]) -> tuple[ExactResult, float]:
        """A solved robot, and the processor seconds that it took."""
        begin = time.process_time()
        result = solved(self.world, self.settings, self.humans, robot)
        states = result.graph.states
        if not np.array_equal(states, self.graph.states[: len(states)]):
            raise RuntimeError("states have other numbers than in the whole graph")
        return result, time.process_time() - begin

    def watch(self, result: ExactResult) -> list[np.ndarray]:
        """The robot's policies at all times; keeps those of humans who pursue their true goals."""
        robot = []
        truly = [human * self.cells + goal for human, goal in enumerate(self.true_goals)]
        # The humans of the primary robot play; those of preset fair discount their way to a goal.
        is_new = not self._human_policies
        for moment in range(self.steps):
            policies = result.policies(moment)
            robot.append(np.ascontiguousarray(policies.pi_r))
            if is_new:
                self._human_policies.append(np.ascontiguousarray(policies.pi_h[:, truly]))
        return robot

    def human_policies(self, moment: int, human: int) -> np.ndarray:
        """Policy of a human who pursues its true goal [state action]."""
        return np.ascontiguousarray(self._human_policies[moment][:, human])

    def play(self, robot: Sequence[np.ndarray]) -> dict[str, tuple[float, float]]:
        """Empowerment, steps on true goals and arrivals, by exact occupancies."""
        states = self.graph.num_states
        visits = np.zeros((1 + HUMANS, states))
        visits[:, 0] = 1
        on_goal = np.stack([self.where[h] == goal for h, goal in enumerate(self.true_goals)])
        emp, steps = np.zeros(HUMANS), np.zeros(HUMANS)
        for moment in range(self.steps):
            after = np.zeros_like(visits)
            humans = [self.human_policies(moment, human) for human in range(HUMANS)]
            kernels.spread(self.successor, *humans, robot[moment], visits, after)
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

    def fixed_robots(self) -> tuple[dict[str, list[np.ndarray]], dict[str, float]]:
        """Choices of references and proxies at all times, and the processor seconds they took.

        Proxies expect humans who pursue their true goals.
        """
        discount = self.settings.proxies.discount
        robots: dict[str, list[np.ndarray]] = {name: [] for name in (*REFERENCES, *PROXIES)}
        seconds = dict.fromkeys(robots, 0.0)
        rewards = {name: self.rewards(name) for name in PROXIES}
        values = {name: np.zeros(self.graph.num_states) for name in PROXIES}
        for moment in reversed(range(self.steps)):
            humans = [self.human_policies(moment, human) for human in range(HUMANS)]
            for name in REFERENCES:
                robots[name].append(np.zeros(len(humans[0]), np.int64))
            for name in PROXIES:
                begin = time.process_time()
                best, before = np.zeros(len(humans[0]), np.int64), np.zeros_like(values[name])
                kernels.best_actions(
                    self.successor, *humans, rewards[name], values[name], discount,
                    np.zeros(self.robots), best, before,
                )  # fmt: skip
                robots[name].append(best)
                values[name] = before
                seconds[name] += time.process_time() - begin
        for times in robots.values():
            times.reverse()
        return robots, seconds

    def spell_out(self, name: str, choices: np.ndarray) -> np.ndarray:
        """A robot's choices as a policy [state robot]."""
        if name == RANDOM:
            return np.full((len(choices), self.robots), 1 / self.robots)
        policy = np.zeros((len(choices), self.robots))
        policy[np.arange(len(choices)), choices] = 1
        return policy

    def powers(
        self, result: ExactResult, robots: dict[str, list[np.ndarray]]
    ) -> dict[str, tuple[tuple[float, float], float]]:
        """Bits at the start and V_r of robots, beside the humans of a solution over their goals."""
        theory, goals = self.settings.theory, HUMANS * self.cells
        gamma_h, gamma_r = float(theory["gamma_h"]), float(theory["gamma_r"])
        zeta, xi, eta = (float(theory[key]) for key in ("zeta", "xi", "eta"))
        states = self.graph.num_states
        later = {name: np.zeros((states, goals)) for name in robots}
        value = {name: np.full(states, -1e-10) for name in robots}
        power: dict[str, np.ndarray] = {}
        for moment in reversed(range(self.steps)):
            policy = np.ascontiguousarray(result.policies(moment).pi_h)
            count = len(policy)
            mean = policy.reshape(count, HUMANS, self.cells, -1).mean(2)
            mean = np.ascontiguousarray(mean.transpose(1, 0, 2))
            for name, times in robots.items():
                robot = times[moment]
                if robot.ndim == 1:
                    robot = self.spell_out(name, robot)
                now, following = np.zeros((states, goals)), np.zeros(states)
                kernels.attainable(
                    self.successor, policy, mean, robot, self.where, gamma_h, later[name],
                    np.zeros(self.robots), now,
                )  # fmt: skip
                kernels.expected_next(self.successor, mean, robot, value[name], following)
                x = (now[:count].reshape(count, HUMANS, -1) ** zeta).sum(2)
                with np.errstate(divide="ignore"):
                    following[:count] = -((x**-xi).sum(1) ** eta) + gamma_r * following[:count]
                later[name], value[name], power[name] = now, following, x
        return {name: (pair(np.log2(power[name][0])), float(value[name][0])) for name in robots}

    def scores(self, primary: str, names: Sequence[str]) -> Iterator[tuple[str, Score]]:
        """Scores of robots by name; the primary one is solved in any case, for its humans."""
        solved_robots = self.settings.solved_robots()
        main, seconds = self.solve(solved_robots[primary])
        policies = self.watch(main)
        if primary in names:
            yield primary, self._score(main, policies, seconds)
        del policies
        if fixed := [name for name in names if name in (*REFERENCES, *PROXIES)]:
            choices, spent = self.fixed_robots()
            choices = {name: choices[name] for name in fixed}
            powers = self.powers(main, choices)
            for name in fixed:
                played = self.play(_Spelled(self, name, choices[name]))
                bits, v_r = powers[name]
                yield name, Score(bits=bits, v_r=v_r, cpu_seconds=spent[name], **played)
        for name in names:
            if name in solved_robots and name != primary:
                robot = solved_robots[name]
                result, seconds = self.solve(robot)
                policies = self.watch(result)
                score = self._score(result, policies, seconds)
                if robot.get("preset") == "fair":  # Its own X_h counts otherwise.
                    bits, v_r = self.powers(main, {name: policies})[name]
                    score = replace(score, bits=bits, v_r=v_r)
                yield name, score

    def _score(self, result: ExactResult, policies: list[np.ndarray], seconds: float) -> Score:
        """The score of a solved robot."""
        start = result.at_start()
        bits = pair(np.log2([start.X_h[human] for human in range(HUMANS)]))
        return Score(bits=bits, v_r=start.V_r, cpu_seconds=seconds, **self.play(policies))


class _Spelled(Sequence[np.ndarray]):
    """Choices as policies, one time after another."""

    def __init__(self, course: Course, name: str, choices: list[np.ndarray]) -> None:
        self._course, self._name, self._choices = course, name, choices

    def __len__(self) -> int:
        return len(self._choices)

    def __getitem__(self, moment: Any) -> Any:
        return self._course.spell_out(self._name, self._choices[moment])


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
