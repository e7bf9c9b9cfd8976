"""Diagnostics in runs: their reports and data, ``empo diagnose``, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fair_worlds import GOLDEN, reference_data
from typer.testing import CliRunner, Result

from empo_core.cli.app import app
from empo_core.config import RunConfig
from empo_core.experiment import Experiment
from empo_inspector.container import unpack
from empo_inspector.page import container
from empo_inspector.saved_inspection import inspect_run
from empo_theory.diagnostics import PowerFindings
from empo_theory.inspection import InspectionScope

NUMBERS = reference_data()["diagnostics"]["gate"]


def started(folder: Path, **params: Any) -> Experiment:
    """A run of the world ``gate`` in a folder."""
    games = yaml.safe_load((GOLDEN / "fair_worlds.yaml").read_text())
    (game,) = (game for game in games if game["name"] == "gate")
    (folder / "gate.yaml").write_text(yaml.safe_dump(game))
    config = {
        "world_model": {"name": "table", "params": {"file": str(folder / "gate.yaml")}},
        "algorithm": {"name": "exact", "params": {"preset": "fair", **params}},
        "trackers": [],
        "runs": str(folder / "runs"),
    }
    return Experiment.start(RunConfig.model_validate(config), terminal=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """A run that says nothing of diagnostics."""
    return started(tmp_path_factory.mktemp("gate"))


def empo(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def data_of(*words: object) -> dict[str, Any]:
    result = empo("diagnose", *words, "--json")
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def threats(data: dict[str, Any]) -> dict[tuple[str, str, float], float | None]:
    return {
        (human["name"], threat["adversary"], threat["penalty"]): threat["bits"]
        for human in data["humans"]
        for threat in human["threats"]
    }


def test_a_run_measures_the_first_three_and_keeps_them(run: Experiment) -> None:
    summary = json.loads((run.directory / "results/summary.json").read_text())
    measured = summary["root"]["diagnostics"]
    assert run.result.summary()["root"]["diagnostics"] == measured
    bits = threats(measured)
    for name, numbers in NUMBERS.items():
        if name in ("ann", "ben", "cat"):
            assert bits[name, "others", 0.1] == pytest.approx(float(numbers["others:0.1"]))
            assert bits[name, "robots", 0.0] == pytest.approx(float(numbers["robot:0"]), abs=1e-12)
            assert bits[name, "all", 0.1] == pytest.approx(float(numbers["all:0.1"]))
    assert Experiment.load(run.directory).result.summary()["root"]["diagnostics"] == measured


def test_a_run_is_diagnosed_afterwards_as_it_would_have_been(run: Experiment) -> None:
    summary = json.loads((run.directory / "results/summary.json").read_text())
    assert data_of(run.directory) == summary["root"]["diagnostics"]


def test_what_is_measured_can_be_chosen(run: Experiment) -> None:
    data = data_of(run.directory, "--measure", "coalitions", "--measure", "canonical")
    shares = {share["name"]: share["mass"] for share in data["coalitions"]["shares"]}
    assert shares == pytest.approx({name: float(mass) for name, mass in NUMBERS["phi"].items()})
    assert [human["threats"] for human in data["humans"]] == [[], [], []]
    # Its goals are its states.
    for human in data["humans"]:
        assert human["canonical"]["bits"] == pytest.approx(human["bits"], rel=1e-12)
    other = data_of(run.directory, "--measure", "vulnerability", "--penalty", 1.0)
    assert threats(other)["ann", "others", 1.0] == pytest.approx(
        float(NUMBERS["ann"]["others:1.0"])
    )


def test_a_state_has_its_own_power(run: Experiment) -> None:
    data = data_of(run.directory, "--state", 1, "--time", 1)
    # Before and after are in different goals, and one step before the end little is left to do.
    start = json.loads((run.directory / "results/summary.json").read_text())["root"]
    assert data["humans"][0]["bits"] < start["diagnostics"]["humans"][0]["bits"]


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["--measure", "pride"], "pride"),
        (["--coalition-goal", "lit"], "--coalition-goal"),
        (["--measure", "coalitions", "--coalition-goal", "dark"], "--coalition-goal dark"),
        (["--measure", "reserve", "--reserve-goal", "dark"], "--reserve-goal dark"),
        (["--time", "1"], "--time"),
        (["--state", "99"], "99"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_sentence(
    run: Experiment, words: list[str], key: str
) -> None:
    result = empo("diagnose", run.directory, *words)
    assert result.exit_code != 0
    assert key in result.output
    assert "Traceback" not in result.output


def test_only_solved_runs_are_diagnosed(tmp_path: Path) -> None:
    learned = {
        "human_prior": "uniform",
        "values": {"q_r": "lookup", "v_h_e": "lookup"},
        "total_steps": 30,
        "warm_up": {"v_h_e": 10, "q_r": 10, "ramp": 10},
    }
    config = {
        "world_model": {"name": "multigrid/trivial", "params": {"max_steps": 2}},
        "algorithm": {"name": "phase2", "params": learned},
        "trackers": [],
        "runs": str(tmp_path / "runs"),
    }
    run = Experiment.start(RunConfig.model_validate(config), terminal=False)
    result = empo("diagnose", run.directory)
    assert result.exit_code == 2
    assert "'phase2'" in result.output


def test_the_report_has_a_table_of_who_holds_the_power(run: Experiment) -> None:
    result = empo("diagnose", run.directory)
    assert result.exit_code == 0, result.output
    assert "Who holds the power" in result.stdout
    findings = PowerFindings.of(json.loads(json.dumps(data_of(run.directory))))
    assert all(sentence in result.stdout for sentence in findings.in_words())


def test_the_container_of_a_page_has_the_findings(run: Experiment) -> None:
    inspection, world = inspect_run(run.directory)
    header, _ = unpack(container(inspection, world, InspectionScope(), run.directory))
    assert header.power is not None
    assert header.power.sentences == PowerFindings.of(data_of(run.directory)).in_words()
    assert header.power.humans[0].name == "ann"
    assert "Who holds the power" in (run.directory / "inspector.html").read_text()


def test_a_run_without_diagnostics_has_none(tmp_path: Path) -> None:
    run = started(tmp_path, diagnostics=[])
    assert "diagnostics" not in run.result.summary()["root"]
    inspection, world = inspect_run(run.directory)
    header, _ = unpack(container(inspection, world, InspectionScope(), run.directory))
    assert header.power is None


def test_findings_that_cannot_be_read_cost_nothing_else_of_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = started(tmp_path)
    file = run.directory / "results/summary.json"
    summary = json.loads(file.read_text())
    summary["root"]["diagnostics"]["humans"][0]["bits"] = "much"
    file.write_text(json.dumps(summary))
    reopened = Experiment.load(run.directory).result
    assert "diagnostics" not in reopened.summary()["root"]
    assert "root.diagnostics.humans.0.bits" in caplog.text
    assert data_of(run.directory)["humans"][0]["bits"] == pytest.approx(float(NUMBERS["ann"]["I"]))
