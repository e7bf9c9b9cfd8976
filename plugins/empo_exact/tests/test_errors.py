"""Problems that cannot be solved as posed are refused with an explanation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from random_games import Shape, Table, TableWorld, random_table

from empo_core.errors import ConfigError, SolveError
from empo_exact.assumptions import Assumptions
from empo_exact.plugin import Compute, ExactParams
from empo_exact.solve import solve


def game(**changes: Any) -> Table:
    shape = Shape(5, ("human", "robot"), (2, 2), 3, timed=False, masked=False)
    return replace(random_table(shape, 1), **changes)


def attempt(table: Table) -> None:
    """Solve a game in this process."""
    solve(TableWorld(table), ExactParams(compute=Compute(workers=1)))


def test_a_cycle_without_a_horizon_is_refused_with_a_way_out() -> None:
    with pytest.raises(SolveError, match=r"(?s)(?=.*cycle)(?=.*max_steps)"):
        attempt(game(horizon=None))


def test_a_world_without_humans_is_refused() -> None:
    with pytest.raises(SolveError, match="human"):
        attempt(game(roles=("robot", "robot"), goals=()))


def test_an_agent_that_is_neither_human_nor_robot_is_refused() -> None:
    with pytest.raises(SolveError, match=r"other 1|neither"):
        attempt(game(roles=("human", "other")))


def test_a_human_without_goals_is_refused() -> None:
    table = game(roles=("human", "human"), goals=((0, 1.0, frozenset(range(5))),))
    with pytest.raises(SolveError, match=r"human 1.*goal"):
        attempt(table)


def test_a_human_that_can_reach_no_goal_is_named_with_state_and_remedy() -> None:
    with pytest.raises(SolveError, match=r"(?s)human 0.*goal"):
        attempt(game(goals=((0, 1.0, frozenset()),)))


def test_a_human_whose_reachable_goals_weigh_nothing_is_refused() -> None:
    goals = ((0, 0.0, frozenset(range(5))), (0, 1.0, frozenset()))
    with pytest.raises(SolveError, match="human 0"):
        attempt(game(goals=goals))


def test_a_problem_that_cannot_fit_is_refused_with_numbers() -> None:
    with pytest.raises(ConfigError, match=r"world_model\.params\.max_steps:"):
        solve(
            TableWorld(game(horizon=200_000_000)),
            ExactParams(compute=Compute(workers=1, ram_limit_gb=0.001)),
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"theory": {"beta_h": -1.0}},
        {"theory": {"beta_h": "infinite"}},
        {"theory": {"beta_r": float("inf")}},
        {"theory": {"beta_r": -1.0}},
        {"theory": {"gamma_h": 0.0}},
        {"theory": {"gamma_r": 1.5}},
        {"theory": {"zeta": 0.0}},
        {"theory": {"xi": -1.0}},
        {"theory": {"terminal_value": 0.0}},
        {"theory": {"nu": 1.5}},
        {"theory": {"x_agg": "mean"}},
        {"theory": {"betar": 1.0}},
        {"keep": "some"},
        {"preset": "papers"},
        {"betar": 1.0},
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ExactParams(**wrong)


def test_beliefs_that_do_not_sum_to_1_are_refused() -> None:
    table = {0: {(0,): 0.25, (1,): 0.25}, 1: {(0,): 1.0}}
    goals = ((0, 1.0, frozenset(range(5))), (1, 1.0, frozenset(range(5))))
    world = TableWorld(game(roles=("human", "human"), goals=goals))
    with pytest.raises(SolveError, match=r"0\.5"):
        solve(world, assumed=Assumptions(believed_others=table))
