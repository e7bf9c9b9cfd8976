"""Bounds of the solution itself contain it, whatever is expanded, and close where everything is."""

from __future__ import annotations

import importlib
import random
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from random_games import Table, TableWorld
from random_policies import random_game, random_theory
from reference_solver import Parameters, Values, reference_solve

from empo_bounds.assumptions import Assumptions
from empo_bounds.round_off import Bounds
from empo_theory.parameters import CompleteTheory

SCRIPTS = Path(__file__).parents[3] / "tests" / "benchmarks"
QUICK, ALL = range(40), range(300)
SAME = (
    *("gamma_h", "gamma_r", "beta_r", "zeta", "xi", "eta"),
    *("terminal_value", "x_agg", "u_agg", "accrual", "nu"),
)
"""Parameters that the plain solver calls the same."""
EXPANDED = (0.3, 0.7, 1.0)
"""Shares of the pairs that are expanded, one after the other."""


@pytest.fixture(scope="module")
def study() -> ModuleType:
    """The study's module."""
    sys.path.append(str(SCRIPTS))
    try:
        return importlib.import_module("interval_induction")
    finally:
        sys.path.remove(str(SCRIPTS))


def game_of(seed: int, *, moderate: bool = False) -> tuple[Table, CompleteTheory]:
    """A game with a horizon, and parameters over their whole range."""
    table, rng = random_game(seed), random.Random(seed)
    if table.horizon is None:
        table = replace(table, horizon=len(table.outcomes))
    theory = random_theory(seed)
    more: dict[str, Any] = {
        "beta_h": rng.choice([0.0, 0.3, 3.0, 10.0, "inf", *([] if moderate else [100.0])]),
        "beta_r": rng.choice([0.0, 1.0, 5.0] if moderate else [1.0, 10.0, 100.0, 1e4]),
        "nu": rng.choice([0.0, 0.1]),
        "robot_model": rng.choice(["pessimistic", "optimistic"]),
    }
    if table.timed:  # Nothing bounds what accrues in unexpanded pairs.
        more["accrual"] = "discrete"
    return table, CompleteTheory(**(theory.model_dump() | more))


def least_power(table: Table, theory: CompleteTheory) -> float:
    """The X_h that everybody has for certain as long as a step is left, by a goal of all states."""
    whole = {
        human: max(w for who, w, states in table.goals if who == human and len(states) == size)
        for size in [len(table.outcomes)]
        for human, _, _ in table.goals
    }
    return min(whole.values()) * (1 - 1e-9) if theory.x_agg == "weighted" else 1 - 1e-9


def assumptions(table: Table, theory: CompleteTheory) -> Assumptions:
    return Assumptions(least_power(table, theory), all(table.outcomes))


def right_values(table: Table, theory: CompleteTheory) -> dict[Any, Values]:
    """Values at all pairs, to 50 digits."""
    given = {
        name: getattr(theory, name) for name in Parameters.__dataclass_fields__ if name in SAME
    }
    params = Parameters(
        **given,
        beta_h=float(theory.beta_h),
        optimistic=theory.robot_model == "optimistic",
    )
    return reference_solve(TableWorld(table), params, digits=50)[1]


def inside(game: Any, intervals: Any, right: dict[Any, Values]) -> None:
    """Fail unless the right values of all pairs lie in their intervals."""
    number = {tuple(row): state for state, row in enumerate(game.rows.tolist())}
    order = game.question.order.tolist()
    for (time, row), values in right.items():
        pair = time, number[row]
        assert intervals.loss.low[pair] <= -values.V_r <= intervals.loss.high[pair]
        for name, found in (("V_m", intervals.v_m), ("V_e", intervals.v_e)):
            for column, goal in enumerate(order):
                value = getattr(values, name)[goal]
                assert found.low[pair][column] <= value <= found.high[pair][column], name


def width(bounds: Bounds) -> np.ndarray:
    return np.asarray(bounds.high - bounds.low)


def check(study: ModuleType, seed: int) -> None:
    table, theory = game_of(seed)
    game, right = study.unroll(TableWorld(table), theory), right_values(table, theory)
    assumed = assumptions(table, theory)
    intervals = study.a_priori(game, assumed)
    inside(game, intervals, right)
    order = np.random.default_rng(seed).random(game.reached.shape)
    for share in EXPANDED:
        before = [width(bounds) for bounds in vars(intervals).values()]
        study.induce(game, assumed, intervals, order <= share)
        inside(game, intervals, right)
        after = [width(bounds) for bounds in vars(intervals).values()]
        assert all((b <= a).all() for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("seed", QUICK)
def test_the_solution_lies_in_its_bounds(study: ModuleType, seed: int) -> None:
    check(study, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL[len(QUICK) :])
def test_the_solution_lies_in_its_bounds_in_many_more_games(study: ModuleType, seed: int) -> None:
    check(study, seed)


@pytest.mark.parametrize("seed", QUICK)
def test_bounds_close_on_the_exact_solution_where_all_is_expanded(
    study: ModuleType, seed: int
) -> None:
    table, theory = game_of(seed, moderate=True)
    world = TableWorld(table)
    game, assumed = study.unroll(world, theory), assumptions(table, theory)
    intervals = study.a_priori(game, assumed)
    study.induce(game, assumed, intervals, game.reached)
    right = right_values(table, theory)[0, tuple(world.initial_state().tolist())]
    order = game.question.order
    found = (
        (intervals.loss, -float(right.V_r)),
        (intervals.v_m, np.array(right.V_m, float)[order]),
        (intervals.v_e, np.array(right.V_e, float)[order]),
    )
    for bounds, value in found:
        low, high = bounds.low[0, 0], bounds.high[0, 0]
        assert (high - low <= 1e-11 * high + 1e-200).all()
        assert (np.abs(low - value) <= 1e-11 * high + 1e-200).all()


@pytest.mark.parametrize("goal", ["least", "greatest"])
def test_means_over_boxes_are_those_of_the_best_vertex(study: ModuleType, goal: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        value, middle = rng.random(4), rng.dirichlet(np.ones(4))
        box = Bounds(np.maximum(middle - rng.random(4) / 3, 0), middle + rng.random(4) / 3)
        picked = getattr(study, f"{goal}_mean")(value, box)
        vertices = []
        for free in range(4):  # All others are at one of their limits.
            for sides in np.ndindex(2, 2, 2, 2):
                vertex = np.where(np.array(sides) == 1, box.high, box.low)
                vertex[free] = 1 - (vertex.sum() - vertex[free])
                if box.low[free] - 1e-12 <= vertex[free] <= box.high[free] + 1e-12:
                    vertices.append(vertex @ value)
        best = min(vertices) if goal == "least" else max(vertices)
        assert abs(picked - best) < 1e-12


def test_bounds_that_contradict_each_other_are_refused(study: ModuleType) -> None:
    table, theory = game_of(1)
    game = study.unroll(TableWorld(table), theory)
    intervals = study.a_priori(game, assumptions(table, theory))
    intervals.loss.low[0] = intervals.loss.high[0] = 1e9
    with pytest.raises(ValueError, match="contradict"):
        study.induce(game, assumptions(table, theory), intervals, game.reached)
