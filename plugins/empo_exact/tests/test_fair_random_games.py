"""The solver and the plain reference agree on the fair objective, on random games."""

from __future__ import annotations

import random

import pytest
from fair_cases import any_params, as_config, small_game
from fair_reference import FairReference
from random_games import TableWorld

from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_theory.bits import long_term_power

EXACTLY = 1e-12


@pytest.mark.parametrize("seed", range(100))
def test_the_solver_equals_the_plain_reference(seed: int) -> None:
    rng = random.Random(seed)
    table = small_game(rng)
    params = any_params(rng, table)
    start = FairReference(table, params).start()
    result = solve(TableWorld(table), ExactParams.model_validate(as_config(params))).at_start()
    orders = range(1, params.rho + 1)
    moments = [norm**k for norm, k in zip(result.norms, orders, strict=True)]
    assert moments == pytest.approx(start.moments[1:], rel=EXACTLY)
    assert long_term_power(result.norms[-1], params.rho) == pytest.approx(
        start.long_term_power, rel=EXACTLY, abs=EXACTLY
    )
    assert result.V_e == pytest.approx([*start.c.values()], rel=EXACTLY)
    assert result.V_m == pytest.approx([*start.v_m.values()], rel=EXACTLY)
    assert -result.U_r == pytest.approx(start.u, rel=EXACTLY)
    # The first robot counts fastest; in the table it is the last.
    policy = {reply[::-1]: chance for reply, chance in start.pi_r.items()}
    assert result.pi_r == pytest.approx([policy[reply] for reply in sorted(policy)], abs=EXACTLY)
