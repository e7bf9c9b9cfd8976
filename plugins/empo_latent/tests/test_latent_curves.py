"""The script of learning curves: what it runs, what it does not do twice, and what it draws."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from empo_latent.params import LatentParams
from empo_latent.result import CurveRow

SCRIPT = Path(__file__).parents[3] / "tests" / "benchmarks" / "latent_curves.py"


@pytest.fixture(scope="module")
def curves() -> ModuleType:
    spec = importlib.util.spec_from_file_location("latent_curves", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def jobs(curves: ModuleType, tmp_path: Path) -> Any:
    """A function that plans runs into ``out``, from words of the command line."""

    def plan(*words: str) -> Any:
        return curves.jobs(curves.arguments([*words, "--out", str(tmp_path / "out")]))

    return plan


def write(path: Path, task: str, returns: dict[tuple[int, str], float], seed: int) -> None:
    """A curve as runs leave it."""
    path.parent.mkdir(exist_ok=True)
    rows = [
        CurveRow(step // 2, step, task, actor, value, 1.0, 500.0, 9.5, seed)
        for (step, actor), value in returns.items()
    ]
    lines = [",".join(CurveRow._fields), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def test_every_combination_is_a_run_that_the_algorithm_accepts(
    curves: ModuleType, jobs: Any, small: Any
) -> None:
    words = ["--tasks", "pendulum", "cup-catch", "--seeds", "0", "5"]
    found = jobs(*words, "--agents", *curves.AGENTS)
    assert {job.name for job in found} == {
        f"{task}_{agent}_{seed}"
        for task in ("pendulum", "cup-catch") for agent in curves.AGENTS for seed in (0, 5)
    }  # fmt: skip
    for job in found:
        given = job.config["algorithm"]["params"]
        known = {name: value for name, value in given.items() if name != "preset"}
        params = LatentParams.model_validate(
            {**known, "policy_loss": "any"}, context={"registry": small.registry}
        )
        repeat = params.tasks[0].params.action_repeat
        assert params.total_steps == 50_000 // repeat
        assert params.reporting.evaluation_interval == 10_000 // repeat
        assert given["preset"] in job.name
        assert str(job.config["seed"]) == job.name[-1]


def test_every_option_changes_the_run(jobs: Any) -> None:
    words = ["--tasks", "pendulum", "--agents", "svg", "--seeds", "0"]
    words += ["--params", '{"learning": {"rho": 0.4}}']
    usual = jobs(*words)[0].config
    changes = [
        ["--environment-steps", "600"], ["--size", "1M"], ["--evaluate", "policy"],
        ["--evaluate-every", "70"], ["--episodes", "3"],
        ["--params", '{"learning": {"rho": 0.3}, "replay": {"batch_size": 32}}'],
    ]  # fmt: skip
    found = [jobs(*words, *change)[0].config for change in changes]
    assert all(config != usual for config in found)
    assert len({json.dumps(config, sort_keys=True) for config in found}) == len(changes)
    params = found[-1]["algorithm"]["params"]
    assert (params["preset"], params["learning"], params["replay"]) == (
        "svg", {"rho": 0.3}, {"batch_size": 32}
    )  # fmt: skip


def test_what_is_there_is_not_done_again(curves: ModuleType, jobs: Any, tmp_path: Path) -> None:
    planned, out = jobs("--tasks", "pendulum", "--agents", "awr"), tmp_path / "out"
    assert curves.missing(planned, out) == planned
    write(planned[1].target, "Pendulum-v1", {(10, "policy"): -9.0}, 1)
    curves.note(planned[1], out)
    assert curves.missing(planned, out) == [planned[0], planned[2]]


def test_a_curve_that_was_made_otherwise_is_not_taken_for_this_one(
    curves: ModuleType, jobs: Any, tmp_path: Path
) -> None:
    words = ["--tasks", "pendulum", "--agents", "awr", "--seeds", "0"]
    (job,), (other,) = jobs(*words), jobs(*words, "--size", "1M")
    write(job.target, "Pendulum-v1", {(10, "policy"): -9.0}, 0)
    curves.note(job, tmp_path / "out")
    with pytest.raises(SystemExit, match="made with other settings"):
        curves.missing([other], tmp_path / "out")


def test_seeds_are_averaged_where_all_of_them_are(curves: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = {(100, "policy"): 90.0, (200, "policy"): 9.0, (300, "policy"): 9.0}
    first |= {(400, "policy"): 12.0, (500, "policy"): 99.0}
    second = {(100, "policy"): 90.0, (200, "policy"): 21.0, (300, "policy"): 19.0}
    write(out / "cup-catch_awr_0.csv", "x", first, 0)
    write(out / "cup-catch_awr_1.csv", "x", {**second, (400, "policy"): 20.0}, 1)
    write(out / "pendulum_svg_0.csv", "x", {(100, "planner"): -150.0}, 0)
    rows = curves.read(sorted(out.glob("*.csv")))
    table = curves.table(rows).splitlines()
    # Means of the last three evaluations are 10 and 20; t(0.975, 1) = 12.7 times 5 is 64.
    end = "200 to 400 | 15 (± 64) | 981 ± 7 / 958 / 870 |"
    assert f"| cup-catch | awr | policy | 2 | {end}" in table
    assert "| pendulum | svg | planner | 1 | 100 | -150 (one seed) |  |" in table
    assert "published" in table[0]
    pictures = curves.plot(rows, out)
    assert [path.name for path in pictures] == ["cup-catch.png", "pendulum.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    assert curves.last_words(out / "cup-catch_awr_0.csv") == "policy 99.0"


def test_the_published_figures_are_those_of_the_tasks(curves: ModuleType) -> None:
    found = {task: curves.reference(task) for task in curves.TASKS}
    assert found.pop("pendulum") is None
    means = {task: (each.tdmpc2, each.sac, each.dreamer) for task, each in found.items()}
    assert means == {
        "cartpole-swingup": (839, 835, 677),
        "cup-catch": (981, 958, 870),
        "reacher-easy": (937, 540, 872),
        "finger-spin": (948, 762, 328),
    }


def test_a_run_that_fails_says_where_its_words_are(
    curves: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tasks", "pendulum", "--agents", "awr", "--seeds", "0", "--size", "none"]
    words += ["--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    options = curves.arguments(words)
    assert curves.train(curves.jobs(options), options) == 1
    log = tmp_path / "runs" / "pendulum_awr_0.log"
    assert str(log) in capsys.readouterr().out
    assert "size" in log.read_text()
    assert not list((tmp_path / "out").iterdir())
