"""What certificates assume, what is printed of that, and what refutes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from empo_bounds.certificate import FILE, FOLDER, Certificate
from empo_bounds.report import statement
from empo_core.cli.app import app
from empo_core.config import RunConfig
from empo_core.experiment import Experiment
from empo_core.runs.atomic import read_json

THEORY = {"beta_h": 5, "gamma_h": 0.95, "gamma_r": 0.95, "zeta": 2, "eta": 1.1, "x_agg": "sum"}
EXACT = {"name": "exact", "params": {"theory": THEORY, "rollouts": 0, "inspector": False}}


def certify(*options: object, code: int = 0) -> dict[str, Any]:
    """The certificate that the command prints as JSON; or its message where it is to fail."""
    done = CliRunner().invoke(app, ["certify", *map(str, options), "--json", "--quiet"])
    assert done.exit_code == code, done.stderr
    found: dict[str, Any] = {"message": done.stderr} if code else json.loads(done.stdout)
    return found


def run_of(folder: Path, world: str) -> Path:
    (folder / "world.yaml").write_text(world)
    reference = {"name": "table", "params": {"file": str(folder / "world.yaml")}}
    config = {"world_model": reference, "algorithm": EXACT, "runs": str(folder), "trackers": []}
    return Experiment.start(RunConfig.model_validate(config)).directory


@pytest.fixture(scope="module")
def press(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in whose world the robot may end all."""
    return run_of(tmp_path_factory.mktemp("press"), PRESS)


def printed(*options: object) -> str:
    return CliRunner().invoke(app, ["certify", *map(str, options)]).stdout


PRESS = """
{name: press, horizon: 4, initial: well, states: [well, crushed], terminal: [crushed],
 agents: [{name: ann, role: human, actions: [stay]},
   {name: bot, role: robot, actions: [idle, crush]}],
 transitions: [{state: well, actions: [stay, crush], to: crushed}, {state: well, to: well}],
 goals: {ann: [{name: well, states: well}, {name: anywhere, states: [well, crushed]}]}}
"""


TIMED = """
{name: timed, horizon: 4, initial: a, states: [a, b, c],
 agents: [{name: ann, role: human, actions: [be]}, {name: bot, role: robot, actions: [idle]}],
 transitions: [{state: a, to: {a: 0.999, b: 0.001}, duration: 1}, {state: b, to: c, duration: 3},
   {state: c, to: c}],
 goals: {ann: [{name: any, states: [a, b, c]}, {name: c, states: [c]}]}}
"""


BRIEF = """
{name: brief, initial: a, states: [a, b, c], terminal: [c],
 agents: [{name: ann, role: human, actions: [be]}, {name: bot, role: robot, actions: [idle]}],
 transitions: [{state: a, to: {b: 0.5, c: 0.5}, duration: 0.001}, {state: b, to: c}],
 goals: {ann: [{name: c, states: [c]}]}}
"""


LOST = """
{name: lost, horizon: 3, initial: well, states: [well, lost],
 agents: [{name: ann, role: human, actions: [be]}, {name: bot, role: robot, actions: [idle]}],
 transitions: [{state: well, to: {well: 0.5, lost: 0.5}}, {state: lost, to: lost}],
 goals: {ann: [{name: well, states: well}]}}
"""


def test_a_claim_about_ends_is_refuted_by_the_state_that_ends(press: Path) -> None:
    message = certify(press, "--no-early-end", code=3)["message"]
    assert "at time 1" in message
    assert "crushed" in message
    assert certify(press, "--min-power", 1)["start"]["v_r"][0] is not None


def test_in_a_timed_world_nothing_is_assumed_about_durations(tmp_path: Path) -> None:
    run = run_of(tmp_path, TIMED)
    found = certify(run, "--eps", 0.1, "--min-power", 0.5)
    assert found["claims"]["is_timed"]
    low, high = found["start"]["v_r"]
    assert found["vacuous_v_r"][0] <= low <= high <= found["vacuous_v_r"][1]
    assert certify(run, "--verify")["confirmed"]


def test_without_a_horizon_steps_may_be_so_short_that_chances_are_assumed(tmp_path: Path) -> None:
    run = run_of(tmp_path, BRIEF)
    assert "Assumed: chances in states that were not expanded are at most 1" in printed(
        run, "--eps", 1
    )
    assert certify(run, "--verify")["confirmed"]


def test_where_no_durations_are_met_that_is_an_assumption(press: Path) -> None:
    assumed = "Assumed: every step lasts 1"
    assert assumed in printed(press, "--eps", 1)
    assert assumed not in printed(press, "--eps", 0)  # Nothing is left to be assumed about.


def test_the_reason_why_v_r_is_unbounded_is_given(press: Path) -> None:
    certify(press, "--min-power", 1)
    sealed: Any = read_json(press / FOLDER / FILE)
    body = sealed["body"]
    body["start"]["v_r"][0] = None
    for open_pairs, min_power, reason in (
        (0, None, "no power at all (X_h = 0)"),
        (3, 0.0, "--min-power"),
        (3, 1.0, "how long steps"),
    ):
        body["claims"] |= {"open_pairs": open_pairs, "min_power": min_power}
        assert reason in " ".join(statement(Certificate.model_validate(body)))


def test_proofs_that_fail_by_rounding_alone_are_counted(tmp_path: Path) -> None:
    goals = "{ann: [{name: any, states: [well, lost]}]}"
    run = run_of(tmp_path, LOST.replace("{ann: [{name: well, states: well}]}", goals))
    found = printed(run, "--eps", 0, "--min-power", 1)
    assert "proved in 0 of 5 expanded pairs, in 5 more within rounding, refuted in none" in found
    assert certify(run, "--verify")["confirmed"]
