"""Random policies and theories for random games, and their values to 40 digits.

The values come from the table of a game, one number at a time, by equations (4) and (6)-(9) for
given policies; nothing of the tested code is used.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import torch
from random_games import Shape, Table, TableWorld, random_table
from torch import Tensor

from empo_bounds.question import Question
from empo_theory.parameters import CompleteTheory, TheoryParams

DIGITS = 40
Number = Any
"""An mpmath number."""


def random_game(seed: int) -> Table:
    """A game of one or two humans and up to two robots, with a horizon or without."""
    rng = random.Random(seed)
    roles = ["human"] * rng.choice([1, 1, 2]) + ["robot"] * rng.choice([0, 1, 1, 2])
    rng.shuffle(roles)
    shape = Shape(
        num_states=rng.randint(2, 8),
        roles=tuple(roles),
        num_actions=tuple(rng.randint(1, 3) for _ in roles),
        horizon=rng.choice([None, 1, 2, 3, 4]),
        timed=rng.random() < 0.3,
        masked=rng.random() < 0.5,
    )
    return random_table(shape, seed)


def random_theory(seed: int) -> CompleteTheory:
    """Parameters over their whole range."""
    rng = random.Random(seed)
    return CompleteTheory(
        gamma_h=rng.choice([1.0, 0.95, 0.5]),
        gamma_r=rng.choice([1.0, 0.99, 0.6]),
        zeta=rng.choice([1.0, 1.7, 2.0, 3.0]),
        xi=rng.choice([1.0, 1.3, 2.0]),
        eta=rng.choice([0.7, 1.0, 1.1, 2.0]),
        terminal_value=rng.choice([-1e-10, -1e-3, -1.0, -50.0]),
        x_agg=rng.choice(["weighted", "sum"]),
        u_agg=rng.choice(["mean", "sum"]),
        accrual=rng.choice(["discrete", "continuous"]),
    )


class Acting:
    """Robots or humans of a game: what ``policy`` says of a state's number and its steps left."""

    def __init__(
        self, world: TableWorld, policy: Callable[[int, int], np.ndarray], *, is_stationary: bool
    ) -> None:
        self._world, self.at, self.is_stationary = world, policy, is_stationary

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        rows = [
            self.at(self._world.number(row), left)
            for row, left in zip(states.tolist(), steps_left.tolist(), strict=True)
        ]
        return torch.from_numpy(np.stack(rows))


class RandomPolicies:
    """Robots and humans of a game, who act at random but always alike."""

    def __init__(self, world: TableWorld, seed: int, *, is_stationary: bool = False) -> None:
        self._world, self._seed, self.is_stationary = world, seed, is_stationary
        self.robots = Acting(world, self.robot, is_stationary=is_stationary)
        self.humans = Acting(world, self.human, is_stationary=is_stationary)

    def robot(self, state: int, steps_left: int) -> np.ndarray:
        """The robots' joint policy in a state [robot_action]."""
        spec, rng = self._world.spec, self._rng(state, steps_left, 0)
        joint = np.ones(1)
        for robot in spec.robots:
            own = self._chances(rng, state, robot)[: spec.num_actions[robot]]
            joint = (own[:, None] * joint).ravel()
        return joint

    def human(self, state: int, steps_left: int) -> np.ndarray:
        """Policy of each goal's human in a state [goal action]."""
        rng = self._rng(state, steps_left, 1)
        return np.stack([self._chances(rng, state, goal.human) for goal in self._world.spec.goals])

    def _rng(self, state: int, steps_left: int, part: int) -> np.random.Generator:
        left = 0 if self.is_stationary else steps_left
        return np.random.default_rng([self._seed, state, left, part])

    def _chances(self, rng: np.random.Generator, state: int, agent: int) -> np.ndarray:
        """A distribution over an agent's available actions, often without some of them."""
        table = self._world.table
        available = sorted({profile[agent] for profile in table.outcomes[state]})
        weights = rng.choice([0.0, 1.0, 2.5, 1e-4], len(available)) + 0.0
        weights[rng.integers(len(available))] += 1.0
        chances = np.zeros(max(table.num_actions))
        chances[available] = weights / weights.sum()
        return chances


def question_of(table: Table, seed: int, *, is_stationary: bool = False) -> Question:
    """What is asked about a random game under random policies."""
    world, theory = TableWorld(table), random_theory(seed)
    acting = RandomPolicies(world, seed, is_stationary=is_stationary)
    return Question(
        world, acting.robots, acting.humans, TheoryParams(**_shared(theory)), theory.accrual
    )


def _shared(theory: CompleteTheory) -> dict[str, Any]:
    return {name: getattr(theory, name) for name in TheoryParams.model_fields}


