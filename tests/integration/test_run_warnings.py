"""What a learner does not know stands in the log, the report, summary.json and ``empo runs``."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import empo_core
from empo_core.cli.app import app
from empo_core.protocols import Callback, Training
from empo_core.runs.atomic import strict_json

TABLES = {"q_r": "lookup", "v_h_e": "lookup"}


def corridor(length: int) -> str:
    """Rooms in a row; a robot that acts at random hardly enters the last ones of many."""
    rooms = range(length)
    game = {
        "name": "corridor",
        "horizon": length + 1,
        "initial": "r0",
        "states": [f"r{i}" for i in rooms],
        "agents": [
            {"name": "ann", "role": "human", "actions": ["wait"]},
            {"name": "bot", "role": "robot", "actions": ["back", "on"]},
        ],
        "transitions": [
            {"state": f"r{i}", "actions": ["wait", "on"], "to": f"r{min(i + 1, length - 1)}"}
            for i in rooms
        ]
        + [{"state": f"r{i}", "to": "r0"} for i in rooms],
        "goals": {"ann": [{"name": f"r{i}", "states": f"r{i}"} for i in rooms]},
    }
    return strict_json(game)


DEAD_END = """
{name: dead end, horizon: 4, initial: well, states: [well, better, lost],
 agents: [{name: ann, role: human, actions: [stay]},
          {name: bot, role: robot, actions: [idle, help, harm]}],
 transitions: [{state: well, actions: [stay, help], to: better},
               {state: well, actions: [stay, harm], to: lost},
               {state: well, to: well}, {state: better, to: better}, {state: lost, to: lost}],
 goals: {ann: [{name: well, states: well}, {name: better, states: better}]}}
"""
QUICK: dict[str, Any] = {
    "human_prior": "uniform",
    "values": TABLES,
    "total_steps": 60,
    "warm_up": {"v_h_e": 5, "q_r": 5, "ramp": 10},
    "replay": {"batch_size": 16},
    "num_envs": 4,
}
SELDOM: dict[str, Any] = QUICK | {
    "exploration": {
        "robot": [{"name": "epsilon-greedy", "params": {"start": 1.0, "end": 1.0}}],
        "frontier_prob": 0.0,
    },
    "collector": {
        "name": "sync", "params": {"min_env_steps": 16, "env_steps_per_training_step": 4}
    },
}  # fmt: skip


def run(
    folder: Path, world: str, params: dict[str, Any], name: str = "phase2", command: str = "run"
) -> Any:
    (folder / "world.yaml").write_text(world)
    config = {
        "world_model": {"name": "table", "params": {"file": "world.yaml"}},
        "algorithm": {"name": name, "params": params},
    }
    if command == "run":
        config["runs"] = str(folder / "runs")
    (folder / "run.json").write_text(strict_json(config))
    return CliRunner().invoke(app, [command, str(folder / "run.json")])


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of a run that did not see everything, and what the run printed."""
    folder = tmp_path_factory.mktemp("doubtful")
    done = run(folder, corridor(12), SELDOM)
    assert done.exit_code == 0, done.stderr
    (directory,) = (folder / "runs").iterdir()
    return directory, done.stdout


def test_a_run_that_did_not_see_everything_says_so_everywhere(doubtful: tuple[Path, str]) -> None:
    directory, printed = doubtful
    summary = json.loads((directory / "results/summary.json").read_text())
    said = [each for each in summary["warnings"] if "known situations were never entered" in each]
    assert len(said) == 1
    # The last room that was entered has a next one, and each is known with many steps left.
    assert 1 < float(said[0].partition("%")[0]) < 100
    assert words(said[0]) in words((directory / "log.txt").read_text())
    assert words(said[0])[:60] in words(printed)
    listed = CliRunner().invoke(app, ["runs", str(directory.parent), "--json"])
    assert json.loads(listed.stdout)["runs"][0]["warnings"] == summary["warnings"]
    table = CliRunner().invoke(app, ["runs", str(directory.parent)]).stdout
    assert "warnings" in table
    assert "never" in table


@pytest.mark.slow
def test_a_run_that_saw_everything_has_nothing_to_warn_of(tmp_path: Path) -> None:
    done = run(tmp_path, corridor(4), QUICK)
    (summary,) = (tmp_path / "runs").glob("*/results/summary.json")
    assert json.loads(summary.read_text())["warnings"] == [], done.stdout


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(("name", "params"), [("phase2", QUICK), ("exact", {})])
def test_a_world_with_a_dead_end_is_refused_by_the_learner_as_by_the_solver(
    name: str, params: dict[str, Any], command: str, tmp_path: Path
) -> None:
    if (name, command) == ("exact", "check"):
        pytest.skip("a check of exact does not solve the world")
    done = run(tmp_path, DEAD_END, params, name, command)
    assert done.exit_code == 3
    said = words(done.stderr)
    assert "ann (agent 0)" in said
    assert "can attain none of its goals" in said
    assert "from a state reached after 3 steps" in said
    assert "The state is: lost" in said
    assert not list(tmp_path.glob("runs/*/results/summary.json"))


@pytest.mark.slow
def test_a_dead_end_in_a_world_too_large_to_search_is_told_with_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("empo_phase2.world_checks.MOST_PAIRS", 1)
    done = run(tmp_path, DEAD_END, QUICK)
    assert done.exit_code == 0, done.stderr
    (summary,) = (tmp_path / "runs").glob("*/results/summary.json")
    warnings = [words(each) for each in json.loads(summary.read_text())["warnings"]]
    (said,) = [each for each in warnings if "X_h is at its floor" in each]
    assert "X_h of ann (agent 0)" in said
    assert said.endswith("lost")
    assert "X_h is at its floor" in words(done.stdout)


@pytest.mark.slow
def test_robots_that_are_paid_by_a_doubtful_run_say_so(
    doubtful: tuple[Path, str], tmp_path: Path
) -> None:
    reward = {"kind": "power", "run": str(doubtful[0])}
    params = {"environment": {"name": "world", "params": {"reward": reward}}, "total_steps": 64}
    done = run(tmp_path, corridor(12), params, "rollout")
    assert done.exit_code == 0, done.stderr
    (summary,) = (tmp_path / "runs").glob("*-rollout-*/results/summary.json")
    warnings = json.loads(summary.read_text())["warnings"]
    assert any("robots are paid" in each and "never entered" in each for each in warnings)
    assert "by which robots are paid" in words(done.stdout)


class Warns(Callback):
    """Warns when the run begins."""

    def start(self, training: Training) -> None:
        logging.getLogger("of_a_user").warning("mind the %s", "gap")


def test_a_script_without_logging_of_its_own_sees_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    params: dict[str, Any] = {"total_steps": 64, "num_envs": 2, "runs": str(tmp_path)}
    evaluations = {"reporting": {"evaluation_episodes": 0}}
    env = "gymnasium/CartPole-v1"
    empo_core.run("rollout", env=env, callbacks=[Warns()], **params, **evaluations)
    assert "warning: mind the gap\n" in capsys.readouterr().err
