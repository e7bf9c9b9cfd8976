"""Every option of the solver against the reference with the same option."""

from __future__ import annotations

import math
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import exact_params, largest_errors
from random_games import Shape, TableWorld, random_table
from torch import Tensor

from empo_core.errors import WorldError
from empo_exact.assumptions import Assumptions
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference, State

SEEDS = range(8)
BASE = {
    "gamma_h": 0.95,
    "gamma_r": 0.97,
    "beta_r": 5.0,
    "zeta": 2.0,
    "eta": 1.1,
    "accrual": "continuous",
}
THEORY = CompleteTheory(**BASE)


def world_for(seed: int, **changes: Any) -> TableWorld:
    """Two humans and a robot, four steps; some actions are unavailable somewhere."""
    shape = {"horizon": 4, "timed": True, "masked": True, **changes}
    return TableWorld(random_table(Shape(6, ("human", "robot", "human"), (3, 2, 2), **shape), seed))


def check(
    world: TableWorld, reference: Reference, theory: CompleteTheory = THEORY, **options: Any
) -> None:
    result = solve(world, exact_params(theory), Assumptions(**options))
    errors = largest_errors(result, reference)
    assert max(errors.values()) <= 1e-12, errors


def word(state: State) -> float:
    """Some number in [0, 1] that depends on the state."""
    return (int(state[1]) + 300) / 600


@pytest.mark.parametrize("seed", SEEDS)
def test_rationality_may_depend_on_state_and_goal(seed: int) -> None:
    world = world_for(seed)
    kinds = (0.0, 2.0, 30.0, math.inf)

    def beta(state: State, goal: int) -> float:
        return kinds[(int(state[1]) + goal) % 4]

    def batched(states: Tensor) -> Tensor:
        rows = [tuple(row) for row in states.tolist()]
        return torch.tensor(
            [[beta(row, g) for g in range(len(world.spec.goals))] for row in rows],
            dtype=torch.float64,
        )

    check(world, Reference(world, THEORY, beta_h=beta), beta_h=batched)


def habit(world: TableWorld, state: State, goal: int) -> list[float]:
    """The human likes later actions better; only available ones."""
    human = world.spec.goals[goal].human
    available = world.available(torch.tensor([state], dtype=torch.int16))[0, human].tolist()
    assert any(available), "habits must not be asked about terminal states"
    liked = [(k + 1 + goal) * float(is_there) for k, is_there in enumerate(available)]
    return [x / sum(liked) for x in liked]


@pytest.mark.parametrize("seed", SEEDS)
def test_humans_without_a_given_habit_fidget_uniformly(seed: int) -> None:
    world, theory = world_for(seed), CompleteTheory(**BASE, nu=0.25)
    check(world, Reference(world, theory), theory)


def batched_habit(world: TableWorld, states: Tensor) -> Tensor:
    rows = [tuple(row) for row in states.tolist()]
    return torch.tensor(
        [[habit(world, row, g) for g in range(len(world.spec.goals))] for row in rows],
        dtype=torch.float64,
    )


class Habit:
    """The same as a human prior."""

    def __init__(self, world: TableWorld) -> None:
        self.world = world

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return batched_habit(self.world, states)


@pytest.mark.parametrize("seed", SEEDS)
def test_habits_mix_with_reason_by_a_fixed_share(seed: int) -> None:
    world, theory = world_for(seed), CompleteTheory(**BASE, nu=0.3)
    reference = Reference(world, theory, habit=Habit(world))
    check(world, reference, theory, habit=lambda states: batched_habit(world, states))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_share_of_habit_may_depend_on_state_and_goal(seed: int) -> None:
    world = world_for(seed)

    def share(state: State, goal: int) -> float:
        return word(state) if goal % 2 else 1.0

    def batched(states: Tensor) -> Tensor:
        rows = [tuple(row) for row in states.tolist()]
        return torch.tensor(
            [[share(row, g) for g in range(len(world.spec.goals))] for row in rows],
            dtype=torch.float64,
        )

    reference = Reference(world, THEORY, habit=Habit(world), nu=share)
    check(world, reference, nu=batched, habit=lambda states: batched_habit(world, states))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_optimistic_human_expects_the_best_robot(seed: int) -> None:
    world, theory = world_for(seed), CompleteTheory(**BASE, robot_model="optimistic")
    check(world, Reference(world, theory), theory)


