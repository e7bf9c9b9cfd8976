"""The exact solver against the reference on random small games."""

from __future__ import annotations

import pytest
from comparison import exact_params, largest_errors, theories
from hypothesis import given, settings
from random_games import Table, TableWorld, tables

from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference

QUICK = settings(max_examples=130)


def check(table: Table, theory: CompleteTheory) -> None:
    world = TableWorld(table)
    errors = largest_errors(solve(world, exact_params(theory)), Reference(world, theory))
    # A power of Q_r turns a relative error e of Q_r into beta_r * e: the last digits of the
    # policy are not there to be had, whatever the method, and V_h^e depends on the policy.
    allowed = 1e-12 * max(1.0, theory.beta_r / 10.0)
    for name in ("V_m", "pi_h"):
        assert errors.get(name, 0.0) <= 1e-12, name
    for name in ("V_e", "X_h", "U_r", "Q_r", "V_r", "pi_r"):
        assert errors.get(name, 0.0) <= allowed, name


@QUICK
@given(table=tables(acyclic=False), theory=theories())
def test_games_with_a_horizon_are_solved_to_twelve_digits(
    table: Table, theory: CompleteTheory
) -> None:
    check(table, theory)


@QUICK
@given(table=tables(acyclic=True), theory=theories())
def test_games_that_end_by_themselves_are_solved_to_twelve_digits(
    table: Table, theory: CompleteTheory
) -> None:
    check(table, theory)


@pytest.mark.parametrize("beta_r", [0.0, 1.0, 10.0])
@settings(max_examples=25)
@given(table=tables(), theory=theories())
def test_moderate_robots_get_twelve_digits_in_every_quantity(
    beta_r: float, table: Table, theory: CompleteTheory
) -> None:
    check(table, theory.model_copy(update={"beta_r": beta_r}))
