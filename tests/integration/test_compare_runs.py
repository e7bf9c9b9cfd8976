"""``empo compare`` and ``open_run`` on real runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import empo_core
from empo_compare.policy_differences import policy_differences
from empo_core.cli.app import app
from empo_core.config import RunConfig
from empo_core.errors import StorageError
from empo_core.experiment import Experiment
from empo_core.runs.directory import RunDirectory
from empo_exact.result import ExactResult

TRIVIAL = {"name": "multigrid/trivial", "params": {"max_steps": 4}}
PHASE2 = {
    "human_prior": "uniform",
    "values": {"q_r": "lookup", "v_h_e": "lookup"},
    "total_steps": 12,
    "num_envs": 16,
    "warm_up": {"v_h_e": 2, "q_r": 2, "ramp": 2},
    "replay": {"batch_size": 8},
    "collector": {"name": "sync", "params": {"min_env_steps": 8}},
    "reporting": {"log_interval": 3, "checkpoint_interval": 100},
}


def run(folder: Path, *, world: object = TRIVIAL, seed: int = 0, **params: object) -> Path:
    name = "phase2" if "values" in params else "exact"
    config: dict[str, Any] = {
        "world_model": world,
        "algorithm": {"name": name, "params": params},
        "seed": seed,
        "runs": str(folder),
    }
    return Experiment.start(RunConfig.model_validate(config)).directory


def exact(folder: Path, beta_r: float, **about: Any) -> Path:
    params = {"theory": {"beta_r": beta_r}, "rollouts": 0, "keep": "all"}
    params |= about.pop("params", {})
    return run(folder, **params, **about)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        "five": exact(folder, 5.0),
        "five again": exact(folder, 5.0, seed=1),
        "ninety": exact(folder, 90.0),
        "other world": exact(folder, 5.0, world="table/confirmation"),
        "learned": run(folder, **PHASE2),
        "learned again": run(folder, seed=1, **PHASE2),
    }


def empo(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def compared(*arguments: object) -> dict[str, Any]:
    done = empo("compare", *arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_result_of_an_exact_run_is_loaded(runs: dict[str, Path]) -> None:
    found = empo_core.open_run(runs["five"])
    assert isinstance(found.result, ExactResult)
    assert found.result.directory == found.path
    assert found.result.at(0).V_r == found.summary["root"]["V_r"]  # type: ignore[index, call-overload]
    assert found.metrics["exact/v_r"].steps.tolist() == [1, 2, 3, 4]
    assert found.metrics["exact/v_r"].values[-1] == found.result.at(0).V_r
    assert found.task == "trivial"
    assert found.started is not None
    assert found.seconds is not None
    assert found.seconds > 0


def test_the_result_of_a_learner_is_its_summary(runs: dict[str, Path]) -> None:
    found = empo_core.open_run(runs["learned"])
    assert found.result == found.summary
    assert found.metrics["optim/stage"].steps.tolist() == [3, 6, 9, 12]


def test_a_run_without_a_result_says_so(runs: dict[str, Path], tmp_path: Path) -> None:
    for name in ("five", "learned"):
        path = Path(shutil.copytree(runs[name], tmp_path / name))
        shutil.rmtree(path / "results")
        (path / "status.json").write_text('{"status": "interrupted"}')
        with pytest.raises(StorageError, match="no result"):
            _ = empo_core.open_run(path).result


def test_time_of_interrupted_runs_adds_up(runs: dict[str, Path], tmp_path: Path) -> None:
    path = Path(shutil.copytree(runs["five"], tmp_path / "run"))
    status = json.loads((path / "status.json").read_text())
    status |= {"status": "interrupted", "seconds": 1000.0, "started": "2026-01-01T00:00:00+00:00"}
    (path / "status.json").write_text(json.dumps(status))
    directory = RunDirectory.reopen(path)
    directory.mark("finished")
    directory.release()
    found = empo_core.open_run(path)
    assert found.seconds is not None
    assert 1000 <= found.seconds < 1010
    assert found.started is not None
    assert found.started.year == 2026
    assert found.task == "trivial"


def test_policies_differ_most_where_visits_times_distance_is_largest(runs: dict[str, Path]) -> None:
    one, other = (empo_core.open_run(runs[name]).result for name in ("five", "ninety"))
    assert isinstance(one, ExactResult)
    assert isinstance(other, ExactResult)
    every, total = policy_differences(one, other, 10**6)
    best, same_total = policy_differences(one, other, 3)
    assert [each.weight for each in best] == [each.weight for each in every[:3]]
    assert total == same_total == pytest.approx(sum(each.weight for each in every))
    for each in best:
        there = [
            result.at(each.state.numpy(), result.horizon - each.steps_left).pi_r  # type: ignore[operator]
            for result in (one, other)
        ]
        assert each.distance == pytest.approx(np.abs(there[0] - there[1]).sum() / 2)
    assert policy_differences(one, one, 3) == ([], 0.0)


def test_runs_that_differ_in_the_seed_are_one_group(runs: dict[str, Path]) -> None:
    found = compared(runs["five"], runs["ninety"], runs["five again"], runs["five"])
    assert found["groups"]["A"]["seeds"] == [0, 1]
    assert found["groups"]["B"]["seeds"] == [0]
    assert found["configs"] == {"algorithm.params.theory.beta_r": {"A": 5.0, "B": 90.0}}
    assert found["results"]["root.V_r"]["A"] == {
        "mean": empo_core.open_run(runs["five"]).summary["root"]["V_r"],  # type: ignore[index, call-overload]
        "half_width": 0.0,
        "n": 2,
    }
    assert found["results"]["root.V_r"]["B"]["half_width"] is None
    assert found["curves"]["exact/v_r"]["A"]["steps"] == [1, 2, 3, 4]
    (pair,) = found["policies"]
    assert (pair["first"], pair["second"]) == ("A", "B")
    assert len(pair["states"]) == 5
    assert pair["actions"] == ["still", "left", "right", "forward"]
    assert sum(pair["states"][0]["B"]) == pytest.approx(1)


def test_curves_of_seeds_have_a_band(runs: dict[str, Path]) -> None:
    key = "loss/v_h_e"
    found = compared(runs["learned"], runs["learned again"], "--metric", key)
    assert list(found["curves"]) == [key]
    band = found["curves"][key]["A"]
    values = np.array([empo_core.open_run(runs[name]).metrics[key].values
                       for name in ("learned", "learned again")])  # fmt: skip
    np.testing.assert_allclose(band["mean"], values.mean(0))
    np.testing.assert_allclose(band["half_width"], 12.7062 * values.std(0, ddof=1) / 2**0.5)
    assert band["n"] == 2
    assert found["policies"] == []


def test_people_get_tables_and_the_states_in_question(runs: dict[str, Path]) -> None:
    done = empo("compare", runs["five"], runs["ninety"], "--states", 1)
    assert done.exit_code == 0
    for text in (
        "Groups",
        "algorithm.params.theory.beta_r   5   90",
        "exact/v_r (A: n = 1, B: n = 1)\n",
        "root.X_h.human 1 (yellow)",
        "Policies of A and B differ by",
        "1. ",
        "steps left",
        "robot 0 (grey) at",
    ):
        assert text in done.stdout
    assert "2. " not in done.stdout


def test_nothing_is_written_unless_a_picture_is_asked_for(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(path for each in runs.values() for path in each.rglob("*"))
    assert empo("compare", runs["learned"], runs["five"], runs["learned again"]).exit_code == 0
    assert list(tmp_path.iterdir()) == []
    done = empo("compare", runs["learned"], runs["five"], "--picture", "curves.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "curves.pdf", "curves.png", "curves.svg",
    ]  # fmt: skip
    assert done.stdout.splitlines()[-3:] == ["curves.png", "curves.svg", "curves.pdf"]
    assert sorted(path for each in runs.values() for path in each.rglob("*")) == before


def test_policies_that_cannot_be_compared_are_said_so(runs: dict[str, Path]) -> None:
    found = compared(runs["five"], runs["other world"])
    assert "their worlds differ" in found["policies"][0]["reason"]
    text = empo("compare", runs["five"], runs["other world"]).stdout
    assert "Policies of A and B are not compared: " in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["five"], []), "name at least two different runs to compare"),
        ((["five", "five"], []), "name at least two different runs to compare"),
        ((["five", "ninety"], ["--metric", "exact/vr"]), "did you mean 'exact/v_r'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(
    runs: dict[str, Path], arguments: tuple[list[str], list[str]], message: str
) -> None:
    names, options = arguments
    done = empo("compare", *(runs[name] for name in names), *options)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_damaged_run_and_a_planted_link_are_refused(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(runs["five"], tmp_path / "run"))
    (path / "status.json").write_text("{")
    done = empo("compare", path, runs["five"])
    assert done.exit_code == 3
    assert "status.json: " in done.stderr
    (path / "metrics.jsonl").unlink()
    (path / "metrics.jsonl").symlink_to(runs["ninety"] / "metrics.jsonl")
    done = empo("compare", path, runs["five"])
    assert done.exit_code == 2
    assert "run directory" in done.stderr
    assert empo("compare", tmp_path, runs["five"]).exit_code == 2


def test_names_from_anywhere_cannot_command_the_terminal(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(runs["learned"], tmp_path / "run\x1b[31m"))
    config = (path / "config.yaml").read_text()
    (path / "config.yaml").write_text(config + '"odd\\e[31m": "\\e[31m"\n')
    (path / "metrics.jsonl").write_text('{"step": 1, "eval/\\u001b[31m": 1}\n')
    summary = {"\x1b[31m": 1.0}
    (path / "results/summary.json").write_text(json.dumps(summary))
    for options in ([], ["--json"]):
        done = empo("compare", path, runs["learned again"], *options)
        assert done.exit_code == 0
        assert "\x1b" not in done.output
        assert "x1b[31m" in done.output or "u001b[31m" in done.output