@pytest.mark.parametrize("seed", SEEDS)
def test_humans_may_believe_anything_about_each_other(seed: int) -> None:
    world = world_for(seed)

    def beliefs(state: State, human: int, action: int) -> Sequence[tuple[float, Sequence[int]]]:
        """The other human's action correlates with state and own action."""
        other = 2 if human == 0 else 0
        available = world.available(torch.tensor([state], dtype=torch.int16))[0, other].tolist()
        assert any(available), "beliefs must not be asked about terminal states"
        liked = {
            k: word(state) + k + action / 3 + 0.1
            for k, is_there in enumerate(available)
            if is_there
        }
        result = []
        for k, weight in liked.items():
            profile = [-1, -1, -1]
            profile[other] = k
            result.append((weight / sum(liked.values()), profile))
        return result

    check(world, Reference(world, THEORY, believed=beliefs), believed_others=beliefs)


@pytest.mark.parametrize("seed", SEEDS)
def test_beliefs_may_be_a_table(seed: int) -> None:
    world = world_for(seed, masked=False)
    table = {0: {(0,): 0.25, (1,): 0.75}, 2: {(0,): 0.5, (2,): 0.5}}

    def beliefs(state: State, human: int, action: int) -> Sequence[tuple[float, Sequence[int]]]:
        other = 2 if human == 0 else 0
        result = []
        for (other_action,), probability in table[human].items():
            profile = [-1, -1, -1]
            profile[other] = other_action
            result.append((probability, profile))
        return result

    check(world, Reference(world, THEORY, believed=beliefs), believed_others=table)


class Leaning:
    """A human prior that depends on the state, the goal and the time that is left."""

    def __init__(self, world: TableWorld) -> None:
        self.world = world

    def one(self, state: State, steps_left: int, goal: int) -> list[float]:
        human = self.world.spec.goals[goal].human
        row = torch.tensor([state], dtype=torch.int16)
        available = self.world.available(row)[0, human].tolist()
        assert any(available), "a prior must not be asked about terminal states"
        liked = [
            float(is_there) * (1 + k * steps_left + goal * word(state))
            for k, is_there in enumerate(available)
        ]
        return [x / sum(liked) for x in liked]

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        rows = [tuple(row) for row in states.tolist()]
        goals = range(len(self.world.spec.goals))
        return torch.tensor(
            [
                [self.one(row, left, g) for g in goals]
                for row, left in zip(rows, steps_left.tolist(), strict=True)
            ],
            dtype=torch.float64,
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_given_human_prior_replaces_phase_1(seed: int) -> None:
    world = world_for(seed)
    prior = Leaning(world)
    result = solve(world, exact_params(THEORY), Assumptions(human_prior=prior))
    errors = largest_errors(result, Reference(world, THEORY, prior))
    assert max(error for name, error in errors.items() if name != "V_m") <= 1e-12


@pytest.mark.parametrize("roles", [("human",), ("human", "human", "human")])
def test_worlds_without_robots_have_one_empty_robot_action(roles: tuple[str, ...]) -> None:
    shape = Shape(7, roles, (2,) * len(roles), 3, timed=False, masked=False)
    world = TableWorld(random_table(shape, 11))
    check(world, Reference(world, THEORY))
    assert list(solve(world, exact_params()).at(world.initial_state()).pi_r) == [1.0]


@pytest.mark.parametrize("seed", SEEDS)
def test_three_robots_act_jointly(seed: int) -> None:
    roles = ("robot", "human", "robot", "robot")
    shape = Shape(6, roles, (2, 3, 3, 2), 3, timed=False, masked=True)
    world = TableWorld(random_table(shape, seed))
    check(world, Reference(world, THEORY))


def test_what_only_looks_like_a_world_is_refused_with_the_base_class() -> None:
    like = type("Like", (), {"spec": world_for(0).spec})()
    with pytest.raises(WorldError, match=r"empo_core\.protocols\.WorldModel"):
        solve(like)


def test_a_solve_on_disk_keeps_more_files_open_than_the_soft_limit_says(tmp_path: Path) -> None:
    """Values of each time are mapped from three files, and 1,024 is a usual limit."""
    world = world_for(0)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    free = [number for number in range(4096) if number not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[8], limits[1]))
    try:
        result = solve(world, exact_params(THEORY, keep="disk"), directory=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert result.at(0).V_r < 0
