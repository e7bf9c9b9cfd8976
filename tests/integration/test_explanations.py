"""Explanations of exact runs: the solver's numbers, and parts that sum to the difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fair_worlds import fair_world
from typer.testing import CliRunner

import empo_core
from empo_core.cli.app import app
from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.errors import ConfigError, SolveError, WorldError
from empo_exact.inspection import inspect
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_inspector import explain
from empo_inspector.decision import OneStep
from empo_inspector.sentences import sentences
from empo_inspector.why import find_reasons
from empo_theory.equations import human_policy, robot_policy
from empo_theory.inspection import Inspection, InspectionScope

# One robot; two; two humans and every symbol; chance; durations; no horizon and no grid.
WORLDS: dict[str, tuple[int | None, dict[str, Any]]] = {
    "multigrid/free_the_human": (8, {"gamma_h": 0.9, "gamma_r": 0.95}),
    "multigrid/two_robots": (5, {"xi": 2.0}),
    "multigrid/small_trolley": (
        4,
        {"zeta": 2.0, "xi": 1.5, "eta": 1.3, "x_agg": "sum", "u_agg": "sum", "beta_h": "inf"}
        | {"gamma_h": 0.9, "gamma_r": 0.8, "accrual": "continuous", "robot_model": "optimistic"},
    ),
    "multigrid/unsteady_room": (4, {"nu": 0.2, "beta_r": 100.0}),
    "table/confirmation": (None, {"gamma_r": 0.9, "accrual": "continuous", "gamma_h": 0.8}),
    "table/menu_size": (None, {"eta": 1.1}),
    # Where presence counts: early ends, the horizon, durations, a human that does not count.
    "fair/press": (
        None,
        {"counting": "presence", "early_end": "absorb", "gamma_h": 0.9, "gamma_r": 0.9},
    ),
    "fair/lottery": (
        None,
        {"counting": "presence", "early_end": "absorb", "gamma_r": 0.9, "gamma_h": 0.8}
        | {"accrual": "continuous", "robot_model": "even"},
    ),
    "fair/pair": (None, {"counting": "presence", "zeta": 2.0, "eta": 1.1, "u_agg": "sum"}),
    "fair/gate": (None, {"robot_model": "even", "xi": 2.0, "x_agg": "sum"}),
}
COUNTS = {"fair/gate": ["ann", "cat"]}
each_world = pytest.mark.parametrize("world", WORLDS)


@cache
def solved(world: str) -> ExactResult:
    steps, theory = WORLDS[world]
    params = {} if steps is None else {"max_steps": steps}
    counts = COUNTS.get(world)
    chosen = ExactParams.model_validate({"theory": theory, "keep": "all", "counts": counts})
    if world.startswith("fair/"):
        return solve(fair_world(world.removeprefix("fair/")), chosen)
    reference = WorldModelRef.model_validate({"name": world, "params": params})
    return solve(build(reference), chosen)


@cache
def inspected(world: str) -> Inspection:
    return inspect(solved(world), solved(world).params.theory, InspectionScope())


def decisions(world: str, max_states: int) -> Iterator[tuple[int, int]]:
    """Some states and times of a world at which somebody acts."""
    inspection = inspected(world)
    step = OneStep(inspection)
    times, states = np.nonzero(~np.isnan(inspection.v_r))
    chosen = np.random.default_rng(0).permutation(len(times))
    acting = (i for i in chosen if step.alive(torch.tensor([states[i]]), int(times[i]))[0])
    for i, _ in zip(acting, range(max_states), strict=False):
        yield int(states[i]), int(times[i])


@each_world
def test_decisions_are_those_of_the_solver(world: str) -> None:
    inspection, result = inspected(world), solved(world)
    step = OneStep(inspection)
    for state, time in decisions(world, 40):
        here = torch.tensor([state])
        policies = step.policies(here, time)
        outcomes = step.outcomes(here, time, policies)
        right = result.at(int(inspection.number[state]), time)
        pairs = [
            (policies.q_r[0], right.Q_r),
            (policies.pi_r[0], right.pi_r),
            (policies.pi_h[0], right.pi_h),
            (outcomes.v_e[0], right.V_e),
            (outcomes.x_h[0], np.array(list(right.X_h.values()))),
            (outcomes.u_r, np.array([right.U_r])),
            (outcomes.v_r, np.array([right.V_r])),
        ]
        for found, wanted in pairs:
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-20)


@each_world
@pytest.mark.parametrize("max_states", [25, pytest.param(170, marks=pytest.mark.slow)])
def test_parts_sum_to_the_difference(world: str, max_states: int) -> None:
    """Over steps, humans and goals, whichever two actions are compared."""
    random = np.random.default_rng(1)
    for state, time in decisions(world, max_states):
        q_r = OneStep(inspected(world)).policies(torch.tensor([state]), time).q_r[0]
        first, second = random.choice(np.flatnonzero(~q_r.isnan().numpy()), 2).tolist()
        found = find_reasons(inspected(world), state, time, first, second)
        assert found.gap == float(q_r[first] - q_r[second])
        assert abs(found.remainder) <= 1e-9 * abs(float(q_r[first]))
        assert all(sentences(found))


@each_world
def test_kernels_and_kept_values_give_the_same_parts(world: str) -> None:
    inspection = inspected(world)
    for state, time in decisions(world, 5):
        if (~OneStep(inspection).policies(torch.tensor([state]), time).q_r[0].isnan()).sum() < 2:
            continue
        by_kernels = find_reasons(inspection, state, time)
        by_values = find_reasons(replace(inspection, closed_loop=None), state, time)
        scale = 1e-12 * abs(float(by_kernels.policies.q_r[0, by_kernels.first]))
        np.testing.assert_allclose(by_kernels.parts, by_values.parts, 1e-9, scale)
        np.testing.assert_allclose(by_kernels.ends, by_values.ends, 1e-9, scale)


def test_a_human_policy_that_is_given_is_taken_as_it_is() -> None:
    """Habits and priors do not follow from the parameters, so their policies are kept."""
    assert inspected("multigrid/unsteady_room").v_m is None
    assert inspected("multigrid/two_robots").pi_h is None


def test_another_theory_changes_one_decision_and_not_what_follows() -> None:
    world = "multigrid/free_the_human"
    inspection, result = inspected(world), solved(world)
    theory = result.params.theory.model_copy(update={"beta_r": 2.0, "beta_h": 3.0})
    found = OneStep(inspection, theory).policies(torch.tensor([0]), 0)
    q_m, available = found.q_m[0], torch.ones(found.q_m[0].shape, dtype=torch.bool)
    beta = torch.full(q_m.shape[:1], 3.0).double()
    done = torch.from_numpy(inspection.achieved[0])
    torch.testing.assert_close(found.pi_h[0][~done], human_policy(q_m, beta, available)[~done])
    robots = robot_policy(found.q_r[0], 2.0, torch.ones(found.q_r.shape[1], dtype=torch.bool))
    torch.testing.assert_close(found.pi_r[0], robots)
    assert OneStep(inspection).policies(torch.tensor([0]), 0).pi_r[0, 3] != found.pi_r[0, 3]


def test_a_result_explains_itself() -> None:
    result = solved("multigrid/free_the_human")
    found = explain(result, action="forward", versus="still")
    assert found.reasons.gap == pytest.approx(result.at(0).Q_r[3] - result.at(0).Q_r[0], rel=1e-12)
    assert "forward rather than still: Q_r" in found.sentences()[0]
    later = explain(result, state=5, time=3, action=0, versus=1).reasons
    assert (later.number, later.time) == (5, 3)


def test_equally_good_actions_have_no_bars() -> None:
    """Rounding errors differ, and are not worth a bar."""
    found = explain(solved("multigrid/free_the_human"), action="right", versus="left")
    assert found.reasons.is_tie
    shown = found._repr_mimebundle_()["text/plain"]
    assert "█" not in shown[shown.index("By steps from now") :]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time": 8}, "time 8 .*0 to 7"),
        ({"state": 10**6}, "state number 1000000"),
        ({"state": 100}, "0 steps"),
    ],
)
def test_what_cannot_be_explained_is_said(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(WorldError, match=message):
        explain(solved("multigrid/free_the_human"), **arguments)


@pytest.mark.parametrize(
    ("action", "message"), [("forwards", "'forwards'.*'forward'"), (9, "no action 9")]
)
def test_an_action_that_the_robots_do_not_have_is_refused(action: int | str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        explain(solved("multigrid/free_the_human"), action=action)


def test_values_that_were_not_kept_are_asked_for() -> None:
    world = solved("multigrid/two_robots").problem.world
    with pytest.raises(SolveError, match=r"algorithm\.params\.keep=all"):
        explain(solve(world, ExactParams(keep="none")))


def explained(run_dir: str, *options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["explain", run_dir, *options, "--json"])
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_command_shows_state_policy_parts_and_sentences(run_dir: str) -> None:
    done = CliRunner().invoke(app, ["explain", run_dir])
    assert done.exit_code == 0, done.stderr
    for words in ("We >0 Ro", "Robot's policy", "corridor east", "By steps", "rather than"):
        assert words in done.stdout


def test_the_three_ways_to_name_a_state_lead_to_the_same(run_dir: str) -> None:
    by_path = explained(run_dir, "--path", "forward,forward")
    assert by_path["time"] == 2
    number = ("--state", str(by_path["state"]), "--time", "2")
    assert explained(run_dir, *number) == by_path
    row = torch.tensor(by_path["row"], dtype=torch.int16)
    world = solved("multigrid/free_the_human").problem.world
    cells, headings = world.positions(row[None])[0], world.headings(row[None])[0]  # type: ignore[attr-defined]
    names = [agent.name for agent in world.spec.agents]
    places = "; ".join(
        f"{name}@({x},{y})→{'ESWN'[heading]}"
        for name, (x, y), heading in zip(names, cells.tolist(), headings.tolist(), strict=True)
    )
    assert explained(run_dir, "--at", places, "--time", "2") == by_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--at", "human 1@(2,2)", "--time", "2"], "Say where more agents are"),
        (["--at", "human 1@(4,4)"], "no such state at time 0"),
        (["--at", "human 7@(2,2)"], "agents are 'robot 0 (grey)'"),
        (["--at", "human 1 (2,2)"], "write for example 'human 1@(2,1)'"),
        (["--at", "human 1@(2,2)→up"], "agents look to E, S, W or N"),
        (["--path", "forward,fly"], "there is no action 'fly'"),
        (["--path", ",".join(["still"] * 7)], "the episode is over before"),
        (["--state", "3", "--path", "still"], "give one of --state, --at and --path"),
        (["--state", "9999999"], "there is no such state"),
        (["--time", "6"], "times go from 0 to 5"),
    ],
)
def test_a_state_that_cannot_be_meant_is_refused_with_what_can(
    run_dir: str, options: list[str], message: str
) -> None:
    done = CliRunner().invoke(app, ["explain", run_dir, *options])
    assert (done.exit_code, "Traceback" in done.stderr) == (2, False)
    assert message in " ".join(done.stderr.split())


def test_a_state_of_a_table_is_named(tmp_path: Path) -> None:
    config = {"world_model": "table/menu_size", "algorithm": "exact", "runs": str(tmp_path)}
    run = str(empo_core.run({**config, "trackers": []}).directory)
    start = explained(run)
    assert explained(run, "--at", start["description"].strip()) == start
    done = CliRunner().invoke(app, ["explain", run, "--at", start["description"].strip() + "x"])
    assert done.exit_code == 2
    assert f"Did you mean {start['description'].strip()!r}?" in " ".join(done.stderr.split())


FATE = """
{name: fate, horizon: 5, initial: s, states: [s, a1, a2, a3, b1, b2, b3],
 agents: [{name: ann, role: human, actions: [be]}, {name: bot, role: robot, actions: [good, bad]}],
 transitions: [{state: s, actions: [be, good], to: a1}, {state: s, actions: [be, bad], to: b1},
   {state: a1, to: a2}, {state: a2, to: a3}, {state: a3, to: a3},
   {state: b1, to: b2}, {state: b2, to: b3}, {state: b3, to: b3}],
 goals: {ann: [{name: home, states: [s, a1, a2, a3, b1, b2]},
   {name: any, states: [s, a1, a2, a3, b1, b2, b3]}]}}
