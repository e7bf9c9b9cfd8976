"""Inspections of learned values: those of the learner, and what they leave unexplained."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import empo_inspector
from empo_core.cli.app import app
from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.errors import ConfigError, WorldError
from empo_core.protocols import WorldModel
from empo_exact.inspection import inspect
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_inspector.container import unpack
from empo_inspector.decision import OneStep
from empo_inspector.decisive import worth_a_look
from empo_inspector.error_sizes import histograms
from empo_inspector.right_values import compared
from empo_inspector.saved_inspection import inspect_run
from empo_inspector.sentences import sentences
from empo_inspector.why import find_reasons, goal_gains
from empo_phase2.algorithm import Phase2
from empo_phase2.inspection import Estimates, LearnedRun
from empo_phase2.params import Phase2Params
from empo_testing.algorithm import fresh
from empo_theory.inspection import NOT_KEPT, Inspection, InspectionScope, all_times

WORLD: dict[str, Any] = {"name": "multigrid/trivial", "params": {"max_steps": 5}}


@cache
def solved(world: str = "multigrid/trivial", max_steps: int = 5) -> ExactResult:
    reference = {"name": world, "params": {"max_steps": max_steps}}
    built: WorldModel = build(WorldModelRef.model_validate(reference))
    return solve(built, ExactParams.model_validate({"keep": "all"}))


def as_learned(result: ExactResult, spoil: float = 0.0) -> LearnedRun:
    """Exact values in the place of learned ones, V_r and Q_r off by shares that differ."""

    def estimate(rows: torch.Tensor, left: torch.Tensor) -> Estimates:
        time = (result.spec.horizon or 1) - int(left[0])
        numbers = [result.index(row.numpy()) for row in rows]
        found = [result.at(number, time) for number in numbers]
        v_r = torch.tensor([each.V_r for each in found], dtype=torch.float64)
        q_r = torch.from_numpy(np.stack([each.Q_r for each in found]))
        phase = torch.tensor(numbers).double()[:, None] + torch.arange(q_r.shape[1])
        return Estimates(
            v_r * (1 + spoil * phase[:, 0].sin()),
            torch.from_numpy(np.stack([each.V_e for each in found])),
            q_r * (1 + spoil * phase.sin()),
            torch.from_numpy(np.stack([each.pi_h for each in found])),
        )

    return LearnedRun(result.problem.world, result.params.theory, 0.0, estimate)


@cache
def spoilt() -> Inspection:
    return as_learned(solved(), 0.1).inspection(InspectionScope())


def test_exact_values_give_the_inspection_of_the_solver() -> None:
    right = inspect(solved(), solved().params.theory, InspectionScope())
    found = as_learned(solved()).inspection(InspectionScope())
    assert found.total == right.total
    place = np.array([solved().index(row) for row in found.rows])
    assert np.array_equal(found.achieved, right.achieved[place])
    here, there = OneStep(found), OneStep(right)
    for time in range(5):
        known = np.flatnonzero(~np.isnan(found.v_r[time]))
        goes_on = there.alive(torch.arange(right.num_states), time).numpy()
        assert len(known) == (goes_on & ~np.isnan(right.v_r[time])).sum()
        np.testing.assert_array_equal(found.v_r[time][known], right.v_r[time][place[known]])
        one = here.policies(torch.from_numpy(known), time)
        other = there.policies(torch.from_numpy(place[known]), time)
        torch.testing.assert_close(one.pi_r, other.pi_r, rtol=1e-12, atol=0)
        torch.testing.assert_close(one.lookahead, other.q_r, rtol=1e-12, atol=0, equal_nan=True)
        remainder = here.bellman_remainder(torch.from_numpy(known), time, one)
        assert remainder.abs().max() < 1e-12 * np.nanmax(np.abs(found.v_r))


def test_bellman_remainders_here_and_later_make_up_what_parts_leave() -> None:
    """Of the difference of two Q_r; each counts with the difference of both actions' chances."""
    inspection, first, second = spoilt(), 3, 0
    found = find_reasons(inspection, 0, 0, first, second)
    step = OneStep(inspection)
    chosen = torch.eye(inspection.spec.num_robot_actions).double()[[first, second]]
    policies = found.policies
    ahead = policies.q_r[0] - policies.lookahead[0]
    total = float(ahead[first] - ahead[second])
    states, mass = step.follow(torch.tensor([0]), policies.chance, chosen[None])
    for time in range(1, 5):
        alive = step.alive(states, time)
        states, mass = states[alive], mass[alive]
        policies = step.policies(states, time)
        left = step.bellman_remainder(states, time, policies)
        total += float(((mass[:, 0] - mass[:, 1]) * left).sum())
        states, mass = step.follow(
            states, policies.chance, mass[:, :, None] * policies.pi_r[:, None]
        )
    assert found.remainder == pytest.approx(total, rel=1e-9)
    assert abs(total) > 0.01 * abs(found.gap)
    pairs = [(one, other) for one in range(4) for other in range(4) if one != other]
    told = [" ".join(sentences(find_reasons(inspection, 0, 0, *pair))) for pair in pairs]
    assert any("Bellman remainder" in each for each in told)


