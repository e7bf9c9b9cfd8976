"""The script of learning curves: what it runs, what it does not do twice, and what it draws."""

from __future__ import annotations

import csv
import importlib
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from empo_latent.environments.task_vector import multi_task_spec
from empo_latent.modelfile import LoadedModel, load_model
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.replay import Replay
from empo_latent.result import CurveRow
from empo_learning.checkpoint import Checkpoints

FEW = ["--environment-steps", "120", "--evaluate-every", "60", "--episodes", "1", "--seeds", "0"]
SCRIPTS = Path(__file__).parents[3] / "tests" / "benchmarks"


@pytest.fixture(scope="module")
def curves() -> ModuleType:
    sys.path.insert(0, str(SCRIPTS))
    return importlib.import_module("latent_curves")


@pytest.fixture(scope="module")
def report(curves: ModuleType) -> ModuleType:
    return importlib.import_module("latent_report")


@pytest.fixture
def jobs(curves: ModuleType, tmp_path: Path) -> Any:
    """A function that plans runs into ``out``, from words of the command line."""

    def plan(*words: str) -> Any:
        return curves.jobs(curves.arguments([*words, "--out", str(tmp_path / "out")]))

    return plan


@pytest.fixture
def curve(curves: ModuleType, jobs: Any, tmp_path: Path) -> Any:
    """A function that does the run of an agent, and returns the lines of its curve."""

    def run(agent: str, *words: str) -> list[dict[str, Any]]:
        (job,) = jobs("--agents", agent, *FEW, *words)
        curves.train_one(job._replace(config={**job.config, "runs": str(tmp_path / "runs")}))
        return list(csv.DictReader(job.target.read_text().splitlines()))

    return run


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


