"""The exact solver against fifty-digit arithmetic on random small games."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comparison import exact_params, largest_errors, parameters
from hypothesis import given, settings
from random_games import Table, TableWorld, tables
from reference_solver import Parameters, reference_solve

from empo_exact.solve import solve

QUICK = settings(max_examples=130)


def check(table: Table, params: Parameters) -> None:
    world = TableWorld(table)
    game, values = reference_solve(world, params, digits=50)
    result = solve(world, exact_params(params))
    # A power of Q_r turns a relative error e of Q_r into beta_r * e: the last digits of the
    # policy are not there to be had, whatever the method, and V_h^e depends on the policy.
    allowed = 1e-12 * max(1.0, params.beta_r / 10.0)
    errors = largest_errors(result, game, values)
    for name in ("V_m", "pi_h"):
        assert errors.get(name, 0.0) <= 1e-12, name
    for name in ("V_e", "X_h", "U_r", "Q_r", "V_r", "pi_r"):
        assert errors.get(name, 0.0) <= allowed, name


@QUICK
@given(table=tables(acyclic=False), params=parameters())
def test_games_with_a_horizon_are_solved_to_twelve_digits(table: Table, params: Parameters) -> None:
    check(table, params)


@QUICK
@given(table=tables(acyclic=True), params=parameters())
def test_games_that_end_by_themselves_are_solved_to_twelve_digits(
    table: Table, params: Parameters
) -> None:
    check(table, params)


@pytest.mark.parametrize("beta_r", [0.0, 1.0, 10.0])
@settings(max_examples=25)
@given(table=tables(), params=parameters())
def test_moderate_robots_get_twelve_digits_in_every_quantity(
    beta_r: float, table: Table, params: Parameters
) -> None:
    check(table, replace(params, beta_r=beta_r))