def test_an_x_h_below_the_least_counts_as_that_and_parts_still_sum() -> None:
    run = as_learned(solved("multigrid/two_robots", 4))
    raised = replace(run, x_h_floor=0.5).inspection(InspectionScope())
    step = OneStep(raised)
    v_e = torch.from_numpy(raised.v_e[1][~np.isnan(raised.v_r[1])])
    _, u_r = step.reward(v_e)
    theory = run.theory
    assert u_r.min() == pytest.approx(-((0.5**-theory.xi) ** theory.eta))
    gains = goal_gains(step, v_e, v_e[-1])
    torch.testing.assert_close(gains.sum(1), u_r - u_r[-1], rtol=1e-9, atol=1e-12)


def test_states_of_episodes_are_kept_where_not_all_fit() -> None:
    result = solved("multigrid/free_the_human", 8)
    whole = as_learned(result).inspection(InspectionScope())
    part = as_learned(result).inspection(InspectionScope(max_bytes=300_000))
    assert part.total is None
    assert 20 < part.num_states < whole.num_states
    assert np.array_equal(part.rows[0], whole.rows[0])
    assert len(np.unique(part.rows, axis=0)) == part.num_states
    bounds = part.offsets[:: result.spec.num_joint_actions]
    lost = np.add.reduceat(part.successor == NOT_KEPT, bounds[:-1].clip(max=bounds[-1] - 1))
    closed = np.flatnonzero((lost == 0) & (np.diff(bounds) > 0) & ~np.isnan(part.v_r[5]))
    assert len(closed) > 5
    place = np.array([np.flatnonzero((whole.rows == row).all(1))[0] for row in part.rows[closed]])
    here, there = OneStep(part), OneStep(whole)
    one = here.policies(torch.from_numpy(closed), 5)
    other = there.policies(torch.from_numpy(place), 5)
    torch.testing.assert_close(one.lookahead, other.lookahead, rtol=0, atol=0, equal_nan=True)
    assert any(part.v_r[0].tolist())


def test_the_start_may_be_elsewhere_and_later() -> None:
    run = as_learned(solved())
    whole = run.inspection(InspectionScope())
    later = int(np.flatnonzero(np.isnan(whole.v_r[1]) & ~np.isnan(whole.v_r[2]))[0])
    found = run.inspection(InspectionScope(start=whole.rows[later], time=2))
    assert found.v_r[0][0] == whole.v_r[2][later]
    assert found.first_time == 2
    for wanted, says in (
        (InspectionScope(start=whole.rows[later], time=1), "1 steps"),
        (InspectionScope(start=whole.rows[0][:2]), "words, not 2"),
        (InspectionScope(time=5), "time 5"),
        (InspectionScope(times=(7,)), "time 7: .*0 to 4"),
    ):
        with pytest.raises(WorldError, match=says):
            run.inspection(wanted)


