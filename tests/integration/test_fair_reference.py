"""The fair objective has the values that 40 digits of another implementation give."""

from __future__ import annotations

import math

import pytest
from fair_worlds import fair_params, fair_world, reference_data

from empo_exact.solve import solve, solve_alone
from empo_theory.bits import aggregate_power, individual_power, long_term_power

VALUES = reference_data()["values"]
EXACTLY = 1e-11


@pytest.mark.parametrize("value", VALUES, ids=[f"{v['world']}-{v['set']}" for v in VALUES])
def test_each_world_has_the_powers_of_the_reference_at_its_start(value: dict) -> None:
    params = fair_params(value["set"])
    result = solve(fair_world(value["world"]), params)
    start, theory = result.at_start(), params.theory
    moments = [norm ** (k + 1) for k, norm in enumerate(start.norms)]
    attained = [number for numbers in value["C"].values() for number in numbers]
    powers = [individual_power(x) for x in start.X_h.values()]
    assert moments == pytest.approx(list(map(float, value["M"])), rel=EXACTLY)
    assert start.V_r == pytest.approx(float(value["V_r"]), rel=EXACTLY)
    assert start.pi_r == pytest.approx(list(map(float, value["pi_r"])), rel=EXACTLY, abs=0)
    assert start.V_e == pytest.approx(list(map(float, attained)), rel=EXACTLY)
    assert powers == pytest.approx(list(map(float, value["I"].values())), rel=EXACTLY, abs=1e-14)
    assert aggregate_power(start.U_r, theory.eta) == pytest.approx(
        float(value["P"]), rel=EXACTLY, abs=1e-14
    )
    assert long_term_power(start.norms[-1], theory.rho) == pytest.approx(
        float(value["L"]), rel=EXACTLY, abs=1e-14
    )


@pytest.mark.parametrize("name", sorted(reference_data()["diagnostics"]))
def test_humans_alone_have_the_powers_of_the_reference(name: str) -> None:
    world, params = fair_world(name), fair_params("B")
    alone = solve_alone(solve(world, params)).at_start()
    expected = reference_data()["diagnostics"][name]
    for human, power in alone.X_h.items():
        bits = float(expected[world.spec.agents[human].name]["alone"])
        assert individual_power(power) == pytest.approx(bits, rel=EXACTLY, abs=1e-14)


@pytest.mark.parametrize(
    ("changes", "crushing"),
    [
        ({"counting": "arrival"}, 1.0),
        ({}, 0.888),
        ({"gamma_r": 0.5}, 0.216),
        ({"early_end": "absorb"}, 0.0094),
    ],
)
def test_an_early_end_attracts_less_where_it_is_worth_what_is_lost(
    changes: dict, crushing: float
) -> None:
    params = fair_params("B", theory=changes)
    assert solve(fair_world("press"), params).at(0).pi_r[1] == pytest.approx(crushing, abs=5e-4)


@pytest.mark.parametrize(
    ("rate", "building"),
    [(0.0, 0.228556), (0.125, 0.288721), (0.189122701, 1 / 3), (0.25, 0.380577)],
)
def test_robots_that_may_fail_leave_behind_what_works_without_them(
    rate: float, building: float
) -> None:
    symbols = {"counting": "presence", "robot_model": "optimistic", "beta_h": 8.0, "beta_r": 30.0}
    params = fair_params("B", theory=symbols, defunct={"rate": rate})
    chosen = solve(fair_world("backstop"), params).at(0).pi_r
    assert chosen[2] == pytest.approx(building, abs=5e-7)
    assert math.fsum(chosen) == pytest.approx(1.0, abs=1e-14)