def least_power(question: Question) -> float:
    """The X_h that everybody has for certain as long as a step is left, by a goal of all states."""
    table = question.world.table  # type: ignore[attr-defined]
    least = []
    for human in question.spec.humans:
        own = [(weight, states) for who, weight, states in table.goals if who == human]
        weights = [weight for weight, states in own if len(states) == len(table.outcomes)]
        least.append(max(weights) if question.theory.x_agg == "weighted" else 1.0)
    # Less than that, since policies sum to 1 up to rounding only.
    return min(least) * (1 - 1e-9)


@dataclass
class Values:
    """Values of one state at one time; lists follow ``spec.goals`` and ``spec.humans``."""

    v_e: list[Number]
    x_h: list[Number] | None
    u_r: Number | None
    v_r: Number


class PreciseValues:
    """Values of given policies to 40 digits."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._table: Table = question.world.table  # type: ignore[attr-defined]
        self._known: dict[tuple[int, int], Values] = {}

    def at(self, state: int, time: int) -> Values:
        """Values of a state at a time."""
        if self._table.horizon is None:
            time = 0
        if (state, time) not in self._known:
            with mpmath.workdps(DIGITS):
                self._known[state, time] = self._value(state, time)
        return self._known[state, time]

    def _value(self, state: int, time: int) -> Values:
        question, theory, table = self._question, self._question.theory, self._table
        spec, outcomes = question.spec, table.outcomes[state]
        if not outcomes or time == table.horizon:
            nothing = [mpmath.mpf(0)] * len(spec.goals)
            return Values(nothing, None, None, mpmath.mpf(theory.terminal_value))
        left = 1 if table.horizon is None else table.horizon - time
        robot = _precise(_normal(self._question.robots.at(state, left)))  # type: ignore[attr-defined]
        human = [_precise(_normal(p)) for p in self._question.humans.at(state, left)]  # type: ignore[attr-defined]
        mean = {h: self._mean(h, human) for h in spec.humans}
        v_e = [mpmath.mpf(0)] * len(spec.goals)
        ahead, accrued = mpmath.mpf(0), mpmath.mpf(0)
        for profile, items in outcomes.items():
            chance, stride = 0, 1
            for agent in spec.robots:
                chance += profile[agent] * stride
                stride *= spec.num_actions[agent]
            everybody = robot[chance]
            for agent in spec.humans:
                everybody *= mean[agent][profile[agent]]
            for p, later, duration in items:
                found = self.at(later, time + 1)
                ahead += everybody * p * mpmath.mpf(theory.gamma_r) ** duration * found.v_r
                accrued += everybody * p * self._accrual(duration)
            for index, goal in enumerate(spec.goals):
                weight = robot[chance] * human[index][profile[goal.human]]
                for other in spec.humans:
                    if other != goal.human:
                        weight *= mean[other][profile[other]]
                for p, later, duration in items:
                    worth = mpmath.mpf(1)
                    if later not in table.goals[index][2]:
                        worth = mpmath.mpf(theory.gamma_h) ** duration
                        worth *= self.at(later, time + 1).v_e[index]
                    v_e[index] += weight * p * worth
        x_h = [self._power(agent, v_e) for agent in spec.humans]
        total = mpmath.fsum(x ** -mpmath.mpf(theory.xi) for x in x_h)
        if theory.u_agg == "mean":
            total /= len(x_h)
        u_r = -(total ** mpmath.mpf(theory.eta))
        counts = accrued if question.accrual == "continuous" else 1
        return Values(v_e, x_h, u_r, counts * u_r + ahead)

    def _mean(self, human: int, policies: list[list[Number]]) -> list[Number]:
        spec = self._question.spec
        goals = spec.goals_of(human)
        weights = [mpmath.mpf(spec.goals[goal].weight) for goal in goals]
        return [
            mpmath.fsum(w * policies[goal][a] for w, goal in zip(weights, goals, strict=True))
            / mpmath.fsum(weights)
            for a in range(max(spec.num_actions))
        ]

    def _power(self, human: int, v_e: list[Number]) -> Number:
        theory, spec = self._question.theory, self._question.spec
        return mpmath.fsum(
            (mpmath.mpf(spec.goals[goal].weight) if theory.x_agg == "weighted" else 1)
            * v_e[goal] ** mpmath.mpf(theory.zeta)
            for goal in spec.goals_of(human)
        )

    def _accrual(self, duration: float) -> Number:
        gamma = mpmath.mpf(self._question.theory.gamma_r)
        return duration if gamma == 1 else (1 - gamma**duration) / -mpmath.log(gamma)


class EndlessValues:
    """Values of given policies in a game without a horizon, which may go round in circles.

    Both of (6) and (9) are systems of linear equations, one row for each state from which episodes
    go on; they are solved to 40 digits.
    """

    def __init__(self, question: Question) -> None:
        self._question = question
        self._table: Table = question.world.table  # type: ignore[attr-defined]
        self._alive = [s for s, outcomes in enumerate(self._table.outcomes) if outcomes]
        spec, theory = question.spec, question.theory
        with mpmath.workdps(DIGITS):
            v_e = [self._v_e(goal) for goal in range(len(spec.goals))]
            self.v_e = {s: [each[s] for each in v_e] for s in self._alive}
            self.v_r = self._solved(theory.gamma_r, self._average, self._u_r)

    def _chance(self, state: int, profile: tuple[int, ...], goal: int | None) -> Number:
        """Probability of a joint action; where a goal is given, its human pursues that."""
        spec, question = self._question.spec, self._question
        robot = _precise(_normal(question.robots.at(state, 1)))  # type: ignore[attr-defined]
        human = [_precise(_normal(p)) for p in question.humans.at(state, 1)]  # type: ignore[attr-defined]
        index, stride = 0, 1
        for agent in spec.robots:
            index += profile[agent] * stride
            stride *= spec.num_actions[agent]
        chance = robot[index]
        for agent in spec.humans:
            if goal is not None and spec.goals[goal].human == agent:
                chance *= human[goal][profile[agent]]
                continue
            own = spec.goals_of(agent)
            weights = [mpmath.mpf(spec.goals[each].weight) for each in own]
            mixed = [w * human[g][profile[agent]] for w, g in zip(weights, own, strict=True)]
            chance *= mpmath.fsum(mixed) / mpmath.fsum(weights)
        return chance

    def _average(self, state: int, later: int) -> bool:
        return True

    def _v_e(self, goal: int) -> dict[int, Number]:
        members = self._table.goals[goal][2]

        def attained(state: int) -> Number:
            return mpmath.fsum(
                self._chance(state, profile, goal)
                * mpmath.fsum(p for p, to, _ in items if to in members)
                for profile, items in self._table.outcomes[state].items()
            )

        def goes_on(state: int, later: int) -> bool:
            return later not in members

        return self._solved(self._question.theory.gamma_h, goes_on, attained, goal)

    def _solved(
        self,
        gamma: float,
        goes_on: Callable[[int, int], bool],
        now: Callable[[int], Number],
        goal: int | None = None,
    ) -> dict[int, Number]:
        """The solution of v = now + expected discounted v, and of the terminal value at the end."""
        place = {state: row for row, state in enumerate(self._alive)}
        end = mpmath.mpf(0 if goal is not None else self._question.theory.terminal_value)
        system, right = mpmath.eye(len(place)), mpmath.matrix(len(place), 1)
        for state, row in place.items():
            right[row] = now(state)
            for profile, items in self._table.outcomes[state].items():
                chance = self._chance(state, profile, goal)
                for p, later, duration in items:
                    weight = chance * p * mpmath.mpf(gamma) ** duration
                    if later not in place:
                        right[row] += weight * end
                    elif goes_on(state, later):
                        system[row, place[later]] -= weight
        found = mpmath.lu_solve(system, right)
        return {state: found[row] for state, row in place.items()}

    def _u_r(self, state: int) -> Number:
        """What U_r of a state adds to its V_r."""
        question, spec, theory = self._question, self._question.spec, self._question.theory
        x_h = [
            mpmath.fsum(
                (mpmath.mpf(spec.goals[g].weight) if theory.x_agg == "weighted" else 1)
                * self.v_e[state][g] ** mpmath.mpf(theory.zeta)
                for g in spec.goals_of(agent)
            )
            for agent in spec.humans
        ]
        total = mpmath.fsum(x ** -mpmath.mpf(theory.xi) for x in x_h)
        if theory.u_agg == "mean":
            total /= len(x_h)
        counts, gamma = mpmath.mpf(1), mpmath.mpf(theory.gamma_r)
        if question.accrual == "continuous":
            counts = mpmath.fsum(
                self._chance(state, profile, None) * p * (1 - gamma**d) / -mpmath.log(gamma)
                for profile, items in self._table.outcomes[state].items()
                for p, _, d in items
            )
        return -counts * total ** mpmath.mpf(theory.eta)


def _normal(chances: np.ndarray) -> np.ndarray:
    """A policy as it is certified: rescaled once more."""
    return chances / chances.sum(-1, keepdims=True)


def _precise(chances: np.ndarray) -> list[Number]:
    return [mpmath.mpf(each) for each in chances.tolist()]