def test_errors_of_v_r_are_listed_by_chance_times_size() -> None:
    exact = inspect(solved(), solved().params.theory, InspectionScope())
    errors = worth_a_look(compared(spoilt(), exact), 0).errors
    products = [chance * error for _, _, chance, error in errors]
    assert products == sorted(products, reverse=True)
    for state, time, _, error in errors:
        number = solved().index(spoilt().rows[int(state)])
        assert error == pytest.approx(abs(0.1 * np.sin(number)), rel=1e-6)
        assert time < 5
    assert worth_a_look(spoilt(), 0).errors  # Of Bellman remainders.
    assert not worth_a_look(exact, 0).errors


def test_sizes_of_errors_are_counted_by_powers_of_ten() -> None:
    exact = inspect(solved(), solved().params.theory, InspectionScope())
    whole = compared(spoilt(), exact)
    of_v_r, of_v_e = histograms(whole, InspectionScope())
    assert whole.right is not None
    errors = np.abs(spoilt().v_r / whole.right.v_r - 1)
    known = errors[~np.isnan(errors)]
    assert sum(of_v_r.counts) == len(known)
    assert of_v_r.counts[8] == ((known > 0.1) & (known <= 1)).sum()
    assert of_v_r.counts[7] == ((known > 0.01) & (known <= 0.1)).sum() > 0
    assert (of_v_r.mean, of_v_r.worst) == pytest.approx((known.mean(), known.max()))
    assert of_v_e.counts == [(~np.isnan(spoilt().v_e)).sum(), *[0] * 9]  # They are the right ones.
    assert (
        sum(histograms(whole, InspectionScope(times=(4,)))[0].counts)
        == (~np.isnan(errors[4])).sum()
    )
    assert histograms(spoilt(), InspectionScope()) == []


def test_only_a_solved_run_of_the_same_problem_is_compared() -> None:
    exact = inspect(solved(), solved().params.theory, InspectionScope())
    shorter = replace(exact, spec=replace(exact.spec, horizon=4))
    bolder = replace(exact, theory=exact.theory.model_copy(update={"beta_r": 3.0}))
    colder = replace(exact, theory=exact.theory.model_copy(update={"beta_h": 1.0}))
    for one, other, says in (
        (exact, exact, "exact itself"),
        (spoilt(), spoilt(), "learned"),
        (spoilt(), shorter, "horizon"),
        (spoilt(), bolder, "beta_r 3.0, .*10.0"),
        (spoilt(), colder, "humans"),
    ):
        with pytest.raises(ConfigError, match=rf"--exact: .*{says}"):
            compared(one, other)


SETTINGS = """\
world_model: {name: multigrid/trivial, params: {max_steps: 5}}
seed: 0
algorithm:
  name: phase2
  params:
    human_prior: {name: exact, params: {theory: {beta_h: 10.0}}}
    values: {q_r: lookup, v_h_e: lookup}
    total_steps: 600
    warm_up: {v_h_e: 100, q_r: 100, ramp: 100}
    optimiser: {lr: 1.0, target_interval: 5}
    collector: {name: sync, params: {min_env_steps: 3000}}
    inspector: true
    reporting: {compare: exact, evaluation_interval: 0}
"""


