"""Time, memory and files of assumptions, priors and options."""

from __future__ import annotations

import gc
import logging
import tracemalloc
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_games import Shape, TableWorld, random_table
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_exact import ram
from empo_exact.algorithm import Exact
from empo_exact.assumptions import Assumptions
from empo_exact.graph import build_graph
from empo_exact.plugin import ExactParams, PriorParams, UniformParams
from empo_exact.prior import ExactPrior, UniformPrior
from empo_exact.problem import pose
from empo_exact.ram import Sizes
from empo_exact.solve import solve
from empo_exact.values import ValueStore

SHAPE = Shape(60, ("human", "robot", "human"), (3, 3, 2), 4, timed=True, masked=True)
ENDLESS = Shape(40, ("human", "robot"), (3, 2), None, timed=True, masked=True)


def params(**changes: Any) -> ExactParams:
    return ExactParams.model_validate({"keep": "all", "compute": {"workers": 1}, **changes})


class CountingHabit(UniformPrior):
    """A habit that says for how many states it was asked."""

    def __init__(self, world: WorldModel) -> None:
        super().__init__(UniformParams(), world)
        self.states: list[int] = []

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        self.states.append(len(states))
        return super().policy(states, steps_left)


@pytest.mark.parametrize("habit", [None, "uniform"])
def test_the_graph_of_a_result_is_freed_with_it(habit: str | None) -> None:
    world = TableWorld(random_table(SHAPE, 3))
    result = solve(world, params(theory={"nu": 0.2}, habit=habit))
    graph = weakref.ref(result.problem.graph)
    result.at(0)
    del result
    gc.collect()
    assert graph() is None


def test_a_prior_that_is_asked_about_a_state_asks_its_habit_about_no_other() -> None:
    world = TableWorld(random_table(SHAPE, 3))
    habit = CountingHabit(world)
    chosen = PriorParams.model_validate({"theory": {"nu": 0.3}})
    prior = ExactPrior(chosen, world, Assumptions(habit_prior=habit))
    start = world.initial_state()[None]
    prior.policy(start, torch.full((len(start),), 4))
    habit.states.clear()
    for steps_left in (4, 3, 2, 1, 4):
        prior.policy(start, torch.full((len(start),), steps_left))
    assert habit.states == [1] * 5


@pytest.mark.parametrize("shape", [SHAPE, ENDLESS], ids=["timed", "endless"])
@pytest.mark.parametrize("nu", [0.0, 0.3])
def test_a_prior_says_of_few_states_what_the_solution_says(shape: Shape, nu: float) -> None:
    world = TableWorld(random_table(shape, 3))
    result = solve(world, params(theory={"nu": nu}, habit="uniform" if nu else None))
    chosen = {"theory": {"nu": nu}, "habit": "uniform" if nu else None}
    prior = ExactPrior(PriorParams.model_validate(chosen), world)
    horizon = world.spec.horizon
    for time in range(horizon or 1):
        count = result.graph.num_states if horizon is None else result.graph.within(time)
        alive = np.flatnonzero(result.graph.alive[:count])
        for states in (alive[:1], alive[-2:], alive, alive[::-1]):
            rows = torch.from_numpy(result.graph.states[states].copy())
            found = prior.policy(
                rows, torch.full((len(rows),), 1 if horizon is None else horizon - time)
            ).numpy()
            for state, one in zip(states, found, strict=True):
                expected = result.at(int(state), time).pi_h
                for goal, own in enumerate(expected):
                    assert one[goal][: len(own)] == pytest.approx(own, abs=1e-12)


def believed(row: tuple[int, ...], human: int, action: int) -> list[tuple[float, list[int]]]:
    other = 2 - human  # Agents 0 and 2 are human.
    number = (3, 3, 2)[other]
    profile = [[a if agent == other else -1 for agent in range(3)] for a in range(number)]
    return [(1 / number, each) for each in profile]


def of_goals(world: WorldModel, number: float) -> Callable[[Tensor], Tensor]:
    return lambda states: torch.full((len(states), len(world.spec.goals)), number)


@pytest.mark.parametrize("kind", ["nu", "habit", "beta_h", "nu by state", "beliefs"])
def test_the_forecast_of_ram_counts_assumptions_by_state(kind: str) -> None:
    """Against what is taken while they are arranged, which numpy tells of."""
    world = TableWorld(random_table(replace(SHAPE, num_states=500, masked=False), 3))
    graph = build_graph(world, 4)
    assert graph.num_expanded > 300
    habit = UniformPrior(UniformParams(), world)
    theory: dict[str, Any] = {"nu": 0.2} if kind in ("nu", "habit") else {}
    assumed = {
        "nu": Assumptions(),
        "habit": Assumptions(habit_prior=habit),
        "beta_h": Assumptions(beta_h=of_goals(world, 3.0)),
        "nu by state": Assumptions(nu=of_goals(world, 0.5)),
        "beliefs": Assumptions(believed_others=believed),
    }[kind]

    def taken(theory: dict[str, Any], assumed: Assumptions) -> tuple[int, int]:
        chosen = params(theory=theory)
        tracemalloc.start()
        pose(world, graph, chosen, assumed).humans_at(1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak, ram.ram_bytes(Sizes.of(graph), chosen, assumed=assumed)

    taken(theory, assumed)
    plain, with_it = taken({}, Assumptions()), taken(theory, assumed)
    measured, foretold = (new - old for new, old in zip(with_it, plain, strict=True))
    assert measured > 0
    assert 0.7 * measured < foretold < 3 * measured


def test_checkpoints_without_parts_are_refused_and_check_says_so() -> None:
    world = TableWorld(random_table(SHAPE, 3))
    chosen = params(compute={"workers": 1, "checkpoint_s": 5})
    with pytest.raises(SolveError, match=r"compute\.checkpoint_s is 5.*compute\.parts"):
        solve(world, chosen)
    assert "compute.checkpoint_s" in str(Exact(chosen).check(world)["checkpoints"])
    assert "checkpoints" not in Exact(params()).check(world)
    solve(world, params(compute={"workers": 1, "parts": 2, "checkpoint_s": 5}))


def test_a_solved_world_without_horizon_is_not_solved_again_on_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = TableWorld(random_table(ENDLESS, 3))
    first = solve(world, params(keep="disk"), directory=tmp_path)
    with monkeypatch.context() as forbidding:
        forbidding.setattr(ValueStore, "put", lambda *_: pytest.fail("solved again"))
        again = solve(world, params(keep="disk"), directory=tmp_path, resume=True)
    assert np.array_equal(again.store.at(0).v_r, first.store.at(0).v_r, equal_nan=True)
    other = params(keep="disk", theory={"beta_r": 2.0})
    with caplog.at_level(logging.INFO):
        changed = solve(world, other, directory=tmp_path, resume=True)
    assert "solved anew" in caplog.text
    assert changed.at(0).V_r == solve(world, params(theory={"beta_r": 2.0})).at(0).V_r
