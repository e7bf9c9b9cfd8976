"""Reports and summaries warn of terminal states that robots are drawn to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import WorldModel
from empo_core.runs.atomic import strict_json
from empo_exact.algorithm import Exact
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve

PRESS = """
{name: press, horizon: 5, initial: well, states: [well, crushed], terminal: [crushed],
 agents: [{name: ann, role: human, actions: [stay]},
          {name: bot, role: robot, actions: [idle, crush]}],
 transitions: [{state: well, actions: [stay, crush], to: crushed}, {state: well, to: well}],
 goals: {ann: [{name: well, states: well}, {name: anywhere, states: [well, crushed]}]}}
"""
REMEDY = PRESS.replace(", terminal: [crushed]", "").replace(
    "to: well}]", "to: well}, {state: crushed, to: crushed}]"
)
PHASE2: dict[str, Any] = {
    "human_prior": "uniform",
    "values": {"q_r": "lookup", "v_h_e": "lookup"},
    "total_steps": 4,
    "warm_up": {"v_h_e": 1, "q_r": 1, "ramp": 1},
    "replay": {"batch_size": 2},
    "collector": {"name": "sync", "params": {"min_env_steps": 2}},
}
ROLLOUT: dict[str, Any] = {
    "environment": {
        "name": "world",
        "params": {"reward": {"kind": "power", "algorithm": "exact"}},
    },
    "total_steps": 64,
}


@pytest.mark.parametrize(("name", "params"), [("phase2", PHASE2), ("rollout", ROLLOUT)])
@pytest.mark.parametrize("is_terminal", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_report_of_a_learner_says_that_a_terminal_state_is_better_than_every_other(
    tmp_path: Path, name: str, params: dict[str, Any], is_terminal: bool
) -> None:
    (tmp_path / "press.yaml").write_text(PRESS if is_terminal else REMEDY)
    config = {
        "world_model": {"name": "table", "params": {"file": "press.yaml"}},
        "algorithm": {"name": name, "params": params},
        "runs": str(tmp_path / "runs"),
    }
    (tmp_path / "run.json").write_text(strict_json(config))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "run.json")])
    assert done.exit_code == 0, done.stderr
    (summary,) = (tmp_path / "runs").glob("*/results/summary.json")
    warnings = json.loads(summary.read_text())["warnings"]
    found = ["The state is: crushed" in " ".join(each.split()) for each in warnings]
    assert any(found) is is_terminal
    said = " ".join(done.stdout.split())
    assert ("warning: A terminal state is better than every other state" in said) is is_terminal
    assert ("The state is: crushed" in said) is is_terminal


def press(tmp_path: Path, text: str) -> WorldModel:
    (tmp_path / "press.yaml").write_text(text)
    reference = {"name": "table", "params": {"file": str(tmp_path / "press.yaml")}}
    world: WorldModel = build(WorldModelRef.model_validate(reference))
    return world


@pytest.mark.parametrize("keep", ["all", "none"])
def test_a_terminal_state_that_is_better_than_all_others_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keep: str
) -> None:
    world, params = press(tmp_path, PRESS), ExactParams.model_validate({"keep": keep})
    result = solve(world, params)
    assert result.at(0).pi_r[1] > 0.999
    (found,) = result.summary()["warnings"]
    for warning in (found, Exact(params).check(world)["warning"], caplog.text):
        assert "terminal state is better than every other" in warning
        assert "crushed" in warning


@pytest.mark.parametrize("remedy", ["absorbing", "terminal_value"])
def test_both_remedies_keep_the_robot_away_and_are_not_warned_of(
    tmp_path: Path, remedy: str
) -> None:
    world = press(tmp_path, REMEDY if remedy == "absorbing" else PRESS)
    is_lower = remedy == "terminal_value"
    # At the horizon V_r is terminal_value, too: lowering it helps where that is discounted more.
    theory = {"terminal_value": -100.0, "gamma_r": 0.5} if is_lower else {}
    params = ExactParams.model_validate({"theory": theory})
    result = solve(world, params)
    assert result.at(0).pi_r[1] < 0.01
    assert result.summary()["warnings"] == []
    assert "warning" not in Exact(params).check(world)