def test_seeds_are_averaged_where_all_of_them_are(
    curves: ModuleType, report: ModuleType, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = {(100, "policy"): 90.0, (200, "policy"): 9.0, (300, "policy"): 9.0}
    first |= {(400, "policy"): 12.0, (500, "policy"): 99.0}
    second = {(100, "policy"): 90.0, (200, "policy"): 21.0, (300, "policy"): 19.0}
    write(out / "cup-catch_awr_0.csv", "x", first, 0)
    write(out / "cup-catch_awr_1.csv", "x", {**second, (400, "policy"): 20.0}, 1)
    write(out / "pendulum_svg_0.csv", "x", {(100, "planner"): -150.0}, 0)
    training = out / "training"
    training.mkdir()
    (training / "cup-catch_awr_0.csv").write_text("step,episode/return_mean\n9,1\n10,700\n10,\n")
    (training / "cup-catch_awr_1.csv").write_text("step,episode/return_mean\n10,720\n")
    (training / "pendulum_svg_0.csv").write_text("step,episode/return_mean\n10,\n")
    rows = report.read(sorted(out.glob("*.csv")))
    table = report.table(rows, report.training_returns(out)).splitlines()
    # Means of the last three evaluations are 10 and 20; t(0.975, 1) = 12.7 times 5 is 64.
    end = "200 to 400 | 15 (± 64) | 710 (± 127) | 981 ± 7 / 958 / 870 |"
    assert f"| cup-catch | awr | policy | 2 | {end}" in table
    assert "| pendulum | svg | planner | 1 | 100 | -150 (one seed) |  |  |" in table
    assert "published" in table[0]
    pictures = report.plot(rows, out)
    assert [path.name for path in pictures] == ["cup-catch.png", "pendulum.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    assert curves.last_words(out / "cup-catch_awr_0.csv") == "policy 99.0"


def test_where_runs_were_evaluated_once_every_seed_is_shown(
    curves: ModuleType, report: ModuleType
) -> None:
    values = {("svg", 0, "planner"): 5.0, ("svg", 1, "planner"): 6.0, ("awr", 0, "policy"): 7.0}
    values |= {(curves.SAC, 0, "policy"): 8.0}
    rows = [
        report.Row("cup-catch", agent, seed, actor, 20_000, value, 1.0)
        for (agent, seed, actor), value in values.items()
    ]
    (axes,) = report.picture(rows).axes
    planner, policy, *known = axes.get_lines()
    agents = [label.get_text() for label in axes.get_xticklabels()]
    assert agents == ["awr", "svg", "sac"]
    assert planner.get_xydata().tolist() == [[1, 5.0], [1, 6.0]]
    assert policy.get_xydata().tolist() == [[0, 7.0], [2, 8.0]]
    assert planner.get_marker() != policy.get_marker()
    assert [line.get_ydata()[0] for line in known] == [981, 958, 870]
    assert axes.get_xlabel() == "agent after 20,000 environment steps"


def test_every_agent_has_a_colour_of_its_own(curves: ModuleType, report: ModuleType) -> None:
    agents = [*curves.AGENTS, curves.SAC]
    assert len({to_hex(report.colour_of(agent)) for agent in agents}) == len(agents)


def test_the_published_figures_are_those_of_the_tasks(
    curves: ModuleType, report: ModuleType
) -> None:
    found = {task: report.reference(task) for task in curves.TASKS}
    others = ("pendulum", "half-cheetah", "hopper", "cartpole-swingup-pixels")
    assert [found.pop(task) for task in others] == [None] * 4
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


def test_a_run_that_ends_while_the_script_is_stopped_has_settings(
    curves: ModuleType, jobs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(job: Any, _: Path) -> subprocess.Popen[bytes]:
        write(job.target, "Pendulum-v1", {(10, "policy"): -9.0}, 0)
        threading.Timer(0.3, signal.raise_signal, [signal.SIGTERM]).start()
        return subprocess.Popen(["sleep", "9"])

    monkeypatch.setattr(curves, "started", begun)
    planned = jobs("--tasks", "pendulum", "--agents", "awr", "--seeds", "0")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit, match="the same command goes on"):
            curves.train(planned, curves.arguments(["--out", str(tmp_path / "out")]))
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert curves.missing(planned, tmp_path / "out") == []


def test_a_run_leaves_its_curve_what_it_reported_and_its_model(curve: Any, tmp_path: Path) -> None:
    tiny: dict[str, Any] = {"replay": {"batch_size": 8}}
    tiny |= {"collection": {"acting": "policy", "seed_steps": 40, "seed_updates": 1}}
    tiny |= {"learning": {"updates_per_step": 0.1}, "imagination": {"candidates": 1}}
    words = ["--tasks", "pendulum", "--evaluate", "policy", "--params", json.dumps(tiny)]
    lines = curve("svg", *words)
    assert [int(line["environment_step"]) for line in lines] == [60, 120]
    reported = tmp_path / "out" / "training" / "pendulum_svg_0.csv"
    assert reported.read_text().startswith("step,episode/")
    assert not list((tmp_path / "runs").glob("*"))
    assert load_model(tmp_path / "runs.safetensors").spec.tasks == ("Pendulum-v1",)


def test_lost_episodes_stand_beside_the_others(curves: ModuleType) -> None:
    lost = importlib.import_module("lost_episodes")
    params = LatentParams.model_validate(
        {"size": "tiny", "total_steps": 1, "tasks": ["gymnasium/Pendulum-v1"]}
    )
    spec = multi_task_spec(params.tasks, envs=1)
    generator = torch.Generator().manual_seed(0)
    model = LatentModel(params, spec, generator=generator)
    with torch.no_grad():  # Heads are 0 at first.
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    loaded = LoadedModel(model, params, spec)
    options = lost.arguments(["model", "--actor", "policy", "--episodes", "2"])
    episodes = lost.played(loaded, options)
    rows = lost.numbers(loaded, episodes)
    assert rows[:, 0] == pytest.approx([one.reward.sum() for one in episodes])
    assert rows[:, 4] == pytest.approx([one.reward[-1] for one in episodes])
    last, before = (np.stack([one.observation[i] for one in episodes]) for i in (-1, -2))
    assert rows[:, 5] == pytest.approx(np.abs(last - before).max(1))
    for place, column in ((0, 1), (-1, 2)):
        seen = torch.from_numpy(np.stack([one.observation[place] for one in episodes]))
        value = model.value(model.encode(seen)).mean(0).flatten()
        assert rows[:, column] == pytest.approx(value.tolist(), rel=1e-5)
    table = lost.table(rows, below=rows[:, 0].mean(), late=1)
    names, counts, *_ = (list(column.cells) for column in table.columns)
    assert (names, counts) == (["lost", "late", "others"], ["1", "0", "1"])


def test_the_newest_whole_episodes_of_training_are_looked_at(
    curves: ModuleType, tmp_path: Path
) -> None:
    lost = importlib.import_module("lost_episodes")
    params = LatentParams.model_validate({"total_steps": 1, "tasks": ["gymnasium/Pendulum-v1"]})
    replay = Replay(multi_task_spec(params.tasks, envs=1), envs=1, capacity=99, horizon=1)
    seen, every = np.zeros((1, 3), np.float32), np.ones(1, bool)
    for rewards in ([5.0], [0.0, 0.0, 7.0], [0.0, 0.0], [9.0]):
        replay.begin(seen, every)
        for reward in rewards:
            replay.add(torch.ones(1, 1), np.array([reward]), ~every, seen)
    Checkpoints(tmp_path).save(1, {"learner": {"replay": replay.state_dict()}})
    rows = lost.trained(tmp_path, 2, actions=1)
    assert rows.tolist() == [[7, 2], [0, 2]]
    table = lost.table(rows, below=1, late=2, columns=("return", "steps before a reward"))
    assert list(table.columns[1].cells) == ["1", "1", "0"]


def test_checkpoints_without_episodes_are_refused(curves: ModuleType, tmp_path: Path) -> None:
    lost = importlib.import_module("lost_episodes")
    params = LatentParams.model_validate({"total_steps": 1, "tasks": ["gymnasium/Pendulum-v1"]})

    def refused(folder: str, words: str) -> None:
        with pytest.raises(SystemExit, match=f"{folder}: {words}"):
            lost.trained(tmp_path / folder, 2, actions=1)

    refused("none", "has no checkpoint")
    Checkpoints(tmp_path / "forgetful").save(1, {"learner": {"replay": None}})
    refused("forgetful", "has no replay")
    for folder, envs in (("one", 1), ("two", 2)):
        spec = multi_task_spec(params.tasks, envs=envs)
        replay = Replay(spec, envs=envs, capacity=99, horizon=1)
        replay.begin(np.zeros((envs, 3), np.float32), np.ones(envs, bool))
        Checkpoints(tmp_path / folder).save(1, {"learner": {"replay": replay.state_dict()}})
    refused("one", "no episode of training has ended")
    refused("two", "2 environments")


def test_soft_actor_critic_is_evaluated_at_equal_environment_steps(curve: Any) -> None:
    pytest.importorskip("stable_baselines3")
    lines = curve("sac", "--tasks", "pendulum")
    assert [int(line["environment_step"]) for line in lines] == [60, 120]
    assert {(line["actor"], line["length"]) for line in lines} == {("policy", "200.0")}
    assert all(-2000 < float(line["return_mean"]) < 0 for line in lines)


def test_soft_actor_critic_repeats_actions_as_the_latent_agent_does(curve: Any) -> None:
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("dm_control", reason="needs the extra dmc")
    (line,) = curve("sac", "--tasks", "cartpole-swingup", "--evaluate-every", "0")
    assert (line["step"], line["environment_step"], line["length"]) == ("60", "120", "500.0")
    assert 0 <= float(line["return_mean"]) <= 1000
