"""What cannot be had of the fair objective is refused in one sentence, at its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fair_worlds import GOLDEN, fair_params, fair_world
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.errors import ConfigError, SolveError
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_tabular.table import Table
from empo_tabular.world import world_of

FAIR: dict[str, Any] = {"preset": "fair", "compute": {"workers": 1}}


def changed(name: str, **more: Any) -> Any:
    """One of the worlds with other entries."""
    tables = yaml.safe_load((GOLDEN / "fair_worlds.yaml").read_text())
    (table,) = (table for table in tables if table["name"] == name)
    return world_of(Table.model_validate({**table, **more}))


def refused(tmp_path: Path, *changes: str, command: str = "check") -> str:
    """What a command says of a config that it refuses."""
    tables = yaml.safe_load((GOLDEN / "fair_worlds.yaml").read_text())
    (tmp_path / "door.json").write_text(json.dumps(tables[0]))
    config = {
        "world_model": {"name": "table", "params": {"file": "door.json"}},
        "algorithm": {"name": "exact", "params": FAIR},
        "runs": str(tmp_path / "runs"),
    }
    (tmp_path / "run.json").write_text(json.dumps(config))
    done = CliRunner().invoke(app, [command, str(tmp_path / "run.json"), *changes])
    assert done.exit_code == 2, done.stdout
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


@pytest.mark.parametrize("rho", ["1.5", "40", "0", "true", ".inf", "lots"])
def test_rho_is_a_whole_number_from_1_to_16(tmp_path: Path, rho: str) -> None:
    said = refused(tmp_path, f"algorithm.params.theory.rho={rho}")
    assert "algorithm.params.theory.rho" in said
    assert "whole number from 1 to 16" in said


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (["theory.terminal_value=-1"], "terminal_value"),
        (["theory.counting=arrival", "theory.early_end=absorb"], "early_end"),
        (["counts=[]"], "counts"),
        (["counts=[eve]"], "counts"),
        (["defunct.rate=2"], "defunct.rate"),
        (["defunct.rate=0.1", "defunct.null_action=sleep"], "defunct.null_action"),
        (["defunct.rate=0.1", "reduce=[lump]"], "reduce"),
        (["defunct.rate=0.1", "compute.parts=2"], "defunct.rate"),
        (["counts=[ann]", "reduce=[symmetry]"], "counts"),
    ],
)
def test_what_does_not_go_together_is_named(tmp_path: Path, changes: list[str], key: str) -> None:
    said = refused(tmp_path, *(f"algorithm.params.{change}" for change in changes))
    assert "algorithm.params" in said
    assert key in said


@pytest.mark.parametrize("change", ["counting=presence", "rho=2"])
def test_learners_take_the_objective_that_they_can_learn(tmp_path: Path, change: str) -> None:
    example = Path(__file__).parents[2] / "examples/learn_trivial.yaml"
    done = CliRunner().invoke(app, ["check", str(example), f"algorithm.params.theory.{change}"])
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert change.split("=")[0] in said
    assert "algorithm exact" in said


def test_terminal_states_are_not_counted_without_end() -> None:
    params = fair_params("B", theory={"early_end": "absorb", "gamma_r": 1.0})
    with pytest.raises(ConfigError, match="early_end"):
        solve(fair_world("lottery"), params)
    assert solve(fair_world("press"), params).at(0).V_r < 0  # It has a horizon.


def test_a_null_action_that_is_not_available_is_refused_with_the_state() -> None:
    params = fair_params("B", defunct={"rate": 0.1, "null_action": "gamble"})
    with pytest.raises(SolveError, match=r"null_action[\s\S]*middle"):
        solve(fair_world("lottery"), params)


@pytest.mark.parametrize("horizon", [2, None])
def test_an_end_in_which_a_human_is_in_no_goal_is_refused_with_state_and_human(
    horizon: int | None,
) -> None:
    goals = {"ann": [{"name": "left", "states": "left"}, {"name": "right", "states": "right"}]}
    transitions = [
        {"state": "left", "actions": ["step", "*"], "to": "right"},
        {"state": "left", "to": "left" if horizon else "right"},
        {"state": "right", "to": "crushed"},
    ]
    world = changed("press", goals=goals, transitions=transitions, horizon=horizon)
    with pytest.raises(SolveError, match=r"ann[\s\S]*crushed"):
        solve(world, ExactParams.model_validate(FAIR))


def test_goals_that_do_not_cover_all_states_are_named_in_a_warning() -> None:
    ends = ("end_a", "end_b", "end_none")
    goals = {"ann": [{"name": end, "states": end} for end in ends]}
    result = solve(changed("lottery", goals=goals), ExactParams.model_validate(FAIR))
    assert any("do not cover" in line for line in result.warnings())


@pytest.mark.parametrize(
    ("set_name", "key"), [("B", "counting"), ("E", "counting"), ("F", "defunct.rate")]
)
def test_certificates_and_learners_refuse_runs_of_another_objective(
    tmp_path: Path, set_name: str, key: str
) -> None:
    params = fair_params(set_name).model_dump(mode="json", exclude_unset=True)
    if set_name == "E":
        params["theory"] |= {"counting": "arrival", "rho": 2}
        key = "rho"
    if set_name == "F":
        params["theory"] = {"counting": "arrival"}
    tables = yaml.safe_load((GOLDEN / "fair_worlds.yaml").read_text())
    (tmp_path / "pair.json").write_text(json.dumps(tables[1]))
    config = {
        "world_model": {"name": "table", "params": {"file": "pair.json"}},
        "algorithm": {"name": "exact", "params": params},
        "runs": str(tmp_path / "runs"),
    }
    (tmp_path / "run.json").write_text(json.dumps(config))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "run.json")])
    assert done.exit_code == 0, done.stderr
    run = next((tmp_path / "runs").iterdir())
    refusal = CliRunner().invoke(app, ["certify", str(run)])
    assert refusal.exit_code != 0
    assert key in refusal.stderr
    assert "Traceback" not in refusal.stderr
