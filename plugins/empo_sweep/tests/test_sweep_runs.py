"""Whole sweeps of a toy: trials, their log, failures, resumption, results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_sweeps import Cli, ends, ledger, number_of, points
from typer.testing import CliRunner

from empo_core import load_config
from empo_core.cli.app import app
from empo_core.config.yaml import dump_yaml

X, ENDS = "algorithm.params.x", "algorithm.params.ends"
SCORE = {"key": "score"}
Write = Callable[..., str]


def test_a_grid_over_seeds_is_run_once_and_compared_in_pairs(
    toy: Path, sweep: Cli, write: Write
) -> None:
    file = write(over={"seed": "0..2", X: [1, 2, 4]}, objective=SCORE, baseline={X: 1}, workers=2)
    noise = "over.algorithm.params.noise=0.1"
    done = sweep(file, noise, "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    folder = toy / "sweeps/s"
    assert sorted(ends(folder)) == [(trial, "done") for trial in range(9)]
    assert sorted(ledger(folder)) == [t["run"] for arm in data["arms"] for t in arm["trials"]]
    assert [a["mean"]["mean"] for a in data["arms"]] == pytest.approx([-4, -1, -1], abs=0.2)
    # The noise is the seed's, so pairs differ by the truth.
    pair = data["arms"][1]["difference"]
    assert (pair["n"], pair["mean"], pair["half_width"]) == pytest.approx((3, 3.0, 0.0), abs=1e-9)
    assert data["best"] == {X: 2}
    assert load_config(folder / "best.yaml").algorithm.params.model_dump()["x"] == 2
    # Who types it again gets the same, byte for byte, and nothing is run.
    kinds = ("json", "csv", "svg", "png")
    before = [(folder / f"sweep.{kind}").read_bytes() for kind in kinds]
    for kind in kinds:
        (folder / f"sweep.{kind}").unlink()
    assert json.loads(sweep(file, noise, "--json").stdout) == data
    assert [(folder / f"sweep.{kind}").read_bytes() for kind in kinds] == before
    assert len(ledger(folder)) == 9


def test_a_trial_is_the_run_that_empo_run_would_do(toy: Path, sweep: Cli) -> None:
    values = f"{X}=1,2", "seed=3,4", "algorithm.params.noise=1.0"
    done = sweep("run.yaml", *values, "workers=1", "--quiet")
    assert done.exit_code == 0, done.output
    (folder,) = (toy / "sweeps").iterdir()
    assert folder.name == "run-x-seed"
    trial = folder / "trial-0003-x_2-s4"
    args = ["run", "run.yaml", f"{X}=2", "seed=4", "algorithm.params.noise=1.0", "--json"]
    alone = CliRunner().invoke(app, args)
    summary = json.loads((trial / "results/summary.json").read_text())
    assert summary["score"] == json.loads(alone.stdout)["score"]
    (single,) = (toy / "runs").glob("*-toy-*")
    configs = [json.loads((run / "config.json").read_text())["config"] for run in (trial, single)]
    assert [config.pop("runs") for config in configs] == ["..", ".."]
    assert configs[0] == configs[1]
    names = {path.name for path in single.iterdir()}
    assert names - {"steps.json"} <= {path.name for path in trial.iterdir()}
    # All in one process, which starts once.
    runs = [path for path in folder.iterdir() if path.name.startswith("trial-0")]
    pids = {json.loads((run / "results/summary.json").read_text())["pid"] for run in runs}
    assert len(runs) == 4
    assert len(pids) == 1


def test_failed_trials_are_left_alone_until_they_are_retried(
    toy: Path, sweep: Cli, write: Write
) -> None:
    file = write(over={"seed": [0, 1], ENDS: ["well", "badly once"]}, objective=SCORE)
    first = sweep(file)
    assert first.exit_code == 3
    assert "trial-0002-ends_badly_once-s0: the toy fell over and broke" in first.stdout
    assert "2 trials failed; run them again with --retry-failed" in first.stdout
    folder = toy / "sweeps/s"
    assert sorted(ends(folder)) == [(0, "done"), (1, "done"), (2, "failed"), (3, "failed")]
    assert sweep(file).exit_code == 3
    again = sweep(file, "--retry-failed", "--json")
    assert again.exit_code == 0, again.output
    assert ends(folder) == [(trial, "done") for trial in range(4)]
    attempts = [arm["trials"][0]["run"] for arm in json.loads(again.stdout)["arms"]]
    summary = folder / attempts[1] / "results/summary.json"
    assert json.loads(summary.read_text())["attempts"] == 2


def test_a_trial_whose_worker_dies_is_resumed_once_and_holds_up_no_other(
    toy: Path, sweep: Cli, write: Write
) -> None:
    file = write(over={ENDS: ["killed once", "killed", "nan", "well"]}, objective=SCORE)
    done = sweep(file, "--json")
    assert done.exit_code == 3
    folder = toy / "sweeps/s"
    data = json.loads(done.stdout)
    assert sorted(ends(folder)) == [(0, "done"), (1, "failed"), (2, "done"), (3, "done")]
    (reason,) = data["failed"].values()
    assert "was killed by signal 9" in reason
    # A score that is no number counts for nothing.
    assert [arm["mean"] and arm["mean"]["mean"] for arm in data["arms"]] == [-9, None, None, -9]


@pytest.mark.slow
def test_trials_may_have_worker_processes_of_their_own(toy: Path, sweep: Cli) -> None:
    done = sweep("run.yaml", "algorithm.params.children=true", "seed=0")
    assert done.exit_code == 0, done.output


def test_another_sweep_does_not_get_the_folder(toy: Path, sweep: Cli, write: Write) -> None:
    assert sweep(write(over={X: [1, 2]})).exit_code == 0
    refused = sweep(write(over={X: [1, 3]}))
    assert refused.exit_code == 2
    assert "other trials" in refused.stderr
    resumed = sweep(str(toy / "sweeps/s/sweep.yaml"), "--json")
    assert resumed.exit_code == 0, resumed.output
    assert len(ledger(toy / "sweeps/s")) == 2
    (toy / "run.yaml").write_text("algorithm: {name: toy, params: {steps: 4}}\n")
    assert sweep(write(over={X: [1, 2]})).exit_code == 2


def test_a_sweep_that_was_kept_is_the_same_sweep(toy: Path, sweep: Cli, write: Write) -> None:
    rows = [{"world_model": None, X: 1}, {"world_model": None, X: 2}]
    search = {"space": {X: {"low": 0, "high": 1}}, "objective": SCORE, "trials": 2}
    for keys in ({"zip": rows}, {"search": {**search, "sampler": "random"}}):
        assert sweep(write(**keys), f"name={next(iter(keys))}").exit_code == 0
        folder = toy / "sweeps" / next(iter(keys))
        assert sweep(str(folder / "sweep.yaml")).exit_code == 0
        assert len(ledger(folder)) == 2


def test_two_sweeps_do_not_share_a_folder(
    toy: Path, sweep: Cli, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from empo_core.runs.files import hold

    monkeypatch.setattr("empo_sweep.runner._ORPHANS_S", 0.1)
    file = write(over={X: [1, 2]})
    (toy / "sweeps/s").mkdir(parents=True)
    with hold(toy / "sweeps/s/.lock", shared=True):
        refused = sweep(file)
    assert (refused.exit_code, "another process" in refused.stderr) == (2, True)
    assert sweep(file).exit_code == 0


def test_a_search_goes_on_as_if_it_had_not_been_stopped(
    toy: Path, sweep: Cli, write: Write
) -> None:
    search = {"space": {X: {"low": -10, "high": 10}}, "objective": SCORE, "trials": 14}
    keys = {"over": {"seed": [0, 1]}, "search": search}
    assert sweep(write(name="whole", **keys)).exit_code == 0
    whole = toy / "sweeps/whole"
    assert ends(whole) == [(trial, "done") for trial in range(28)]
    data = json.loads((whole / "sweep.json").read_text())
    assert max(arm["mean"]["mean"] for arm in data["arms"]) > -0.5
    # The same folder as it was when the first seed of the tenth point had ended.
    part = toy / "sweeps/part"
    shutil.copytree(whole, part, ignore=shutil.ignore_patterns("sweep.*", "best.yaml"))
    for run in part.glob("trial-*"):
        if number_of(run) > 18:
            shutil.rmtree(run)
    lines = (whole / "search.jsonl").read_bytes().splitlines(keepends=True)
    drawn = [place for place, line in enumerate(lines) if b'"param_name"' in line]
    (part / "search.jsonl").write_bytes(b"".join(lines[: drawn[9] + 1]) + b'{"op_co')
    assert sweep(write(name="part", **keys)).exit_code == 0
    assert points(part) == points(whole)
    assert len(ledger(part)) == 28 + 9


@pytest.mark.parametrize("damage", ["[1]", "{}", "\x00", '{"op_code": 99}', '{"op_code": 4}'])
def test_a_damaged_journal_is_refused_with_its_path(
    toy: Path, sweep: Cli, write: Write, damage: str
) -> None:
    search = {"space": {X: {"low": 0, "high": 1}}, "objective": SCORE, "trials": 1}
    assert sweep(write(search=search)).exit_code == 0
    with (toy / "sweeps/s/search.jsonl").open("a") as journal:
        journal.write(f"{damage}\n")
    refused = sweep("s.yaml")
    assert refused.exit_code == 3, refused.output
    assert "sweeps/s/search.jsonl: " in "".join(refused.stderr.split("\n"))


def test_a_damaged_record_of_a_trial_is_refused_with_its_path(
    toy: Path, sweep: Cli, write: Write
) -> None:
    assert sweep(write(over={ENDS: ["badly"]}, objective=SCORE)).exit_code == 3
    (record,) = (toy / "sweeps/s").glob("trial-*/trial.json")
    for damage in ("{", "[]", '{"status": "finished"}'):
        record.write_text(damage)
        refused = sweep("s.yaml")
        assert refused.exit_code == 3
        assert "trial.json: " in refused.stderr


def test_bad_trials_are_stopped_early(toy: Path, sweep: Cli, write: Write) -> None:
    search = {
        "space": {X: [3, 2.5, 3.5, 2.9, 3.1, 20, 30]}, "objective": SCORE, "trials": 7,
        "sampler": "grid", "pruner": {"metric": "toy/score"},
    }  # fmt: skip
    steps = ["over.algorithm.params.steps=80", "over.algorithm.params.pause_s=0.01"]
    done = sweep(write(search=search), *steps)
    assert done.exit_code == 0, done.output
    folder = toy / "sweeps/s"
    assert sorted(ends(folder)) == [*((n, "done") for n in range(5)), (5, "pruned"), (6, "pruned")]
    pruned = folder / "trial-0005-x_20-s0"
    assert json.loads((pruned / "status.json").read_text())["status"] == "interrupted"
    progress = pruned / "steps.json"  # There is none where it was stopped before it first saved.
    assert not progress.exists() or json.loads(progress.read_text())["step"] < 80
    assert pruned.name not in ledger(folder)
    assert len(ledger(folder)) == 5
    assert sweep("s.yaml", *steps).exit_code == 0
    assert len(ledger(folder)) == 5


def test_random_points_lie_in_the_space(toy: Path, sweep: Cli, write: Write) -> None:
    space = {X: {"low": 0, "high": 1}, "algorithm.params.steps": [1, 2]}
    search = {"space": space, "objective": SCORE, "trials": 3, "sampler": "random"}
    drawn = sweep(write(search=search), "--json")
    assert drawn.exit_code == 0, drawn.output
    xs = [arm["arm"][X] for arm in json.loads(drawn.stdout)["arms"]]
    assert all(0 <= x <= 1 for x in xs)
    assert len(set(xs)) == 3


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_no_point_is_run_twice(toy: Path, sweep: Cli, write: Write, sampler: str) -> None:
    space = {X: [1, 2], "algorithm.params.steps": [1, 2]}
    search = {"space": space, "objective": SCORE, "trials": 9, "sampler": sampler}
    done = sweep(write(search=search, over={"seed": [0, 1]}), "--json")
    assert done.exit_code == 0, done.output
    assert sorted(tuple(arm["arm"].values()) for arm in json.loads(done.stdout)["arms"]) == [
        (1, 1), (1, 2), (2, 1), (2, 2),
    ]  # fmt: skip
    assert len(ledger(toy / "sweeps/s")) == 8


def test_an_objective_that_no_trial_has_is_noticed_by_the_first(
    toy: Path, sweep: Cli, write: Write
) -> None:
    wrong = sweep(write(over={X: [1, 2]}, objective={"key": "scoer"}))
    assert wrong.exit_code == 2
    assert "'scoer'" in wrong.stderr
    assert len(ledger(toy / "sweeps/s")) == 1
    assert sweep(write(over={X: [1, 2]}, objective=SCORE)).exit_code == 0
    assert len(ledger(toy / "sweeps/s")) == 2


def test_curves_are_drawn_of_a_metric(toy: Path, sweep: Cli, write: Write) -> None:
    pytest.importorskip("empo_trackers", reason="curves are those that its trackers keep")
    file = write(over={X: [1, 2], "seed": "0..1"})
    done = sweep(file, "--metric", "toy/score")
    assert done.exit_code == 0, done.output
    assert "x=1 (n = 2)" in (toy / "sweeps/s/curves.svg").read_text()
    wrong = sweep(file, "--metric", "toy/scores")
    assert (wrong.exit_code, "'toy/score'" in wrong.stderr) == (2, True)


def test_a_sweep_does_not_go_on_with_a_world_that_was_changed(
    toy: Path, sweep: Cli, write: Write
) -> None:
    pytest.importorskip("empo_tabular", reason="needs a world in a file")
    world = toy / "w.yaml"
    game = {
        "name": "one step",
        "agents": [
            {"name": "human", "role": "human", "actions": ["stay", "go"]},
            {"name": "robot", "role": "robot", "actions": ["wait"]},
        ],
        "states": ["start", "end"],
        "initial": "start",
        "terminal": ["end"],
        "horizon": 1,
        "transitions": [
            {"state": "start", "actions": ["stay", "*"], "to": "start"},
            {"state": "start", "actions": ["go", "*"], "to": {"end": 0.5, "start": 0.5}},
        ],
        "goals": {"human": [{"name": "there", "states": ["end"], "weight": 1}]},
    }
    text = dump_yaml(game)
    world.write_text(text)
    config = {"world_model": {"name": "table", "params": {"file": "w.yaml"}}, "algorithm": "toy"}
    (toy / "run.yaml").write_text(dump_yaml(config))
    file = write(over={X: [1, 2]})
    assert sweep(file).exit_code == 0
    world.write_text("# A remark changes nothing.\n" + text)
    assert sweep(file).exit_code == 0
    world.write_text(text.replace("end: 0.5", "end: 0.25").replace("start: 0.5", "start: 0.75"))
    refused = sweep(file)
    assert refused.exit_code == 2
    assert "its world" in " ".join(refused.stderr.split())
    world.write_text(text)
    assert sweep(file).exit_code == 0