"""


@pytest.fixture(scope="module")
def fate(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run in whose world a bad action takes a goal away that looks safe at first."""
    folder = tmp_path_factory.mktemp("fate")
    (folder / "world.yaml").write_text(FATE)
    (folder / "config.yaml").write_text(
        f"world_model: {{name: table, params: {{file: {folder / 'world.yaml'}}}}}\n"
        "algorithm: {name: exact, params: {theory: {gamma_r: 0.9, gamma_h: 0.95}, rollouts: 0}}\n"
        f"runs: {folder}\ntrackers: []\n"
    )
    done = CliRunner().invoke(app, ["run", str(folder / "config.yaml"), "--json"])
    found: str = json.loads(done.stdout)["run_dir"]
    return found


def test_a_part_is_told_with_the_step_the_state_and_the_chances_where_it_arises(fate: str) -> None:
    done = CliRunner().invoke(app, ["explain", fate, "--json"])
    found = json.loads(done.stdout)
    home = next(goal for goal in found["goals"] if goal["goal"] == "home")
    assert home["V_e_first"] == home["V_e_second"] == 1.0  # Which is no reason.
    assert (home["step"], home["V_e_first_there"], home["V_e_second_there"]) == (2, 1.0, 0.0)
    assert home["achieved"]
    there = json.loads(
        CliRunner().invoke(app, ["explain", fate, "--state", str(home["state"]), "--time", "2",
                                 "--json"]).stdout or "{}"
    )  # fmt: skip
    assert there == {} or "b2" in there["description"] or "a2" in there["description"]
    said = " ".join(found["sentences"])
    assert "2 steps from now, ann reaches 'home' (achieved now) with discounted chance 1.00" in said
    assert f"instead of 0.00, most of all from state {home['state']}" in said


def test_a_goal_that_one_is_in_is_called_achieved(fate: str) -> None:
    root = json.loads((Path(fate) / "results/summary.json").read_text())["root"]
    assert [goal["achieved"] for goal in root["goals"]] == [True, True]
    assert [goal["V_e"] for goal in root["goals"]] == pytest.approx([1.0, 1.0])
    shown = CliRunner().invoke(app, ["explain", fate]).stdout
    assert "home (achieved)" in shown


def test_the_report_says_achieved_instead_of_hopes(fate: str) -> None:
    command = ["run", f"{Path(fate) / 'config.yaml'}", "seed=1"]
    lines = CliRunner().invoke(app, command).stdout.splitlines()
    (row,) = (line for line in lines if " home " in line)
    assert row.count("achieved") == 2  # Hoped for, and attainable.
    assert "achieved (1.000000)" in row
