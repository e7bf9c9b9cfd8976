"""Explanations of robots averse to risk: bits, and costs of what follows, but no shares."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from fair_worlds import fair_params, fair_world, reference_data

from empo_core.errors import ConfigError
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_inspector import explain, inspect
from empo_inspector.costs import costs
from empo_inspector.decision import OneStep
from empo_theory.inspection import InspectionScope

# Arrival; presence with a horizon, and early ends that count on; durations and continuous accrual.
RUNS = [("pair", "E"), ("door", "C"), ("press", "G"), ("lottery", "G"), ("gate", "D")]
each_run = pytest.mark.parametrize(("world", "set_name"), RUNS)


@cache
def solved(world: str, set_name: str) -> ExactResult:
    # Robots that are hardly selective, so that whatever may follow is among a few samples.
    theory = reference_data()["sets"][set_name] | {"beta_r": 1.0}
    return solve(fair_world(world), fair_params(set_name, keep="all", theory=theory))


@each_run
def test_decisions_and_powers_in_bits_are_those_of_the_solver(world: str, set_name: str) -> None:
    result = solved(world, set_name)
    told, right = explain(result), result.at(0)
    reasons = told.reasons
    np.testing.assert_allclose(reasons.policies.q_r[0].numpy(), right.Q_r, 1e-12)
    np.testing.assert_allclose(reasons.policies.pi_r[0].numpy(), right.pi_r, 1e-11)
    assert abs(reasons.bellman_remainder) <= 1e-12 * abs(right.V_r)
    bits, expected = told.summary()["bits"], result.bits(right)
    assert isinstance(bits, dict)
    assert bits["L"] == pytest.approx(expected.long_term, rel=1e-12)
    assert isinstance(bits["I_h"], dict)
    assert list(bits["I_h"].values()) == pytest.approx(expected.individual, rel=1e-12)


@each_run
def test_sampled_costs_have_the_exact_mean_and_the_norm_that_is_q_r(
    world: str, set_name: str
) -> None:
    """The mean, and the mean of the power that Q_r is about, within five standard errors."""
    result = solved(world, set_name)
    rho, step = result.params.theory.rho, OneStep(result.inspection(InspectionScope()))
    policies = step.policies(torch.tensor([0]), 0)
    available = tuple(np.flatnonzero(~policies.q_r[0].isnan().numpy()).tolist())
    found = costs(step, 0, 0, policies, available, num_samples=20_000)
    norms = -policies.q_r[0, list(available)].numpy()
    for order, exact in ((1, found.expected), (rho, norms**rho)):
        powers = found.samples**order
        error = powers.std(1) / np.sqrt(powers.shape[1])
        assert (abs(powers.mean(1) - exact) <= 5 * error + 1e-12 * exact).all(), order


def test_an_explanation_shows_costs_instead_of_shares() -> None:
    result = solved("pair", "E")
    told, again = explain(result).summary(), explain(result).summary()
    assert told == again  # Trajectories have a seed.
    assert "goals" not in told
    found = told["costs"]
    assert isinstance(found, dict)
    for name in ("first", "second"):
        kinds = found[name]
        assert isinstance(kinds, dict)
        assert kinds["mean"] <= kinds["quantile_90"]  # type: ignore[operator]
    shown = explain(result)._repr_mimebundle_()["text/plain"]
    assert "90 % quantile" in shown
    assert "By steps" not in shown


def test_a_page_of_robots_averse_to_risk_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"theory\.rho 1"):
        inspect(solved("pair", "E"))
