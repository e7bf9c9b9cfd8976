"""Explanations of robots that may fail: both layers are one game, with the solver's numbers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from fair_worlds import GOLDEN, fair_params, fair_world
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.errors import ConfigError, WorldError
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_inspector import explain, inspect
from empo_inspector.costs import costs
from empo_inspector.decision import OneStep
from empo_inspector.why import find_reasons
from empo_theory.inspection import InspectionScope

# Presence; arrival; durations, continuous accrual and early ends that count on; three humans and a
# habit; a named null action; robots that fail at once; aversion to risk.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "presence": ("backstop", {}),
    "arrival": ("pair", {"theory": {"counting": "arrival", "robot_model": "optimistic"}}),
    "durations": (
        "lottery",
        {"theory": {"early_end": "absorb", "accrual": "continuous", "gamma_r": 0.9}},
    ),
    "habit": ("gate", {"theory": {"nu": 0.2, "robot_model": "even"}, "habit": "uniform"}),
    "null action": ("pair", {"defunct": {"rate": 0.4, "null_action": "help_ben"}}),
    "at once": ("door", {"defunct": {"rate": 1.0}}),
    "risk": ("pair", {"theory": {"rho": 3, "beta_r": 2.0}}),
}
each_run = pytest.mark.parametrize("run", RUNS)


@cache
def solved(run: str) -> ExactResult:
    world, params = RUNS[run]
    return solve(fair_world(world), fair_params("B", **{"defunct": {"rate": 0.25}, **params}))


@each_run
def test_decisions_of_both_layers_are_those_of_the_solver(run: str) -> None:
    result = solved(run)
    assert result.failed is not None
    inspection = result.inspection(InspectionScope())
    step, states = OneStep(inspection), result.graph.num_states
    for time, here in zip(*np.nonzero(~np.isnan(inspection.v_r)), strict=True):
        where = torch.tensor([here])
        if not step.alive(where, int(time))[0]:
            continue
        policies = step.policies(where, int(time))
        outcomes = step.outcomes(where, int(time), policies)
        has_failed, number = divmod(int(inspection.number[here]), states)
        right = (result.failed if has_failed else result).at(number, int(time))
        available = ~policies.q_r[0].isnan().numpy()
        pairs = [
            (policies.q_r[0][available], right.Q_r[~np.isnan(right.Q_r)]),
            (policies.pi_r[0][available], right.pi_r[~np.isnan(right.Q_r)]),
            (policies.pi_h[0], right.pi_h),
            (outcomes.v_e[0], right.V_e),
            (outcomes.x_h[0], np.array(list(right.X_h.values()))),
            (outcomes.v_r, np.array([right.V_r])),
        ]
        for mine, its in pairs:
            np.testing.assert_allclose(mine.numpy(), its, rtol=1e-11, atol=1e-15)


@each_run
def test_parts_or_costs_are_those_of_episodes_in_which_robots_fail(run: str) -> None:
    result = solved(run)
    inspection = result.inspection(InspectionScope())
    reasons = find_reasons(inspection)
    if reasons.costs is None:
        assert abs(reasons.remainder) <= 1e-10 * abs(float(reasons.policies.q_r.nan_to_num().min()))
        return
    assert not len(reasons.parts)
    policies = OneStep(inspection).policies(torch.tensor([0]), 0)
    sampled = costs(OneStep(inspection), 0, 0, policies, (0, 1, 2), num_samples=20_000)
    for order, exact in ((1, sampled.expected), (3, (-policies.q_r[0].numpy()) ** 3)):
        powers = sampled.samples**order
        error = powers.std(1) / np.sqrt(powers.shape[1])
        assert (abs(powers.mean(1) - exact) <= 5 * error).all()


def test_states_in_which_robots_have_failed_have_numbers_of_their_own() -> None:
    result = solved("presence")
    total = result.graph.num_states
    inspection = result.inspection(InspectionScope())
    assert inspection.first_failed == total
    assert inspection.number.tolist() == [*range(2 * total)]
    with pytest.raises(WorldError, match="only action"):  # A failed robot has no choice.
        explain(result, state=total, time=1)
    with pytest.raises(WorldError, match="after 0 steps"):
        explain(result, state=total, time=0)
    soon = solve(fair_world("backstop"), fair_params("B", defunct={"rate": 0.9}))
    told = explain(soon, action="build", versus="carry")
    assert "robots have failed" not in told._repr_mimebundle_()["text/plain"].splitlines()[0]
    assert any("(robots have failed)" in sentence for sentence in told.sentences())


def test_runs_of_robots_that_may_fail_are_explained_and_have_no_page(tmp_path: Path) -> None:
    (game,) = (g for g in yaml.safe_load((GOLDEN / "fair_worlds.yaml").read_text())
               if g["name"] == "pair")  # fmt: skip
    (tmp_path / "pair.json").write_text(json.dumps(game))
    config = {
        "world_model": {"name": "table", "params": {"file": "pair.json"}},
        "algorithm": {"name": "exact", "params": {"preset": "fair", "defunct": {"rate": 0.25}}},
        "runs": str(tmp_path / "runs"),
    }
    (tmp_path / "run.json").write_text(json.dumps(config))
    assert CliRunner().invoke(app, ["run", str(tmp_path / "run.json")]).exit_code == 0
    (run,) = (tmp_path / "runs").iterdir()
    told = CliRunner().invoke(app, ["explain", str(run), "--json"])
    assert told.exit_code == 0, told.stderr
    data = json.loads(told.stdout)
    right = solve(fair_world("pair"), fair_params("B", defunct={"rate": 0.25})).at(0)
    assert [*data["Q_r"].values()] == pytest.approx(right.Q_r, rel=1e-12)
    assert not (run / "inspector.html").exists()
    page = CliRunner().invoke(app, ["inspect", str(run)])
    assert page.exit_code == 2
    assert "defunct.rate" in page.stderr
    with pytest.raises(ConfigError, match="defunct"):
        inspect(solved("presence"))