def command(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learned")
    (folder / "tables.yaml").write_text(SETTINGS, "utf-8")
    command("run", folder / "tables.yaml", "--quiet", f"runs={folder / 'runs'}")
    (directory,) = (folder / "runs").iterdir()
    return directory


@pytest.mark.parametrize("network", ["lookup", "mlp", "grid-conv"])
def test_a_learned_result_shows_and_explains_itself(network: str, tmp_path: Path) -> None:
    values = network if network == "lookup" else {"name": network, "params": {"hidden": 8}}
    settings = {
        "human_prior": "path-heuristic",
        "values": {"q_r": values, "v_h_e": values},
        "total_steps": 6,
        "warm_up": {"v_h_e": 1, "q_r": 1, "ramp": 1},
        "collector": {"name": "sync", "params": {"min_env_steps": 300}},
    }
    world: WorldModel = build(WorldModelRef.model_validate(WORLD))
    algorithm, context = Phase2(Phase2Params.model_validate(settings)), fresh(world, tmp_path)
    result = algorithm.run(context)
    data = re.search(r'id="data">([^<]*)<', empo_inspector.inspect(result).text)
    assert data is not None
    _, arrays = unpack(base64.b64decode(data[1]))
    saved = algorithm.inspection(context, InspectionScope())
    np.testing.assert_allclose(arrays["q_r"], saved.q_r, rtol=1e-5, equal_nan=True)
    start = result.root
    np.testing.assert_allclose(arrays["q_r"][0, 0], start.q_r[0], rtol=1e-5)
    np.testing.assert_allclose(arrays["v_e"][0, 0], start.v_h_e[0], rtol=1e-5, atol=1e-7)
    told = empo_inspector.explain(result, action="forward", versus="left")
    gap = float(start.q_r[0, 3] - start.q_r[0, 1])
    assert told.reasons.gap == pytest.approx(gap, rel=1e-5)
    row = saved.rows[np.flatnonzero(~np.isnan(saved.v_r[2]))[3]]
    later = empo_inspector.explain(result, row.tolist(), time=2).reasons
    assert later.parts.sum() + later.ends.sum() + later.remainder == pytest.approx(later.gap)


def test_a_learned_run_is_inspected_with_its_exact_values(run_directory: Path) -> None:
    assert (run_directory / "inspector.html").stat().st_size > 50_000
    found, world = inspect_run(run_directory)
    assert found.q_r is not None
    assert found.right is not None
    assert world.spec.name == "Trivial"
    known = ~np.isnan(found.right.v_r)
    off = np.abs(found.v_r[known] / found.right.v_r[known] - 1)
    assert off.mean() < 0.05
    exact = solved()
    place = np.array([exact.index(row) for row in found.rows])
    whole = inspect(exact, exact.params.theory, InspectionScope())
    values = all_times(whole.v_r)[:, place]
    np.testing.assert_allclose(found.right.v_r[known], values[known], rtol=1e-6)


def test_the_commands_take_learned_runs(run_directory: Path, tmp_path: Path) -> None:
    page, data = tmp_path / "page.html", tmp_path / "data"
    command(
        "inspect", run_directory, "-o", page, "--data", data, "--times", "0,3", "--precision",
        "compact",
    )  # fmt: skip
    header, arrays = unpack(data.read_bytes())
    assert header.coverage.times == [0, 1, 3, 4]
    assert header.precision == "compact"
    assert {arrays[name].dtype for name in ("v_r", "q_r", "exact_v_r")} == {np.dtype("<f4")}
    assert len(arrays["v_e"]) == 4
    assert header.errors
    told = json.loads(command("explain", run_directory, "--json"))
    assert told["bellman_remainder"] != 0
    parts = sum(goal["part"] for goal in told["goals"]) + told["ends"] + told["remainder"]
    assert parts == pytest.approx(told["gap"], rel=1e-9)


def test_values_of_a_solved_run_stand_beside_learned_ones(
    run_directory: Path, tmp_path: Path
) -> None:
    command("run", "multigrid/trivial", "world_model.params.max_steps=5", "algorithm.name=exact",
            "--quiet", f"runs={tmp_path / 'runs'}")  # fmt: skip
    (exact,) = (tmp_path / "runs").iterdir()
    data = tmp_path / "data"
    command("inspect", run_directory, "-o", tmp_path / "p.html", "--data", data, "--exact", exact)
    _, arrays = unpack(data.read_bytes())
    assert np.nanmax(np.abs(arrays["v_r"] / arrays["exact_v_r"] - 1)) < 0.5
    refused = CliRunner().invoke(app, ["inspect", str(exact), "--exact", str(exact)])
    assert refused.exit_code != 0
    assert "exact itself" in refused.output
